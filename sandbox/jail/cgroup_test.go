package jail

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// put writes files below dir, whose names may hold slashes.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// settings returns the files below dir that have something to say.
func settings(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		got[strings.TrimPrefix(path, dir+"/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// unified lays out a machine with the unified hierarchy only.
func unified(t *testing.T, controllers string) (dir string, cfg cgroupConfig) {
	t.Helper()
	dir = t.TempDir()
	put(t, dir, map[string]string{
		"proc/self/mountinfo": "24 1 0:22 / /proc rw - proc proc rw\n" +
			"30 24 0:26 / " + dir + "/my\\040cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
		"proc/self/cgroup": "0::/user/temper\n",
		"proc/meminfo":     "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
		"my cgroup/user/temper/cgroup.controllers": controllers + "\n",
		"my cgroup/user/temper/memory.max":         "max\n",
		"my cgroup/user/memory.max":                "4294967296\n",
	})
	return dir, cgroupConfig{proc: dir + "/proc"}
}

func TestCgroupUnified(t *testing.T) {
	dir, cfg := unified(t, "cpuset cpu io memory pids")
	own := dir + "/my cgroup/user/temper"
	// One that nobody owns any more, one whose owner lives.
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf("%s/temper-%d-3", own, dead.Process.Pid)
	used := fmt.Sprintf("%s/temper-%d-1", own, os.Getpid())
	if err := errors.Join(os.Mkdir(left, 0o755), os.Mkdir(used, 0o755)); err != nil {
		t.Fatal(err)
	}
	c, err := newCgroup(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.add(77); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead owner left is still there: %v", err)
	}
	want := map[string]string{
		"cgroup.procs": "77", "memory.max": "3221225472", "memory.swap.max": "0", "pids.max": "8192", "cpu.weight": "75",
	}
	name := fmt.Sprintf("%s/temper-%d-2", own, os.Getpid())
	if diff := cmp.Diff(want, settings(t, name)); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if got := settings(t, own)["cgroup.subtree_control"]; got != "+memory +pids +cpu" {
		t.Errorf("handed down %q", got)
	}
	if got, _ := c.oomKills(); got != 0 {
		t.Errorf("%d kills before there is a count", got)
	}
	put(t, name, map[string]string{"memory.events": "low 0\noom 9\noom_kill 4\noom_group_kill 0\n"})
	if got, _ := c.oomKills(); got != 4 {
		t.Errorf("%d kills, want 4", got)
	}
	// The directory is busy until the files, standing in for processes, are gone.
	gone := make(chan error)
	go func() {
		time.Sleep(20 * time.Millisecond)
		var failed []error
		for file := range want {
			failed = append(failed, os.Remove(filepath.Join(name, file)))
		}
		gone <- errors.Join(append(failed, os.Remove(name+"/memory.events"))...)
	}()
	if err := errors.Join(c.close(), <-gone); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup is still there: %v", err)
	}
}

// TestCgroupUnifiedMovesItsOwner covers the rule that a cgroup with processes hands
// no controllers down.
func TestCgroupUnifiedMovesItsOwner(t *testing.T) {
	for _, alone := range []bool{true, false} {
		dir, cfg := unified(t, "memory")
		own, self := dir+"/my cgroup/user/temper", strconv.Itoa(os.Getpid())
		leaf := own + "/temper-owner-" + self
		var log []string
		cfg.write = func(path, value string) error {
			log = append(log, strings.TrimPrefix(path, own+"/")+"="+value)
			if strings.HasSuffix(path, "subtree_control") && (!alone || len(log) == 1) {
				return &os.PathError{Op: "write", Path: path, Err: unix.EBUSY}
			}
			return nil
		}
		c, err := newCgroup(cfg)
		moved := []string{"cgroup.subtree_control=+memory", "temper-owner-" + self + "/cgroup.procs=" + self, "cgroup.subtree_control=+memory"}
		if alone {
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(moved, log[:3]); diff != "" {
				t.Errorf("alone (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"pids", "cpu"}, c.lacking); diff != "" {
				t.Errorf("lacking (-want +got):\n%s", diff)
			}
			// From then on the owner is in the leaf, and cgroups are made beside it.
			put(t, dir, map[string]string{"proc/self/cgroup": "0::/user/temper/temper-owner-" + self + "\n"})
			again, err := newCgroup(cfg)
			if err != nil || filepath.Dir(again.dirs[0]) != own {
				t.Errorf("second cgroup: %v %v", again, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "shared with other processes") {
			t.Errorf("with neighbours: got error %v", err)
		}
		if diff := cmp.Diff(append(moved, "cgroup.procs="+self), log); diff != "" {
			t.Errorf("with neighbours (-want +got):\n%s", diff)
		}
		if _, err := os.Stat(leaf); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the leaf is still there: %v", err)
		}
	}
}

// TestCgroupVersion1 has a container's view: its own cgroup is the root of the
// mount, and two controllers share a hierarchy with others or do not exist.
func TestCgroupVersion1(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, map[string]string{
		"proc/self/mountinfo": "40 30 0:30 /docker/abc " + dir + "/memory ro - cgroup cgroup rw,memory\n" +
			"41 30 0:31 /docker/abc " + dir + "/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n" +
			"42 30 0:32 / " + dir + "/unified rw - cgroup2 cgroup2 rw\n",
		"proc/self/cgroup":             "9:memory:/docker/abc\n8:cpu,cpuacct:/docker/abc/inner\n0::/\n",
		"proc/meminfo":                 "MemTotal: 1048576 kB\n",
		"memory/memory.limit_in_bytes": "9223372036854771712\n",
		"cpu,cpuacct/inner/cpu.shares": "1024\n",
	})
	c, err := newCgroup(cgroupConfig{proc: dir + "/proc"})
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("temper-%d-1", os.Getpid())
	want := map[string]string{
		"memory.limit_in_bytes": "805306368", "memory.memsw.limit_in_bytes": "805306368", "memory.swappiness": "0",
	}
	if diff := cmp.Diff(want, settings(t, dir+"/memory/"+name)); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"cpu.shares": strconv.Itoa(768 * runtime.NumCPU())}, settings(t, dir+"/cpu,cpuacct/inner/"+name)); diff != "" {
		t.Errorf("cpu (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"pids"}, c.lacking); diff != "" {
		t.Errorf("lacking (-want +got):\n%s", diff)
	}
}

func TestCgroupSaysWhyNot(t *testing.T) {
	dir, cfg := unified(t, "cpu pids")
	if _, err := newCgroup(cfg); err == nil || !strings.Contains(err.Error(), "has no memory controller") {
		t.Errorf("without the controller: got error %v", err)
	}
	put(t, dir, map[string]string{"proc/self/mountinfo": "24 1 0:22 / /proc rw - proc proc rw\n"})
	if _, err := newCgroup(cfg); err == nil || !strings.Contains(err.Error(), "no hierarchy is mounted") {
		t.Errorf("without a hierarchy: got error %v", err)
	}
	_, cfg = unified(t, "memory")
	cfg.write = func(path, _ string) error {
		if strings.HasSuffix(path, "memory.max") {
			return &os.PathError{Op: "write", Path: path, Err: unix.EACCES}
		}
		return nil
	}
	if _, err := newCgroup(cfg); !errors.Is(err, unix.EACCES) {
		t.Errorf("read-only: got error %v", err)
	}
}

func TestCgroupOfThisMachine(t *testing.T) {
	c, err := newCgroup(cgroupConfig{memory: 64 << 20, pids: 10})
	if err != nil {
		t.Skipf("not on this machine: %v", err)
	}
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.add(sleeper.Process.Pid); err != nil {
		t.Error(err)
	}
	for _, dir := range c.dirs {
		text, err := os.ReadFile(dir + "/cgroup.procs")
		if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(sleeper.Process.Pid) {
			t.Errorf("%s holds %q, %v", dir, text, err)
		}
	}
	ended := make(chan error)
	go func() { ended <- sleeper.Wait() }()
	if err := c.close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the sleeper ended by itself")
	}
	for _, dir := range c.dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
}
