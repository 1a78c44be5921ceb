package sandboxbench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ChildConfig describes a process of the service under test.
type ChildConfig struct {
	Name string // in messages and tables
	Args []string
	Env  []string // added to this process's
	// Cgroup is the folder of a cgroup that the process starts in, made if need be.
	Cgroup string
	// MemoryMax, with a Cgroup of the memory controller, caps it.
	MemoryMax int64
}

// Role returns the arguments with which temper runs as the named role.
func Role(name string, args ...string) []string { return append([]string{"role", name}, args...) }

// Child is a running process of the service under test.
type Child struct {
	Name    string
	Address string // from its ready line

	cfg    ChildConfig
	cmd    *exec.Cmd
	stderr *tail
	exited chan struct{}
	owner  sync.WaitGroup
}

// readyTimeout is how long a process may take until its ready line.
const readyTimeout = 60 * time.Second

// StartChild runs binary and returns when it has printed its ready line. The
// caller ends it with Kill or Stop.
func StartChild(ctx context.Context, binary string, cfg ChildConfig) (*Child, error) {
	name, args := binary, cfg.Args
	if cfg.Cgroup != "" {
		if err := makeCgroup(cfg.Cgroup, cfg.MemoryMax); err != nil {
			return nil, fmt.Errorf("%s: %w", cfg.Name, err)
		}
		// The process must be inside before it starts others.
		script := `echo $$ > "$0/cgroup.procs" && exec "$@"`
		name, args = "sh", append([]string{"-c", script, cfg.Cgroup, binary}, args...)
	}
	c := &Child{Name: cfg.Name, cfg: cfg, stderr: &tail{}, exited: make(chan struct{})}
	// Not CommandContext: how a child ends is the owner's decision.
	c.cmd = exec.Command(name, args...) //nolint:gosec // the caller's own binary
	c.cmd.Env = append(os.Environ(), cfg.Env...)
	c.cmd.Stderr = c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Name, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Name, err)
	}
	ready := make(chan string, 1)
	c.owner.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if address := readyAddress(lines.Bytes()); address != "" {
				select {
				case ready <- address:
				default: // it is ready once
				}
			}
		}
		_ = c.cmd.Wait() // killed children end with an error
		close(c.exited)
	})
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case c.Address = <-ready:
		return c, nil
	case <-c.exited:
		err = errors.New("ended before it was ready")
	case <-ctx.Done():
		err = fmt.Errorf("not ready: %w", ctx.Err())
	}
	return nil, errors.Join(fmt.Errorf("%s: %w: %s", cfg.Name, err, c.stderr.last()), c.Stop(time.Second))
}

// readyAddress reads the line that a role prints when it serves.
func readyAddress(line []byte) string {
	var l struct {
		Ready   bool   `json:"ready"`
		Address string `json:"address"`
	}
	if json.Unmarshal(line, &l) != nil || !l.Ready {
		return ""
	}
	return l.Address
}

// PID is the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Kill ends the process at once, as kill -9 does, and waits for its end. The
// processes that it started must end by themselves.
func (c *Child) Kill() error {
	err := c.cmd.Process.Kill()
	c.owner.Wait()
	return err
}

// Stop asks the process to end and kills it when it has not after drain.
func (c *Child) Stop(drain time.Duration) error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	timer := time.NewTimer(drain)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C:
		_ = c.cmd.Process.Kill() // fails only when it has ended
	}
	c.owner.Wait()
	if c.cfg.Cgroup == "" {
		return nil
	}
	return removeCgroup(c.cfg.Cgroup)
}

// makeCgroup makes the folder and sets the limit that its version knows.
func makeCgroup(dir string, memory int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the mode of every cgroup
		return err
	}
	if memory <= 0 {
		return nil
	}
	for _, name := range []string{"memory.limit_in_bytes", "memory.max"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return os.WriteFile(path, fmt.Append(nil, memory), 0)
		}
	}
	return fmt.Errorf("cgroup %s: no memory controller", dir)
}

// removeCgroup removes the cgroup with those that the process made below and, when
// it was killed, could not remove. It waits a little for the last process to leave.
func removeCgroup(dir string) error {
	var err error
	for range 50 {
		var below []string
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				below = append(below, path)
			}
			return nil
		}) // what cannot be walked cannot be removed either, and the removal reports it
		err = nil
		for _, path := range slices.Backward(below) {
			err = errors.Join(err, os.Remove(path))
		}
		if err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// cgroupPeak is the most memory that a cgroup has held; 0 where the kernel does not
// report it.
func cgroupPeak(dir string) int64 {
	for _, name := range []string{"memory.max_usage_in_bytes", "memory.peak"} {
		text, err := os.ReadFile(filepath.Join(dir, name)) //nolint:gosec // a cgroup of this process
		if err != nil {
			continue
		}
		var n int64
		if _, err := fmt.Sscan(string(text), &n); err == nil {
			return n
		}
	}
	return 0
}

// tail keeps the end of what a process writes to stderr.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 8 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text); n > maxTail {
		t.text = t.text[n-maxTail:]
	}
	return len(p), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "; ")
}
