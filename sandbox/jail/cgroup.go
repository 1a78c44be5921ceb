package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Defaults of a cgroup. Programs get a share of the memory of the machine or of the
// owner's cgroup; the owner keeps the rest. The cpu weight is below the kernel's
// default, so that the owner can answer while every core runs programs. Version 1
// divides the weight of a group by the cores it runs on, so sharesV1 is per core.
const (
	memoryShareNum = 3
	memoryShareDen = 4
	defaultPids    = 8192
	pidsPerChild   = 64   // the RLIMIT_NPROC of a program
	pidsOfZygotes  = 1024 // zygotes and the threads that numeric libraries start once
	sharesV1       = 768  // of 1024, for each core
	weightV2       = "75" // of 100
)

// removeTimeout bounds how long the kernel may take to release dead processes.
const removeTimeout = 2 * time.Second

// cgroupConfig sets the bounds of a cgroup. The zero value is a working configuration.
type cgroupConfig struct {
	memory int64 // bytes for all calls together; a share of the available memory when zero
	pids   int   // processes and threads; defaultPids when zero
	proc   string
	write  func(path, value string) error // replaces the kernel's files in tests; nil otherwise
}

// cgroup bounds the memory, the threads and the processor share of all its processes.
// Children are born into the cgroup of their parent: the owner adds a zygote once, and a
// call costs nothing. A cgroup has one directory for each hierarchy.
type cgroup struct {
	dirs    []string
	memory  int64    // the active limit, in bytes
	lacking []string // controllers that this machine lacks
	events  string   // file in which the kernel counts OOM kills
	write   func(path, value string) error

	mu      sync.Mutex
	claimed int // kills already assigned to a dead process
}

// pidsFor returns the bound of processes and threads for a number of children: enough for
// all of them, and at most half of the machine's limit, so that other programs can still
// start processes.
func pidsFor(children, machine int) int {
	return min(max(defaultPids, pidsPerChild*children+pidsOfZygotes), max(defaultPids, machine/2))
}

// hostPids returns how many processes and threads the machine can have.
func hostPids(proc string) int {
	most := math.MaxInt
	for _, name := range []string{"pid_max", "threads-max"} {
		text, err := os.ReadFile(proc + "/sys/kernel/" + name)
		if err != nil {
			continue // the other file or the kernel bounds it
		}
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			most = min(most, n)
		}
	}
	return most
}

// newCgroup creates an empty cgroup below the owner's cgroup and removes the cgroups of
// dead owners. The error explains why this machine does not allow it.
func newCgroup(cfg cgroupConfig) (*cgroup, error) {
	if cfg.proc == "" {
		cfg.proc = "/proc"
	}
	if cfg.write == nil {
		cfg.write = writeFile
	}
	if cfg.pids == 0 {
		cfg.pids = defaultPids
	}
	place, err := findPlace(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.memory == 0 {
		cfg.memory = place.available(cfg.proc) / memoryShareDen * memoryShareNum
	}
	place.sweep()
	c := &cgroup{memory: cfg.memory, lacking: place.lacking, write: cfg.write}
	if err := c.create(place); err != nil {
		return nil, err
	}
	if err := c.limit(place, cfg.pids); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// setUpCgroup makes the cgroup for all zygotes of j and reports it as a layer.
func (j *Jail) setUpCgroup() Layer {
	layer := Layer{Name: "cgroup"}
	group, err := newCgroup(cgroupConfig{memory: j.cfg.TotalMemory, pids: pidsFor(j.cfg.Children, hostPids("/proc"))})
	if err != nil {
		layer.Reason = strings.TrimPrefix(err.Error(), "cgroup: ")
		return layer
	}
	j.group = group
	layer.On = len(group.lacking) == 0
	if !layer.On {
		layer.Reason = "without a controller for " + strings.Join(group.lacking, " and ")
	}
	return layer
}

// create makes the directories under an unused name.
func (c *cgroup) create(p place) error {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), n)
		err := os.Mkdir(filepath.Join(p.parents[0], name), 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
		c.dirs = append(c.dirs, filepath.Join(p.parents[0], name))
		for _, parent := range p.parents[1:] {
			err := os.Mkdir(filepath.Join(parent, name), 0o755)
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return errors.Join(fmt.Errorf("cgroup: %w", err), c.close())
			}
			c.dirs = append(c.dirs, filepath.Join(parent, name))
		}
		return nil
	}
}

// setting is one file of a cgroup; an optional one may be missing from a kernel.
type setting struct {
	controller, file, value string
	optional                bool
}

func (c *cgroup) limit(p place, pids int) error {
	bytes := strconv.FormatInt(c.memory, 10)
	settings := []setting{
		{"memory", "memory.limit_in_bytes", bytes, false},
		{"memory", "memory.memsw.limit_in_bytes", bytes, true}, // memory and swap together
		{"memory", "memory.swappiness", "0", true},
		{"pids", "pids.max", strconv.Itoa(pids), false},
		{"cpu", "cpu.shares", strconv.Itoa(sharesV1 * runtime.NumCPU()), false},
	}
	events := "memory.oom_control"
	if p.unified {
		settings = []setting{
			{"memory", "memory.max", bytes, false},
			{"memory", "memory.swap.max", "0", true},
			{"pids", "pids.max", strconv.Itoa(pids), false},
			{"cpu", "cpu.weight", weightV2, false},
		}
		events = "memory.events"
	}
	for _, s := range settings {
		at, ok := p.controllers[s.controller]
		if !ok {
			continue
		}
		err := c.write(filepath.Join(c.dirs[at], s.file), s.value)
		if err != nil && !s.optional {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	c.events = filepath.Join(c.dirs[p.controllers["memory"]], events)
	return nil
}

// add moves a process into the cgroup, if there is one. Its later children are born there.
func (c *cgroup) add(pid int) error {
	if c == nil {
		return nil
	}
	for _, dir := range c.dirs {
		if err := c.write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("cgroup: %w", err)
		}
	}
	return nil
}

// close kills the processes in the cgroup and removes it.
func (c *cgroup) close() error {
	var failed []error
	for _, dir := range c.dirs {
		failed = append(failed, removeCgroup(dir))
	}
	return errors.Join(failed...)
}

// removeCgroup removes a directory. The kernel reports it as busy for a moment after the
// last process has died.
func removeCgroup(dir string) error {
	deadline := time.Now().Add(removeTimeout)
	for {
		err := unix.Rmdir(dir)
		switch {
		case err == nil, err == unix.ENOENT:
			return nil
		case err == unix.EINTR:
		case err != unix.EBUSY && err != unix.ENOTEMPTY, time.Now().After(deadline):
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		default:
			killAll(dir)
			time.Sleep(time.Millisecond)
		}
	}
}

// killAll kills the processes of a cgroup. It ignores errors: a process that survives makes
// the removal of the directory fail.
func killAll(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// writeFile writes one setting. The kernel accepts a setting only as a single write.
func writeFile(path, value string) error {
	return os.WriteFile(path, []byte(value), 0o644)
}
