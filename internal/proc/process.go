package proc

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is one life of a child.
type process struct {
	pid    int
	logAt  int64         // size of the log file when it started
	exited chan struct{} // closed when the process is gone and waited for
	status string        // valid after exited
}

// spawner starts processes from one thread that lives as long as they do: the
// kernel sends the parent-death signal when the thread that forked ends, and not
// when its process does.
type spawner struct {
	jobs chan func()
	done chan struct{}
}

func newSpawner() *spawner {
	return &spawner{jobs: make(chan func()), done: make(chan struct{})}
}

func (s *spawner) open() {
	go func() {
		defer close(s.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for job := range s.jobs {
			job()
		}
	}()
}

// close ends the thread. No process may run any more.
func (s *spawner) close() {
	close(s.jobs)
	<-s.done
}

// start runs the child in a new process group.
func (s *spawner) start(c Child) (*process, error) {
	log, err := os.OpenFile(c.LogFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has its own descriptor
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.Env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	result := make(chan error)
	s.jobs <- func() { result <- cmd.Start() }
	if err := <-result; err != nil {
		return nil, err
	}
	p := &process{pid: cmd.Process.Pid, logAt: info.Size(), exited: make(chan struct{})}
	go p.wait(cmd)
	return p, nil
}

// wait kills what is left of the process group before it reaps the leader: until
// then the number of the group cannot belong to anybody else.
func (p *process) wait(cmd *exec.Cmd) {
	defer close(p.exited)
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = unix.Kill(-p.pid, unix.SIGKILL) // ESRCH when nothing is left of the group
	_ = cmd.Wait()                      // its error is the exit status, read below
	p.status = cmd.ProcessState.String()
}

// stop ends the process and reports whether it took SIGKILL.
func (p *process) stop(timeout time.Duration, hurry <-chan struct{}) (killed bool) {
	p.signal(unix.SIGTERM)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.exited:
		return false
	case <-timer.C:
	case <-hurry:
	}
	p.signal(unix.SIGKILL)
	<-p.exited
	return true
}

// signal reaches the leader alone; wait kills its group when it is gone.
func (p *process) signal(sig unix.Signal) {
	select {
	case <-p.exited: // another process may have the number now
	default:
		_ = unix.Kill(p.pid, sig) // ESRCH when it ended just now
	}
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}
