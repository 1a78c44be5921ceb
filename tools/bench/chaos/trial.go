package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
)

// Host is one service in a place of its own, and one run in it.
type Host interface {
	// Command is the supervisor, ready to be started, any number of times one
	// after the other.
	Command() (*exec.Cmd, error)
	// Submit starts the run; the service may need some more time to be there.
	Submit(ctx context.Context) error
	// Ended says whether the run has ended, and the error with which it failed. It
	// is false as long as the service does not answer.
	Ended(ctx context.Context) (ended bool, failure error)
	// Store is where the run keeps its objects.
	Store() blob.Store
	// Run is the run's place in the store.
	Run() artifact.Layout
	// FailPoints is the folder in which fail points leave their marks, "" for none.
	FailPoints() string
}

// Limits of a trial. They only decide when to give up.
const (
	pollInterval = 10 * time.Millisecond
	askInterval  = 500 * time.Millisecond
	stopTimeout  = time.Minute
	// orphanTimeout is how long the kernel may take to reap what was killed.
	orphanTimeout = 10 * time.Second
)

// trial is one run under way.
type trial struct {
	host   Host
	expect int // objects of an undisturbed run
	marks  *marks
	began  time.Time
	seen   map[string]bool
	out    Outcome

	mu sync.Mutex // guards up and stopping
	up *exec.Cmd
	// stopping tells the keeper not to start the supervisor again.
	stopping bool
	keeper   sync.WaitGroup
	broken   error
}

// Try carries out a run while it deals the kills. expect is the number of
// objects of an undisturbed run, 0 when there are no kills. The service is gone
// when Try returns. The error is the harness's own; what became of the run is in
// the outcome.
func Try(ctx context.Context, host Host, kills []Kill, expect int) (Outcome, error) {
	t := &trial{host: host, expect: expect, seen: map[string]bool{}, marks: newMarks(host.FailPoints())}
	if err := t.start(); err != nil {
		return t.out, err
	}
	err := t.submitAndKill(ctx, kills)
	t.out.Wall = seconds(time.Since(t.began))
	t.out.Objects = len(t.seen)
	measure(t.out.Blows, t.out.beats)
	t.stop()
	t.out.Orphans = orphans()
	return t.out, err
}

// start starts the supervisor and the keeper that starts it again when it dies.
func (t *trial) start() error {
	cmd, err := t.host.Command()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	t.up = cmd
	t.keeper.Go(t.keep)
	return nil
}

// keep waits for the supervisor and starts it again until the trial stops.
func (t *trial) keep() {
	for {
		t.mu.Lock()
		cmd := t.up
		t.mu.Unlock()
		_ = cmd.Wait() // it was killed, or ended because it could not start
		t.mu.Lock()
		if t.stopping {
			t.mu.Unlock()
			return
		}
		if t.up, t.broken = t.host.Command(); t.broken == nil {
			t.broken = t.up.Start()
		}
		broken := t.broken
		t.mu.Unlock()
		if broken != nil {
			return
		}
	}
}

func (t *trial) submitAndKill(ctx context.Context, kills []Kill) error {
	if err := t.host.Submit(ctx); err != nil {
		return fmt.Errorf("submit the run: %w", err)
	}
	t.began = time.Now()
	t.out.beats = []beat{{at: t.began}}
	next := schedule{kills: kills}
	defer func() { t.out.Missed += len(next.kills) }()
	var asked time.Time
	for {
		t.look(ctx)
		now := time.Now()
		if k, ok := next.due(now, float64(len(t.seen))/float64(max(1, t.expect))); ok {
			if err := t.kill(ctx, k); err != nil {
				return err
			}
		}
		if now.Sub(asked) >= askInterval {
			asked = now
			if ended, failure := t.host.Ended(ctx); ended {
				if failure != nil {
					t.out.Failure = failure.Error()
				}
				t.look(ctx)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			t.out.Failure = fmt.Sprintf("did not end: %v", context.Cause(ctx))
			return nil
		case <-time.After(pollInterval):
		}
	}
}

// schedule is the kills that are still to be dealt.
type schedule struct {
	kills []Kill
	at    time.Time // of the first; zero before its share of the run is reached
}

// due returns the next kill when its moment has come; share is how much of the
// run there is.
func (s *schedule) due(now time.Time, share float64) (Kill, bool) {
	if len(s.kills) == 0 {
		return Kill{}, false
	}
	k := s.kills[0]
	if s.at.IsZero() {
		if share >= k.After {
			s.at = now.Add(k.Delay)
		}
		return k, false
	}
	if now.Before(s.at) {
		return k, false
	}
	s.kills, s.at = s.kills[1:], time.Time{}
	return k, true
}

// look records new objects, and fail points that were reached. A store whose server
// is dead at the moment is read at the next look.
func (t *trial) look(ctx context.Context) {
	for _, m := range t.marks.poll() {
		t.note(Blow{Victim: m.victim, Point: m.point, PID: m.pid, at: m.at})
	}
	infos, err := t.host.Store().List(ctx, t.host.Run().Dir()+"/")
	if err != nil {
		return
	}
	var fresh []string
	for _, info := range infos {
		if !t.seen[info.Key] {
			t.seen[info.Key] = true
			fresh = append(fresh, info.Key)
		}
	}
	if len(fresh) > 0 {
		t.out.beats = append(t.out.beats, beat{time.Now(), fresh})
	}
}

// note adds a blow.
func (t *trial) note(b Blow) {
	b.After, b.At = len(t.seen), seconds(b.at.Sub(t.began))
	t.out.Blows = append(t.out.Blows, b)
}

// kill deals one kill, if a process of the victim's kind is alive.
func (t *trial) kill(ctx context.Context, k Kill) error {
	found := k.Victim.Find(os.Getpid())
	if len(found) == 0 {
		t.out.Missed++
		return nil
	}
	p := found[k.Pick%uint64(len(found))]
	t.look(ctx) // what was there before the kill is no progress
	at := time.Now()
	if err := syscall.Kill(p.PID, syscall.SIGKILL); errors.Is(err, syscall.ESRCH) {
		t.out.Missed++
		return nil
	} else if err != nil {
		return fmt.Errorf("kill %s %d: %w", k.Victim.Name, p.PID, err)
	}
	t.note(Blow{Victim: k.Victim.Name, PID: p.PID, at: at})
	return nil
}

// stop ends the service in the orderly way, and with force when that takes too long.
func (t *trial) stop() {
	t.mu.Lock()
	t.stopping = true
	up := t.up
	t.mu.Unlock()
	if t.broken == nil && up.Process != nil {
		_ = up.Process.Signal(syscall.SIGTERM) // it may have died just now
		force := time.AfterFunc(stopTimeout, func() { _ = up.Process.Kill() })
		defer force.Stop()
	}
	t.keeper.Wait()
}

// orphans lists what is left of the service after its end, and ends it.
func orphans() []string {
	var left []Process
	for deadline := time.Now().Add(orphanTimeout); ; time.Sleep(20 * time.Millisecond) {
		reap()
		if left = Tree(os.Getpid()); len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	var out []string
	for _, p := range left {
		out = append(out, p.String())
		_ = syscall.Kill(p.PID, syscall.SIGKILL) // it may have ended just now
	}
	return out
}

// reap waits for processes that died after their parents: this process has adopted
// them.
func reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}
