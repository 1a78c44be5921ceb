package proc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// childRunner keeps one child alive, in a separate goroutine.
type childRunner struct {
	child   Child
	conf    *Config
	spawner *spawner
	hurry   <-chan struct{}

	cancel  context.CancelFunc
	healthy chan struct{} // closed when the child was healthy for the first time
	done    chan struct{} // closed when the goroutine has ended
	err     error         // why start-up failed; valid after done
	killed  bool          // the child did not stop by itself; valid after done

	mu        sync.Mutex
	state     ChildState
	healthyAt time.Time // of the running process; zero when it was not healthy yet
}

func newChildRunner(c Child, conf *Config, spawner *spawner, hurry <-chan struct{}) *childRunner {
	return &childRunner{
		child: c, conf: conf, spawner: spawner, hurry: hurry,
		healthy: make(chan struct{}), done: make(chan struct{}),
		state: ChildState{Name: c.Name, State: StateWaiting, Since: time.Now()},
	}
}

// start begins to keep the child alive; stop ends that.
func (t *childRunner) start() {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel = cancel
	go t.keepAlive(ctx)
}

// bringUp starts the child when those before it are healthy, and returns when it is
// healthy itself.
func (t *childRunner) bringUp(ctx context.Context, before []*childRunner) error {
	for _, b := range before {
		select {
		case <-b.healthy:
		case <-ctx.Done():
			return nil // another one says why
		}
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // as above
	}
	t.start() //nolint:contextcheck // the child lives until Stop, not until the start-up's context ends
	select {
	case <-t.healthy:
		return nil
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stop returns when the child and its goroutine are gone.
func (t *childRunner) stop() error {
	if t.cancel == nil {
		return nil // never started
	}
	t.cancel()
	<-t.done
	if t.killed {
		return fmt.Errorf("%s did not stop by itself and was killed", t.child.Name)
	}
	return nil
}

func (t *childRunner) snapshot() ChildState {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// set changes the state with whatever else changes at the same moment.
func (t *childRunner) set(state State, also func(*ChildState)) {
	t.mu.Lock()
	before := t.state.State
	if before != state {
		t.state.State, t.state.Since = state, time.Now()
	}
	if also != nil {
		also(&t.state)
	}
	now := t.state
	t.mu.Unlock()
	if before != state {
		t.conf.Log.Info("child changed state", "child", now.Name, "state", now.State,
			"pid", now.PID, "restarts", now.Restarts, "last_exit", now.LastExit)
	}
}

func (t *childRunner) wasHealthy() bool {
	select {
	case <-t.healthy:
		return true
	default:
		return false
	}
}

// childExit describes the end of one process of the child.
type childExit struct {
	reason     string
	healthyFor time.Duration
	hopeless   bool   // trying again cannot help
	log        string // last lines of its log
}

// keepAlive starts one process after the other until ctx ends.
func (t *childRunner) keepAlive(ctx context.Context) {
	defer close(t.done)
	early, inARow := 0, 0
	for {
		d := t.live(ctx)
		if ctx.Err() != nil {
			t.set(StateStopped, func(s *ChildState) { s.PID, s.LastExit = 0, d.reason })
			return
		}
		if !t.wasHealthy() {
			if early++; d.hopeless || early >= t.conf.MaxStarts {
				t.err = t.startError(d, early)
				t.set(StateFailed, func(s *ChildState) { s.PID, s.LastExit = 0, d.reason })
				return
			}
		}
		var wait time.Duration
		inARow, wait = t.conf.Backoff.next(inARow, d.healthyFor)
		t.set(StateBackoff, func(s *ChildState) { s.PID, s.LastExit = 0, d.reason })
		if !pause(ctx, wait) {
			t.set(StateStopped, nil)
			return
		}
		t.set(StateStarting, func(s *ChildState) { s.Restarts++ })
	}
}

func (t *childRunner) startError(d childExit, starts int) error {
	msg := fmt.Sprintf("%s: %s before it was healthy", t.child.Name, d.reason)
	if starts > 1 {
		msg += fmt.Sprintf(" (%d starts)", starts)
	}
	if d.log == "" {
		return fmt.Errorf("%s; %s says nothing", msg, t.child.LogFile)
	}
	return fmt.Errorf("%s; last lines of %s:\n%s", msg, t.child.LogFile, d.log)
}

// live starts the process, watches its health and returns when it is gone.
func (t *childRunner) live(ctx context.Context) childExit {
	p, err := t.spawner.start(t.child)
	if err != nil {
		return childExit{reason: fmt.Sprintf("cannot start: %v", err), hopeless: true}
	}
	t.set(StateStarting, func(s *ChildState) { s.PID = p.pid })
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	late := make(chan error, 1)
	var watcher sync.WaitGroup
	watcher.Go(func() { late <- t.watch(watching, p) })

	d := childExit{}
	select {
	case <-p.exited:
		d.reason = p.status
	case err := <-late:
		d = t.giveUp(ctx, p, err)
	}
	cancel()
	watcher.Wait()
	d.healthyFor = t.healthyFor()
	d.log = tail(t.child.LogFile, p.logAt)
	return d
}

// giveUp ends a process that was asked to stop, that did not become healthy in
// time, or that hangs.
func (t *childRunner) giveUp(ctx context.Context, p *process, late error) childExit {
	if ctx.Err() != nil {
		t.set(StateStopping, nil)
		t.killed = p.stop(t.child.StopTimeout, t.hurry)
		return childExit{reason: p.status}
	}
	var hung *hungError
	if errors.As(late, &hung) { // it could not act on SIGTERM either
		p.signal(unix.SIGKILL)
		<-p.exited
		return childExit{reason: late.Error()}
	}
	p.stop(t.child.StopTimeout, t.hurry)
	return childExit{reason: late.Error(), hopeless: true}
}

// hungError says that a child which was healthy does not answer any more.
type hungError struct {
	since  time.Duration
	checks int
	err    error
}

func (e *hungError) Error() string {
	return fmt.Sprintf("killed: no answer for %v, %d checks (%v)", e.since.Round(time.Second), e.checks, e.err)
}

// silence is the stretch of failed checks that a healthy child is in.
type silence struct {
	began  time.Time
	checks int
}

// fail counts one failed check and returns an error when there were too many.
func (s *silence) fail(conf *Config, err error) error {
	if s.checks == 0 {
		s.began = time.Now()
	}
	s.checks++
	if since := time.Since(s.began); conf.HangTimeout >= 0 && since >= conf.HangTimeout && s.checks >= conf.MinHangChecks {
		return &hungError{since, s.checks, err}
	}
	return nil
}

// watch polls Ready, then Alive, and keeps the state in line with them. It returns
// nil when ctx ends, and an error when the process does not become healthy or
// hangs later on.
func (t *childRunner) watch(ctx context.Context, p *process) error {
	t.setHealthyAt(time.Time{})
	if err := t.awaitReady(ctx, p); err != nil || ctx.Err() != nil {
		return err
	}
	t.setHealthyAt(time.Now())
	t.set(StateHealthy, nil)
	if !t.wasHealthy() {
		close(t.healthy)
	}
	var quiet silence
	for pause(ctx, healthyPolls*t.conf.PollInterval) {
		err := check(ctx, t.child.Alive)
		switch {
		case ctx.Err() != nil || !p.alive():
		case err == nil:
			quiet = silence{}
			t.set(StateHealthy, nil)
		default:
			t.set(StateUnhealthy, nil)
			if hung := quiet.fail(t.conf, err); hung != nil {
				return hung
			}
		}
	}
	return nil
}

// awaitReady returns when the process is ready, or has stood still for too long.
func (t *childRunner) awaitReady(ctx context.Context, p *process) error {
	clock := startClock(p.pid, t.conf.StartTimeout)
	for {
		err := check(ctx, t.child.Ready)
		switch {
		case ctx.Err() != nil:
			return nil
		case !p.alive():
		case err == nil:
			return nil
		case clock.expired():
			return fmt.Errorf("not ready after %v (%w)", clock.elapsed().Round(10*time.Millisecond), err)
		}
		if !pause(ctx, t.conf.PollInterval) {
			return nil
		}
	}
}

// pause reports whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// check bounds one call, so that a hung child is noticed.
func check(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return ask(ctx)
}

func (t *childRunner) setHealthyAt(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.healthyAt = at
}

// healthyFor is how long the process has been up since it was first healthy.
func (t *childRunner) healthyFor() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.healthyAt.IsZero() {
		return 0
	}
	return time.Since(t.healthyAt)
}
