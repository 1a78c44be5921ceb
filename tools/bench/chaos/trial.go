package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// Host is one service in a place of its own, and one run in it.
type Host interface {
	// Members are the processes of the service that the harness starts.
	Members() []Member
	// Submit starts the run; the service may need some more time to be there.
	Submit(ctx context.Context) error
	// Ended says whether the run has ended, and the error with which it failed. It
	// is false as long as the service does not answer.
	Ended(ctx context.Context) (ended bool, failure error)
	// Samplers counts the processes that sampled for the run; 0 when the service does
	// not answer.
	Samplers(ctx context.Context) int
	// Store is where the run keeps its objects.
	Store() blob.Store
	// Run is the run's place in the store.
	Run() artifact.Layout
	// FailPoints is the folder in which fail points leave their marks, "" for none.
	FailPoints() string
}

// Times of a trial. They only decide how often to look and when to give up.
const (
	pollInterval = 10 * time.Millisecond
	askInterval  = 500 * time.Millisecond
	// huntTimeout is how long the successor of a killed process may take to appear.
	huntTimeout = 20 * time.Second
	// orphanTimeout is how long the kernel may take to reap what was killed.
	orphanTimeout = 10 * time.Second
)

// Plan is what happens during a trial.
type Plan struct {
	Kills []Kill
	Moves []Move
	// Expect is the number of objects of an undisturbed run, 0 without kills and moves.
	Expect int
}

// trial is one run under way.
type trial struct {
	host   Host
	expect int
	fleet  *fleet
	marks  *marks
	began  time.Time
	seen   map[string]bool
	gone   map[string]bool // members that left for good
	out    Outcome
	later  []timed
	hunts  []*hunt
}

// timed is something to do at a moment.
type timed struct {
	at time.Time
	do func(context.Context) error
}

// Try carries out a run while it deals the kills and makes the moves. The service is
// gone when Try returns. The error is the harness's own; what became of the run is in
// the outcome.
func Try(ctx context.Context, host Host, plan Plan) (Outcome, error) {
	t := &trial{host: host, expect: plan.Expect, seen: map[string]bool{}, gone: map[string]bool{}, marks: newMarks(host.FailPoints())}
	t.fleet = launch(host.Members())
	err := t.submitAndKill(ctx, plan)
	t.out.Wall = seconds(time.Since(t.began))
	t.out.Objects = len(t.seen)
	slices.SortStableFunc(t.out.Blows, func(a, b Blow) int { return a.at.Compare(b.at) })
	measure(t.out.Blows, t.out.beats)
	t.fleet.stop()
	t.out.Orphans = orphans()
	return t.out, errors.Join(err, t.fleet.broken())
}

func (t *trial) submitAndKill(ctx context.Context, plan Plan) error {
	t.began = time.Now()
	if err := t.host.Submit(ctx); err != nil {
		return fmt.Errorf("submit the run: %w", err)
	}
	t.began = time.Now()
	t.out.beats = []beat{{at: t.began}}
	kills, moves := script{cues: t.killCues(plan.Kills)}, script{cues: t.moveCues(plan.Moves)}
	defer func() { t.out.Missed += len(kills.cues) + len(moves.cues) + len(t.hunts) }()
	var asked time.Time
	for {
		t.look(ctx)
		now := time.Now()
		if err := t.act(ctx, now, &kills, &moves); err != nil {
			return err
		}
		if now.Sub(asked) >= askInterval {
			asked = now
			if ended, failure := t.host.Ended(ctx); ended {
				if failure != nil {
					t.out.Failure = failure.Error()
				}
				t.look(ctx)
				t.out.Samplers = t.host.Samplers(ctx)
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

// act does what is due.
func (t *trial) act(ctx context.Context, now time.Time, scripts ...*script) error {
	share := float64(len(t.seen)) / float64(max(1, t.expect))
	for _, s := range scripts {
		if c, ok := s.due(now, share); ok {
			if err := c.do(ctx); err != nil {
				return err
			}
		}
	}
	due := t.later
	t.later = nil
	for _, d := range due {
		if now.Before(d.at) {
			t.later = append(t.later, d)
			continue
		}
		if err := d.do(ctx); err != nil {
			return err
		}
	}
	t.hunts = slices.DeleteFunc(t.hunts, func(h *hunt) bool { return t.follow(h, now) })
	return nil
}

// after does something when a pause has passed.
func (t *trial) after(pause time.Duration, do func(context.Context) error) {
	t.later = append(t.later, timed{time.Now().Add(pause), do})
}

// cue is something that is due at a share of the run.
type cue struct {
	after float64
	delay time.Duration
	do    func(context.Context) error
}

// script is the cues that are still to come, in order.
type script struct {
	cues []cue
	at   time.Time // of the first; zero before its share of the run is reached
}

// due returns the next cue when its moment has come; share is how much of the run
// there is.
func (s *script) due(now time.Time, share float64) (cue, bool) {
	if len(s.cues) == 0 {
		return cue{}, false
	}
	c := s.cues[0]
	if s.at.IsZero() {
		if share >= c.after {
			s.at = now.Add(c.delay)
		}
		return c, false
	}
	if now.Before(s.at) {
		return c, false
	}
	s.cues, s.at = s.cues[1:], time.Time{}
	return c, true
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

// strike kills a process with SIGKILL and notes it. What was there before the kill is
// no progress.
func (t *trial) strike(ctx context.Context, victim string, pid int, life Life) error {
	t.look(ctx)
	at := time.Now()
	switch err := syscall.Kill(pid, syscall.SIGKILL); {
	case errors.Is(err, syscall.ESRCH):
		t.out.Missed++
		return nil
	case err != nil:
		return fmt.Errorf("kill %s %d: %w", victim, pid, err)
	}
	t.note(Blow{Victim: victim, Life: life, PID: pid, at: at})
	return nil
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
