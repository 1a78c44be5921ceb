package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"temper/tools/bench/meter"
)

// Load is what a generator asks for. A closed loop keeps Concurrency calls in
// flight until Calls are answered. An open loop, with a Rate, lets calls arrive
// at random whether or not earlier ones are answered.
type Load struct {
	// Concurrency is the number of calls in flight of a closed loop. In an open
	// loop it bounds them, 0 for no bound; calls beyond it wait, on their own clock.
	Concurrency int
	Calls       int
	// Rate is the mean number of arrivals a second of a Poisson stream, Duration its
	// length and Seed what its gaps are drawn from.
	Rate     float64
	Duration time.Duration
	Seed     uint64
	// Mix gives the program of each call; print(1+1) when nil.
	Mix Mix
	// Prefix begins the ID of each call. No other load should use the same one.
	Prefix string
	// Timeout is how long the generator waits for an answer, with repetitions after
	// refusals; 10 minutes when zero.
	Timeout time.Duration
	// Patience is how long, from its start, a call is repeated that got no outcome: a server
	// answers a repeated ID with the first answer. Zero repeats none.
	Patience time.Duration
	// Progress, when set, is called with the number of calls that have ended.
	Progress func(ended int)
}

// Check reports why the load makes no sense on this target.
func (l Load) Check(target Target) error {
	switch {
	case l.Rate < 0 || l.Rate > 0 && l.Duration <= 0:
		return fmt.Errorf("open loop of %g calls a second for %v: both must be positive", l.Rate, l.Duration)
	case l.Rate > 0 && target.Batch() > 1:
		return errors.New("open loop: wants an interface that takes one call at a time")
	case l.Rate == 0 && (l.Concurrency < 1 || l.Calls < 1):
		return fmt.Errorf("closed loop of %d calls by %d callers: both must be at least 1", l.Calls, l.Concurrency)
	case l.Concurrency < 0:
		return fmt.Errorf("open loop of %d calls in flight: must not be negative", l.Concurrency)
	}
	return nil
}

// Run puts load on target. The error is a load that makes no sense, or ctx.Err();
// failed calls are figures.
func Run(ctx context.Context, target Target, load Load) (Figures, error) {
	if err := load.Check(target); err != nil {
		return Figures{}, err
	}
	if load.Mix == nil {
		load.Mix = Only(Trivial())
	}
	if load.Timeout <= 0 {
		load.Timeout = 10 * time.Minute
	}
	g := &generator{target: target, load: load}
	cpu, start := meter.OwnCPU(), time.Now()
	if load.Rate > 0 {
		g.open(ctx)
	} else {
		g.closed(ctx)
	}
	if err := ctx.Err(); err != nil {
		return Figures{}, err
	}
	f := figures(g.records, time.Since(start))
	if good := f.Calls - f.Failed; good > 0 {
		f.ClientCPU = (meter.OwnCPU() - cpu) / time.Duration(good)
	}
	return f, nil
}

// generator is one running load. Each record belongs to the sender of its call.
type generator struct {
	target  Target
	load    Load
	records []record
	ended   atomic.Int64
}

// closed runs senders that each wait for their exchange before the next.
func (g *generator) closed(ctx context.Context) {
	g.records = make([]record, g.load.Calls)
	senders := (g.load.Concurrency + g.target.Batch() - 1) / g.target.Batch()
	size := (g.load.Concurrency + senders - 1) / senders
	var next atomic.Int64
	var wait sync.WaitGroup
	for range senders {
		wait.Go(func() {
			for ctx.Err() == nil {
				first := int(next.Add(int64(size))) - size
				if first >= g.load.Calls {
					return
				}
				g.exchange(ctx, first, min(size, g.load.Calls-first), time.Now())
			}
		})
	}
	wait.Wait()
}

// open starts each call at its drawn time. A call that starts later, because of the
// bound or of a late wake-up, still counts its time from there: a stalled service
// must not hide the calls that would have come meanwhile.
func (g *generator) open(ctx context.Context) {
	due := arrivals(g.load)
	g.records = make([]record, len(due))
	bound := g.load.Concurrency
	if bound == 0 {
		bound = len(due)
	}
	slots := make(chan struct{}, max(1, bound))
	start := time.Now()
	var wait sync.WaitGroup
	defer wait.Wait()
	for i, offset := range due {
		intended := start.Add(offset)
		timer := time.NewTimer(time.Until(intended))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wait.Go(func() {
			defer func() { <-slots }()
			g.exchange(ctx, i, 1, intended)
		})
	}
}

// arrivals draws the times of a Poisson stream.
func arrivals(load Load) []time.Duration {
	draw := rand.New(rand.NewPCG(load.Seed, 0x5eed))
	var due []time.Duration
	for at := 0.0; ; {
		at += draw.ExpFloat64() / load.Rate
		offset := time.Duration(at * float64(time.Second))
		if offset >= load.Duration {
			return due
		}
		due = append(due, offset)
	}
}

// exchange sends the calls first to first+n-1 and records their outcomes. When the
// service refuses a call for load and says when to come back, the call is sent
// again.
func (g *generator) exchange(ctx context.Context, first, n int, start time.Time) {
	ctx, cancel := context.WithTimeout(ctx, g.load.Timeout)
	defer cancel()
	calls, index := make([]Call, n), make([]int, n)
	for i := range calls {
		index[i] = first + i
		calls[i] = Call{ID: fmt.Sprintf("%s-%d", g.load.Prefix, first+i), Program: g.load.Mix(first + i)}
	}
	for len(calls) > 0 {
		outcomes := g.target.Do(ctx, calls)
		took := time.Since(start)
		var again []Call
		var at []int
		var pause time.Duration
		for i, o := range outcomes {
			r := &g.records[index[i]]
			o.Resent = r.outcome.Resent
			if o.Class == Lost && o.RetryAfter == 0 && took < g.load.Patience {
				o.RetryAfter = advised
			}
			if o.RetryAfter > 0 && ctx.Err() == nil {
				o.Resent++
				again, at, pause = append(again, calls[i]), append(at, index[i]), max(pause, o.RetryAfter)
			} else if g.load.Progress != nil {
				g.load.Progress(int(g.ended.Add(1)))
			}
			*r = record{took, o}
		}
		calls, index = again, at
		if pause > 0 {
			Rest(ctx, pause)
		}
	}
}

// Rest waits for d or for the end of ctx.
func Rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
