package board

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"temper/internal/proc"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

// peer is the processes of another service.
type peer struct {
	dir  string // for its files and logs, removed at the end
	cmds []*exec.Cmd
	// cgroup is the name of the cgroups that it makes and does not remove; "" for none.
	cgroup string
}

func newPeer() (*peer, error) {
	dir, err := os.MkdirTemp("", "temper-board-")
	return &peer{dir: dir}, err
}

// spawn starts a process in a folder, with its output in a log.
func (p *peer) spawn(folder string, env []string, name string, args ...string) error {
	cmd := exec.Command(name, args...) //nolint:gosec // the way that is measured
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log, err := os.Create(filepath.Join(p.dir, fmt.Sprintf("%d.log", len(p.cmds))))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(name), err)
	}
	p.cmds = append(p.cmds, cmd)
	return nil
}

// cpu is the processor time of all processes.
func (p *peer) cpu() loadgen.CPU {
	return loadgen.CPU{PIDs: meter.Pick(p.cmds, func(c *exec.Cmd) int { return c.Process.Pid })}
}

// startTimeout is how long a service may take to be ready.
const startTimeout = 30 * time.Second

// await asks until ready says yes.
func (p *peer) await(ctx context.Context, ready func() bool) error {
	for end := time.Now().Add(startTimeout); ; {
		if ready() {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("not ready after %v: %s", startTimeout, p.lastWords())
		}
		loadgen.Rest(ctx, 50*time.Millisecond)
	}
}

// lastWords is the end of the logs.
func (p *peer) lastWords() string {
	var out []string
	for i := range p.cmds {
		text, err := os.ReadFile(filepath.Join(p.dir, fmt.Sprintf("%d.log", i)))
		if err == nil && len(text) > 0 {
			out = append(out, string(text[max(0, len(text)-300):]))
		}
	}
	return strings.Join(out, " | ")
}

// stop ends the processes, the last first, with all that they have started.
func (p *peer) stop() error {
	for i := len(p.cmds) - 1; i >= 0; i-- {
		pid := p.cmds[i].Process.Pid
		_ = p.cmds[i].Process.Signal(syscall.SIGTERM) // fails only when it has ended
		patience := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
		_ = p.cmds[i].Wait() // it ends with an error
		patience.Stop()
		_ = syscall.Kill(-pid, syscall.SIGKILL) // what it has left in its group, if anything
	}
	if p.cgroup != "" {
		removeCgroups(p.cgroup)
	}
	return os.RemoveAll(p.dir)
}

// removeCgroups removes those of a name, with what is below, in all hierarchies. One
// that cannot be removed, because something runs in it, stays.
func removeCgroups(name string) {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && slices.Contains(strings.Split(path, "/"), name) {
			found = append(found, path)
		}
		return nil
	}) // what cannot be read is not ours
	for _, path := range slices.Backward(found) {
		_ = os.Remove(path)
	}
}

// listens reports whether somebody accepts connections.
func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close() // it was only a question
	return true
}

// answers reports whether a GET has any answer.
func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // it was only a question
	return resp.StatusCode < http.StatusInternalServerError
}

func missingGoJudge(cfg Config) string {
	return missingCommand(cfg.GoJudge, "build github.com/criyle/go-judge with `go build ./cmd/go-judge` and name the file with --go-judge")
}

func startGoJudge(ctx context.Context, cfg Config) (_ *running, err error) {
	p, err := newPeer()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	prefixes, err := pythonPrefixes(ctx, cfg.Python)
	if err != nil {
		return nil, err
	}
	var mounts strings.Builder
	mounts.WriteString("mount:\n")
	for _, dir := range append(append(systemFolders(), "/dev/null", "/dev/urandom"), prefixes...) {
		fmt.Fprintf(&mounts, "  - {type: bind, source: %q, target: %q, readonly: %v}\n", dir, dir, !strings.HasPrefix(dir, "/dev"))
	}
	mounts.WriteString("  - {type: tmpfs, target: /w, data: 'size=32m,nr_inodes=1k'}\n  - {type: tmpfs, target: /tmp, data: 'size=32m,nr_inodes=1k'}\n" +
		"proc: true\nworkDir: /w\nuid: 1536\ngid: 1536\n")
	file := filepath.Join(p.dir, "mount.yaml")
	if err := os.WriteFile(file, []byte(mounts.String()), 0o600); err != nil {
		return nil, err
	}
	addresses, err := proc.Addresses(1)
	if err != nil {
		return nil, err
	}
	containers := cfg.Concurrency
	p.cgroup = fmt.Sprintf("temper-board-%d", os.Getpid())
	err = p.spawn(p.dir, nil, cfg.GoJudge, "-http-addr", addresses[0], "-parallelism", fmt.Sprint(cfg.Concurrency), "-pre-fork", fmt.Sprint(containers),
		"-mount-conf", file, "-dir", p.dir, "-cgroup-prefix", p.cgroup, "-release", "-silent")
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, func() bool { return answers(ctx, "http://"+addresses[0]+"/version") }); err != nil {
		return nil, err
	}
	target, err := loadgen.GoJudge(addresses[0], []string{cfg.Python, "-I", "-c"}, []string{"PATH=/usr/bin:/bin", "HOME=/tmp"})
	root := p.cmds[0].Process.Pid
	return &running{
		target: target, cpu: p.cpu(), unit: "container, no interpreter",
		layers: "namespaces and root of a container that calls share one after the other, tmpfs, cgroup, limits",
		idle: func(context.Context, int) (int64, error) {
			own := meter.StatusBytes(fmt.Sprintf("/proc/%d/smaps_rollup", root), "Pss")
			return (meter.Memory(root) - own) / int64(containers), nil
		},
		stop: func() error { target.Close(); return p.stop() },
	}, err
}
