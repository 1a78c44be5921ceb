package sampling

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"temper/internal/inference"
	"temper/internal/rl"
	"temper/internal/series"
	"temper/sandbox"
	"temper/trainer/engine"
)

// Progress is how far a call has come. People look at it, and a watch ends a call
// that does not move. It may be read while the call runs.
type Progress struct {
	groups  atomic.Int64
	trouble *atomic.Pointer[string] // of the service's sandbox
}

// NewProgress makes the progress of one call.
func (r *Service) NewProgress() *Progress { return &Progress{trouble: &r.trouble} }

// String says in one line how far the call is, or what it waits for.
func (p *Progress) String() string {
	if trouble := p.trouble.Load(); trouble != nil {
		return troublePrefix + *trouble
	}
	return fmt.Sprintf("%d groups finished", p.groups.Load())
}

// troublePrefix marks the progress of a call whose sandbox does not answer.
const troublePrefix = "waiting for the sandbox: "

// TroubleIn returns what a call waits for according to its progress, "" when it
// waits for nothing.
func TroubleIn(progress string) string {
	trouble, ok := strings.CutPrefix(progress, troublePrefix)
	if !ok {
		return ""
	}
	return trouble
}

// watchedExecutor remembers why the sandbox cannot be reached. Rollouts wait for more
// than a minute before they give up, and a person wants to know why.
type watchedExecutor struct {
	sandbox.Executor
	trouble *atomic.Pointer[string] // nil when the last call went through
	// programs counts the processor time of what ran, in nanoseconds.
	programs *atomic.Int64
}

// Execute implements sandbox.Executor.
func (w watchedExecutor) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	res, err := w.Executor.Execute(ctx, req)
	switch {
	case err == nil:
		w.programs.Add(int64(res.Usage.CPU))
		w.trouble.Store(nil)
	case errors.Is(err, sandbox.ErrUnavailable):
		text := err.Error()
		w.trouble.Store(&text)
	}
	return res, err
}

// passCounter is an engine that counts its passes by the number of requests that each of
// them served, since its start.
type passCounter interface{ PassesByRows() []int64 }

// passesOf reads the counts of an engine; nil of one that does not count.
func passesOf(e Engine) []int64 {
	if c, ok := e.(passCounter); ok {
		return c.PassesByRows()
	}
	return nil
}

// passesSince are the passes of an engine after those before.
func passesSince(before []int64, e Engine) []int64 {
	now := passesOf(e)
	for i := range min(len(before), len(now)) {
		now[i] -= before[i]
	}
	for len(now) > 0 && now[len(now)-1] == 0 {
		now = now[:len(now)-1]
	}
	return now
}

// busy holds the measurements that only the sampling itself can make.
type busy struct {
	programs int64
	passes   []int64
	usage    series.SamplerUse
}

// with adds the measurements to those of the machine; nil without any.
func (b busy) with(m *series.Busy) []series.Busy {
	if m == nil {
		return nil
	}
	m.Programs, m.Passes, m.Usage = time.Duration(b.programs), b.passes, &b.usage
	return []series.Busy{*m}
}

// Intervals between two polls of a working engine. An engine of this process answers within
// a microsecond, and a step of a small run takes less than a tenth of a second. A poll of
// another engine is a request to its server.
const (
	lookEvery       = 5 * time.Millisecond
	lookEveryRemote = 2 * time.Second
)

// engineMonitor polls an engine while one call uses it.
type engineMonitor struct {
	engine Engine
	before engine.Stats
	usage  series.SamplerUse
	stop   context.CancelFunc
	done   chan struct{}
}

// counter is an engine of this process, which counts what it does.
type counter interface{ Stats() engine.Stats }

// newEngineMonitor starts to poll an engine.
func newEngineMonitor(ctx context.Context, e Engine) *engineMonitor {
	ctx, stop := context.WithCancel(ctx)
	l := &engineMonitor{engine: e, stop: stop, done: make(chan struct{})}
	every := lookEveryRemote
	if c, ok := e.(counter); ok {
		l.before, every = c.Stats(), lookEvery
	}
	r, ok := e.(inference.Reporter)
	if !ok {
		close(l.done)
		return l
	}
	go func() {
		defer close(l.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C: // before it there is nothing to see
				l.readGauges(ctx, r)
			}
		}
	}()
	return l
}

// readGauges reads the gauges of the engine.
func (l *engineMonitor) readGauges(ctx context.Context, r inference.Reporter) {
	s, err := r.Status(ctx)
	if err != nil { // the call itself meets what is wrong
		return
	}
	l.usage.Running.Look(float64(s.Running))
	l.usage.Waiting.Look(float64(s.Waiting))
	l.usage.KVUse.Look(float64(s.Used) / float64(max(1, s.Capacity)))
}

// end returns the measurements. It does not wait for an engine that does not answer.
func (l *engineMonitor) end() series.SamplerUse {
	l.stop()
	<-l.done
	if c, ok := l.engine.(counter); ok {
		now := c.Stats()
		l.usage.Tokens, l.usage.Fed = now.Generated-l.before.Generated, now.Prefilled-l.before.Prefilled
		l.usage.Shared, l.usage.Rows = now.Shared-l.before.Shared, now.Rows-l.before.Rows
		l.usage.Evictions = now.Evictions - l.before.Evictions
	}
	return l.usage
}

// callTimes counts what the programs of calls took, and what they waited for.
type callTimes struct{ wall, queue series.Durations }

// add counts the calls of a trajectory that ran a program.
func (c *callTimes) add(t *rl.Trajectory) {
	for _, turn := range t.Turns {
		for _, call := range turn.Calls {
			if call.Spent.Wall > 0 {
				c.wall.Add(call.Spent.Wall)
				c.queue.Add(call.Spent.Queue)
			}
		}
	}
}
