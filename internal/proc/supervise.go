package proc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Child is one process to keep alive.
type Child struct {
	Name string
	Path string
	// Args come after the program's name.
	Args []string
	// Env is the whole environment; nil inherits that of the supervisor.
	Env []string
	// LogFile gets stdout and stderr, appended.
	LogFile string
	// After names the children that must be healthy before this one is started for the
	// first time; they come before it in the list. Nil means all of these.
	After []string
	// Ready returns nil when the child can be used. It is polled, one call at a
	// time, until it does so for the first time in the life of a process. It must
	// return when ctx is done; a call gets at most 5 s.
	Ready func(ctx context.Context) error
	// Alive is polled in the same way from then on. It returns an error when the
	// child makes no progress, so that a new start would help. Nil means Ready.
	Alive func(ctx context.Context) error
	// StopTimeout is what lies between SIGTERM and SIGKILL.
	StopTimeout time.Duration
}

// Config is what a Supervisor needs. Zero durations and counts take defaults.
type Config struct {
	// Children start each when those of its After are healthy, and stop one after the
	// other in the reverse order of the list.
	Children []Child
	// StartTimeout is how long a started child may stand still before it is healthy.
	// The time in which it runs, or waits for a processor, does not count, up to
	// maxStartFactor times as much. Default 60 s.
	StartTimeout time.Duration
	// MaxStarts is how often a child may die before it was ever healthy. Default 5.
	MaxStarts int
	// Backoff is the pause before each restart.
	Backoff Backoff
	// PollInterval is the pause between two calls of Ready. Calls of Alive are
	// healthyPolls times as far apart. Default 50 ms.
	PollInterval time.Duration
	// HangTimeout is how long a child that was healthy may fail every call of Alive,
	// at least MinHangChecks of them, before it is killed and started again. Both
	// bounds must be exceeded: on a machine that stood still, the time passes
	// without checks. Default 60 s; negative never kills.
	HangTimeout   time.Duration
	MinHangChecks int // default 10
	// Log gets a line for every change of state.
	Log *slog.Logger
}

const (
	defaultStartTimeout = 60 * time.Second
	defaultStopTimeout  = 10 * time.Second
	defaultMaxStarts    = 5
	defaultPollInterval = 50 * time.Millisecond
	defaultHangTimeout  = time.Minute
	defaultHangChecks   = 10
	// healthyPolls is how many times slower a healthy child is polled.
	healthyPolls = 20
	// maxStartFactor bounds the start of a child that is busy without an end.
	maxStartFactor = 10
	checkTimeout   = 5 * time.Second
)

// State is what a child is doing.
type State string

// States of a child.
const (
	StateWaiting   State = "waiting"   // not started yet
	StateStarting  State = "starting"  // runs, not healthy yet
	StateHealthy   State = "healthy"   // runs and answers
	StateUnhealthy State = "unhealthy" // runs, was healthy, does not answer
	StateBackoff   State = "backoff"   // died, starts again soon
	StateStopping  State = "stopping"  // was asked to end
	StateStopped   State = "stopped"   // ended on request
	StateFailed    State = "failed"    // given up during start-up
)

// ChildState is one line of a status screen.
type ChildState struct {
	Name     string
	PID      int // 0 when no process runs
	State    State
	Restarts int
	Since    time.Time // of State
	LastExit string    // how the process before this one ended; empty when there was none
}

// Supervisor keeps the children of one Config alive. Create it with New, then
// call Start once and Stop at least once.
type Supervisor struct {
	conf    Config
	runners []*childRunner
	started bool
	spawner *spawner
	hurry   chan struct{} // closed when waiting for StopTimeout is over

	stopOnce sync.Once
	stopErr  error
}

// New checks the configuration and starts nothing.
func New(conf Config) (*Supervisor, error) {
	conf = conf.withDefaults()
	s := &Supervisor{conf: conf, spawner: newSpawner(), hurry: make(chan struct{})}
	seen := map[string]bool{}
	for _, c := range conf.Children {
		unknown := slices.IndexFunc(c.After, func(name string) bool { return !seen[name] })
		switch {
		case unknown >= 0:
			return nil, fmt.Errorf("child %s: %s is not before it in the list", c.Name, c.After[unknown])
		case c.Name == "" || seen[c.Name]:
			return nil, fmt.Errorf("child %q: names must be unique and not empty", c.Name)
		case c.Path == "" || c.LogFile == "":
			return nil, fmt.Errorf("child %s: path and log file must be set", c.Name)
		case c.Ready == nil:
			return nil, fmt.Errorf("child %s: no readiness check", c.Name)
		}
		seen[c.Name] = true
		if c.StopTimeout == 0 {
			c.StopTimeout = defaultStopTimeout
		}
		if c.Alive == nil {
			c.Alive = c.Ready
		}
		s.runners = append(s.runners, newChildRunner(c, &s.conf, s.spawner, s.hurry))
	}
	return s, nil
}

func (c Config) withDefaults() Config {
	if c.StartTimeout == 0 {
		c.StartTimeout = defaultStartTimeout
	}
	if c.MaxStarts == 0 {
		c.MaxStarts = defaultMaxStarts
	}
	if c.PollInterval == 0 {
		c.PollInterval = defaultPollInterval
	}
	if c.HangTimeout == 0 {
		c.HangTimeout = defaultHangTimeout
	}
	if c.MinHangChecks == 0 {
		c.MinHangChecks = defaultHangChecks
	}
	c.Backoff = c.Backoff.withDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Start returns when all children are healthy. When one cannot be brought up,
// or ctx ends first, it stops those that run and says why. Once it has returned,
// ctx no longer matters: children are kept alive until Stop.
func (s *Supervisor) Start(ctx context.Context) error {
	s.started = true
	s.spawner.open()
	all, starting := errgroup.WithContext(ctx)
	for i, t := range s.runners {
		before := s.runners[:i]
		if t.child.After != nil {
			before = slices.DeleteFunc(slices.Clone(before), func(b *childRunner) bool { return !slices.Contains(t.child.After, b.child.Name) })
		}
		all.Go(func() error { return t.bringUp(starting, before) })
	}
	err := all.Wait()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil { // the cause, not an error that follows from it
		err = fmt.Errorf("start of the services: %w", context.Cause(ctx))
	}
	return errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
}

// Stop ends the children in reverse order, each by SIGTERM and, after its
// StopTimeout or when ctx is done, by SIGKILL. It returns when no process is
// left, with an error that names the children that had to be killed. Call it
// when Start has returned; further calls return the same.
func (s *Supervisor) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		if !s.started {
			return
		}
		end := context.AfterFunc(ctx, func() { close(s.hurry) })
		defer end()
		var errs []error
		for i := len(s.runners) - 1; i >= 0; i-- {
			errs = append(errs, s.runners[i].stop())
		}
		s.spawner.close()
		s.stopErr = errors.Join(errs...)
	})
	return s.stopErr
}

// Snapshot is the state of every child, in start order.
func (s *Supervisor) Snapshot() []ChildState {
	states := make([]ChildState, len(s.runners))
	for i, t := range s.runners {
		states[i] = t.snapshot()
	}
	return states
}
