// Package bench measures executors: a closed-loop load generator, and the
// comparison of warm interpreters with a fresh isolated interpreter per call. It
// owns the figures and how they are taken; printing them belongs to the caller.
//
// Invariant: a figure counts calls that were answered with StatusOK; any other
// answer is counted as failed and never improves a figure.
package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"temper/sandbox"
)

// Load is what a generator asks for: Calls executions of Request, of which
// Concurrency are always in flight.
type Load struct {
	Concurrency int
	Calls       int
	Request     sandbox.Request
}

// Figures are what a load saw.
type Figures struct {
	Calls     int           `json:"calls"`
	Failed    int           `json:"failed"`
	Failure   string        `json:"failure,omitempty"` // the first one
	Elapsed   time.Duration `json:"elapsed_ns"`
	PerSecond float64       `json:"per_second"`
	Mean      time.Duration `json:"mean_ns"` // from call to answer, with the queue
	P50       time.Duration `json:"p50_ns"`
	P90       time.Duration `json:"p90_ns"`
	P99       time.Duration `json:"p99_ns"`
	Max       time.Duration `json:"max_ns"`
	Service   time.Duration `json:"service_ns"` // mean wall time of the child alone
	// CPU is the processor time of the whole service divided by the calls, which a
	// busy machine does not inflate; zero when the executor is in another process.
	CPU time.Duration `json:"cpu_ns"`
}

// Run puts load on exec. The error is ctx.Err(); failed calls are figures.
func Run(ctx context.Context, exec sandbox.Executor, load Load) (Figures, error) {
	if load.Concurrency < 1 || load.Calls < 1 {
		return Figures{}, fmt.Errorf("load of %d calls by %d callers: both must be at least 1", load.Calls, load.Concurrency)
	}
	took := make([]time.Duration, load.Calls)
	g := generator{exec: exec, load: load, took: took}
	start := time.Now()
	var callers sync.WaitGroup
	for range load.Concurrency {
		callers.Go(func() { g.loop(ctx) })
	}
	callers.Wait()
	if err := ctx.Err(); err != nil {
		return Figures{}, err
	}
	return g.figures(time.Since(start)), nil
}

// generator is one running load.
type generator struct {
	exec sandbox.Executor
	load Load
	took []time.Duration // by call; negative when it failed
	next atomic.Int64

	mu      sync.Mutex
	service time.Duration
	failure string
}

func (g *generator) loop(ctx context.Context) {
	for {
		i := g.next.Add(1) - 1
		if i >= int64(len(g.took)) || ctx.Err() != nil {
			return
		}
		req := g.load.Request
		if req.ID != "" {
			req.ID = fmt.Sprintf("%s-%d", req.ID, i)
		}
		start := time.Now()
		res, err := g.exec.Execute(ctx, req)
		g.took[i] = time.Since(start)
		g.mu.Lock()
		if err == nil && res.Status == sandbox.StatusOK {
			g.service += res.Usage.Wall
		} else {
			g.took[i] = -1
			if g.failure == "" {
				g.failure = fmt.Sprintf("status %q %s %v", res.Status, res.Reason, err)
			}
		}
		g.mu.Unlock()
	}
}

func (g *generator) figures(elapsed time.Duration) Figures {
	good := slices.DeleteFunc(slices.Clone(g.took), func(d time.Duration) bool { return d < 0 })
	f := Figures{Calls: len(g.took), Failed: len(g.took) - len(good), Failure: g.failure, Elapsed: elapsed}
	if len(good) == 0 {
		return f
	}
	slices.Sort(good)
	var sum time.Duration
	for _, d := range good {
		sum += d
	}
	n := len(good)
	rank := func(q float64) time.Duration { return good[max(0, int(math.Ceil(q*float64(n)))-1)] }
	f.Mean, f.Service = sum/time.Duration(n), g.service/time.Duration(n)
	f.P50, f.P90, f.P99, f.Max = rank(.5), rank(.9), rank(.99), good[n-1]
	f.PerSecond = float64(n) / elapsed.Seconds()
	return f
}

// ownCPU returns the processor time of this process.
func ownCPU() time.Duration {
	var use syscall.Rusage
	// Cannot fail for RUSAGE_SELF and a valid pointer.
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
