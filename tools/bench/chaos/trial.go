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
	// Ended says whether the run has ended, and the error with which it failed.
	// While it cannot be told, ended is false.
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
	// orphanTimeout is what the kernel may take to reap what was killed.
	orphanTimeout = 10 * time.Second
)

// Blow is a kill that was dealt.
type Blow struct {
	Victim string `json:"victim"`
	// Point is the fail point at which the process ended itself; "" for a kill from outside.
	Point string `json:"point,omitempty"`
	PID   int    `json:"pid,omitempty"`
	// After is how many objects of the run had been seen.
	After int `json:"after_objects"`
	// At counts from the start of the run.
	At Seconds `json:"at_s"`
	// Progress is the time to the next object of the run that is new in the store.
	Progress Seconds `json:"progress_s"`
	// Stall is the longest time without one between this kill and the next: what
	// was under way elsewhere may still come after a kill, and then nothing.
	Stall Seconds `json:"stall_s"`
	// Extra is the longest part of a time without a new object that the undisturbed
	// run did not wait for the same object.
	Extra Seconds `json:"extra_s"`

	at    time.Time
	waits []wait // between this kill and the next
}

// beat is a moment at which there was something new.
type beat struct {
	at   time.Time
	keys []string
}

// wait is a time without a new object, and what ended it.
type wait struct {
	took Seconds
	keys []string
}

// Seconds is a duration in JSON.
type Seconds float64

func seconds(d time.Duration) Seconds { return Seconds(d.Seconds()) }

// Outcome is what one run went through.
type Outcome struct {
	Blows []Blow `json:"blows"`
	// Missed counts kills whose moment or victim did not come.
	Missed  int      `json:"missed,omitempty"`
	Wall    Seconds  `json:"wall_s"`
	Objects int      `json:"objects"`
	Orphans []string `json:"orphans,omitempty"`
	// Failure is why the run did not end well; "" when it did.
	Failure string `json:"failure,omitempty"`

	beats []beat // the first is the start of the run
}

// Beside compares the waits after kills with those of the undisturbed run.
func (o *Outcome) Beside(calm *Outcome) {
	usual := map[string]Seconds{}
	for i := 1; i < len(calm.beats); i++ {
		for _, key := range calm.beats[i].keys {
			usual[key] = seconds(calm.beats[i].at.Sub(calm.beats[i-1].at))
		}
	}
	for i := range o.Blows {
		b := &o.Blows[i]
		for _, w := range b.waits {
			var anyway Seconds
			for _, key := range w.keys {
				anyway = max(anyway, usual[key])
			}
			b.Extra = max(b.Extra, w.took-anyway)
		}
	}
}

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
	err := t.run(ctx, kills)
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

func (t *trial) run(ctx context.Context, kills []Kill) error {
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

// look takes note of new objects and of fail points that were reached. A store
// whose server is dead just now is looked at again.
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

// measure fills in what follows from when there was something new. Both are in
// the order of time.
func measure(blows []Blow, beats []beat) {
	for i := range blows {
		last, end := blows[i].at, time.Time{}
		if i+1 < len(blows) {
			end = blows[i+1].at
		}
		for _, b := range beats {
			at := b.at
			if !at.After(blows[i].at) {
				continue
			}
			blows[i].waits = append(blows[i].waits, wait{seconds(at.Sub(last)), b.keys})
			if last == blows[i].at {
				blows[i].Progress = seconds(at.Sub(last))
			}
			blows[i].Stall = max(blows[i].Stall, seconds(at.Sub(last)))
			if last = at; !end.IsZero() && at.After(end) {
				break
			}
		}
	}
}

// kill deals one kill, when somebody of the kind lives.
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

// reap collects what died after its parent: this process is its heir.
func reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}
