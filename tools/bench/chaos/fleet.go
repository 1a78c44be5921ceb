package chaos

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Member is a process that the harness starts, and starts again when it dies, as an
// init system would.
type Member struct {
	Name string
	// Role is the name of the victims that the process belongs to.
	Role string
	// Command makes the process, ready to be started, any number of times one after
	// the other.
	Command func() (*exec.Cmd, error)
	// Later members are not there at the beginning: they join.
	Later bool
	// Server marks what the others need to end in order: it ends after them.
	Server bool
}

const (
	// stopTimeout is how long a member may take to end before it is killed.
	stopTimeout = time.Minute
	// briefLife is that of a process whose start failed; such a start is repeated
	// after restartPause.
	briefLife    = time.Second
	restartPause = 100 * time.Millisecond
)

// fleet keeps the members of a service.
type fleet struct {
	keepers []*keeper
	done    sync.WaitGroup
}

// launch starts the members that are there from the beginning.
func launch(members []Member) *fleet {
	f := &fleet{}
	for _, m := range members {
		k := &keeper{Member: m, wanted: !m.Later, changed: make(chan struct{}, 1)}
		f.keepers = append(f.keepers, k)
		f.done.Go(k.keep)
	}
	return f
}

func (f *fleet) keeper(name string) (*keeper, error) {
	i := slices.IndexFunc(f.keepers, func(k *keeper) bool { return k.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the service has no member %s", name)
	}
	return f.keepers[i], nil
}

// broken is why members could not be started.
func (f *fleet) broken() error {
	var errs []error
	for _, k := range f.keepers {
		k.mu.Lock()
		errs = append(errs, k.failed)
		k.mu.Unlock()
	}
	return errors.Join(errs...)
}

// stop ends all members in order, servers last, and by force when that takes too long.
func (f *fleet) stop() {
	for _, servers := range []bool{false, true} {
		var ending []*keeper
		for _, k := range f.keepers {
			if k.Server == servers {
				ending = append(ending, k)
				k.end()
			}
		}
		for _, k := range ending {
			k.awaitEnd()
		}
	}
	f.done.Wait()
}

// keeper keeps one member alive while it is wanted.
type keeper struct {
	Member
	changed chan struct{} // after each change of what is wanted; holds one

	mu     sync.Mutex
	wanted bool
	over   bool      // for good
	cmd    *exec.Cmd // nil while no process runs
	failed error
}

// keep starts one process after the other. The kernel kills them with the thread that
// started them, so the goroutine stays on one: nothing outlives a killed harness.
func (k *keeper) keep() {
	runtime.LockOSThread()
	for k.await() {
		began := time.Now()
		cmd, err := k.start()
		if err != nil {
			return
		}
		_ = cmd.Wait() // it was killed, was asked to end, or could not start
		k.mu.Lock()
		k.cmd = nil
		k.mu.Unlock()
		if time.Since(began) < briefLife {
			time.Sleep(restartPause)
		}
	}
}

// await returns true when the member is wanted, and false when it is over.
func (k *keeper) await() bool {
	for {
		k.mu.Lock()
		wanted, over := k.wanted, k.over
		k.mu.Unlock()
		if over {
			return false
		}
		if wanted {
			return true
		}
		<-k.changed
	}
}

func (k *keeper) start() (*exec.Cmd, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	cmd, err := k.Command()
	if err == nil {
		// Ctrl-C at a terminal is for the harness alone.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		err = cmd.Start()
	}
	if err != nil {
		k.failed = fmt.Errorf("start %s: %w", k.Name, err)
		return nil, k.failed
	}
	k.cmd = cmd
	if k.over || !k.wanted { // it was dismissed just now
		_ = cmd.Process.Kill()
	}
	return cmd, nil
}

// want starts the member, or lets it end.
func (k *keeper) want(wanted, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted, k.over = wanted, k.over || over
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// signal reaches the process, if there is one.
func (k *keeper) signal(sig syscall.Signal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cmd != nil {
		_ = k.cmd.Process.Signal(sig) // it may have ended just now
	}
}

// running is the id of the process, 0 for none.
func (k *keeper) running() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cmd == nil {
		return 0
	}
	return k.cmd.Process.Pid
}

// end asks the process to end and starts no other.
func (k *keeper) end() {
	k.want(false, true)
	k.signal(syscall.SIGTERM)
}

// awaitEnd returns when the process is gone.
func (k *keeper) awaitEnd() {
	for deadline := time.Now().Add(stopTimeout); k.running() != 0; time.Sleep(pollInterval) {
		if time.Now().After(deadline) {
			k.signal(syscall.SIGKILL)
		}
	}
}
