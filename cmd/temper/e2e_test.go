//go:build integration

package main_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"temper/internal/proc"
	"temper/internal/proc/testbin"
)

// The tests of this file start the real binaries, as a person would. The test
// process adopts what loses its parent, so that nothing can hide from it.

// bin is the folder with temper, temporald and s3d; TestMain fills it.
var bin string

func TestMain(m *testing.M) {
	code, err := withBinaries(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withBinaries(test func() int) (int, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("adopt orphans: %w", err)
	}
	dir, err := os.MkdirTemp("", "temper-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	bin = dir
	if err := testbin.Build("../..", dir); err != nil {
		return 1, err
	}
	return test(), nil
}

// place is a home with addresses of its own.
type place struct {
	t                           *testing.T
	home, temporal, ui, sandbox string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	addrs, err := proc.Addresses(3)
	if err != nil {
		t.Fatal(err)
	}
	return &place{t: t, home: t.TempDir(), temporal: addrs[0], ui: addrs[1], sandbox: addrs[2]}
}

func (p *place) flags() []string {
	return []string{"--home", p.home, "--temporal", p.temporal, "--ui", p.ui, "--sandbox", p.sandbox}
}

// temper runs a command to its end and checks the exit code.
func (p *place) temper(code int, args ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "temper"), append(args, p.flags()...)...)
	cmd.Env = testbin.Environment()
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != code {
		p.t.Fatalf("temper %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	return string(out)
}

// running is a started temper with what it has said so far.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and its output is read

	mu    sync.Mutex
	lines []string
}

// start starts temper.
func (p *place) start(args ...string) *running {
	p.t.Helper()
	return p.launch("temper", append(args, p.flags()...)...)
}

// launch starts a binary; it is killed at the end of the test if it still runs.
func (p *place) launch(name string, args ...string) *running {
	p.t.Helper()
	return p.launchWith(nil, name, args...)
}

// launchWith is launch with more variables of the environment.
func (p *place) launchWith(env []string, name string, args ...string) *running {
	p.t.Helper()
	r := &running{t: p.t, done: make(chan struct{})}
	r.cmd = exec.Command(filepath.Join(bin, name), args...)
	r.cmd.Env = append(testbin.Environment(), env...)
	read, write, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	r.cmd.Stdout, r.cmd.Stderr = write, write
	if err := r.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	_ = write.Close() // the child has its own
	go func() {
		defer close(r.done)
		for s := bufio.NewScanner(read); s.Scan(); {
			r.mu.Lock()
			r.lines = append(r.lines, s.Text())
			r.mu.Unlock()
		}
		_ = read.Close() // only read
		_ = r.cmd.Wait() // the state is looked at by those who wait for done
	}()
	p.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // most have ended
		<-r.done
		if p.t.Failed() {
			p.t.Logf("%s %s said:\n%s", name, strings.Join(args, " "), r.text())
		}
	})
	return r
}

func (r *running) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// await returns the first match of the pattern in a line, and its groups.
func (r *running) await(pattern string, timeout time.Duration) []string {
	r.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		if m := re.FindStringSubmatch(r.text()); m != nil {
			return m
		}
		select {
		case <-r.done:
			if m := re.FindStringSubmatch(r.text()); m != nil {
				return m
			}
			r.t.Fatalf("ended (%s) without a line like %q:\n%s", r.cmd.ProcessState, pattern, r.text())
		default:
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no line like %q after %v:\n%s", pattern, timeout, r.text())
		}
	}
}

// end waits for the process and checks its exit code; -1 is death by a signal.
func (r *running) end(code int, timeout time.Duration) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(timeout):
		r.t.Fatalf("still running after %v:\n%s", timeout, r.text())
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Fatalf("exit code %d (%s), want %d:\n%s", got, r.cmd.ProcessState, code, r.text())
	}
}

func (r *running) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// killService sends SIGKILL to a service of `temper up`, by the pid it told.
func (r *running) killService(name string) {
	r.t.Helper()
	m := r.await(`^service `+name+`: healthy \(pid (\d+)\)`, time.Minute)
	pid, err := strconv.Atoi(m[1])
	if err != nil {
		r.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		r.t.Fatalf("kill %s: %v", name, err)
	}
}

// lastLine is the last line of an output.
func lastLine(out string) string {
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	return lines[len(lines)-1]
}

// noOrphans checks that nothing descends from this process any more.
func noOrphans(t *testing.T, timeout time.Duration) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if left = descendants(os.Getpid()); len(left) == 0 {
			return
		}
	}
	t.Errorf("%d processes are left after %v:\n%s", len(left), timeout, strings.Join(left, "\n"))
}

// descendants describes the living processes below root, from /proc.
func descendants(root int) []string {
	type process struct {
		ppid        int
		description string
	}
	all := map[int]process{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		end := bytes.LastIndexByte(data, ')')
		fields := strings.Fields(string(data[end+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || len(fields) < 2 {
			continue
		}
		ppid, err := strconv.Atoi(fields[1])
		if err != nil {
			continue
		}
		text := ""
		if fields[0] != "Z" {
			text = fmt.Sprintf("pid %d, parent %d, state %s: %s", pid, ppid, fields[0], data[:end+1])
		}
		all[pid] = process{ppid, text}
	}
	var out []string
	for pid := range all {
		if all[pid].description == "" || pid == root {
			continue
		}
		for up, depth := pid, 0; up > 1 && depth < 64; up, depth = all[up].ppid, depth+1 {
			if up == root {
				out = append(out, all[pid].description)
				break
			}
		}
	}
	return out
}
