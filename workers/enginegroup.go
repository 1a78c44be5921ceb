package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"temper/internal/blob"
	"temper/internal/inference/fleet"
	"temper/internal/inference/remote"
	"temper/internal/run"
	"temper/internal/sampling"
)

// remoteEngines makes for each run a group of engines of other processes.
type remoteEngines struct {
	store  blob.Store
	opts   EnginesOptions
	log    *slog.Logger
	counts *memberCounts
}

func newRemoteEngines(store blob.Store, o EnginesOptions, log *slog.Logger) *remoteEngines {
	return &remoteEngines{store: store, opts: o, log: log, counts: &memberCounts{
		byRun: map[string][2]int{}, refusals: map[string]int64{"untrusted": 0, "load": 0},
	}}
}

// make implements sampling.Config.NewEngine.
func (f *remoteEngines) make(r *run.Loaded) (sampling.Engine, error) {
	group, err := fleet.New(fleet.Config{
		MaxContext: r.Config.EngineContext(), Now: time.Now, Log: f.log.With("run_id", r.Ref.RunID),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &remoteRun{Fleet: group, members: newMembers(f.store, r, group, f.opts, f.counts, f.log), stop: cancel}
	e.watching.Go(func() { e.members.watch(ctx) })
	return e, nil
}

// remoteRun is the engine of a run whose members are looked for while it is open.
type remoteRun struct {
	*fleet.Fleet
	members  *members
	stop     context.CancelFunc
	watching sync.WaitGroup
}

const (
	// memberPatience is how long a load waits for the first engine. The step is tried
	// again after that, so that the run says what it waits for.
	memberPatience = 30 * time.Second
	memberPause    = 50 * time.Millisecond
)

// Load implements policy.Loader.
func (e *remoteRun) Load(ctx context.Context, ref blob.Ref, version int64) error {
	for waited := time.Duration(0); e.members.counts.joined(e.members.run) == 0; waited += memberPause {
		if waited >= memberPatience {
			return fmt.Errorf("no engine of run %s has answered for %s: start temper role engine --run %s", e.members.run, memberPatience, e.members.run)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(memberPause):
		}
	}
	return e.Fleet.Load(ctx, ref, version)
}

// Close implements sampling.Engine. The engines go on: others may use them.
func (e *remoteRun) Close() {
	e.stop()
	e.watching.Wait()
	e.members.counts.forget(e.members.run)
	e.Fleet.Close()
}

// countedLoads counts the policies that an engine could not load.
type countedLoads struct {
	*remote.Engine
	counts *memberCounts
}

// Load implements policy.Loader.
func (c countedLoads) Load(ctx context.Context, ref blob.Ref, version int64) error {
	err := c.Engine.Load(ctx, ref, version)
	if err != nil && ctx.Err() == nil && !errors.Is(err, remote.ErrGarbage) {
		c.counts.refuse("load")
	}
	return err
}

// memberCounts are the figures of the engines of other processes.
type memberCounts struct {
	mu       sync.Mutex
	byRun    map[string][2]int // joined and refused
	refusals map[string]int64
}

func (c *memberCounts) set(run string, joined, refused int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byRun[run] = [2]int{joined, refused}
}

func (c *memberCounts) forget(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byRun, run)
}

func (c *memberCounts) joined(run string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byRun[run][0]
}

func (c *memberCounts) refuse(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusals[reason]++
}

var (
	memberEngines  = prometheus.NewDesc("rl_member_engines", "Engines of other processes by state: in use, or left out.", []string{"state"}, nil)
	memberRefusals = prometheus.NewDesc("rl_member_refusals_total", "Answers for which an engine of another process was left out, and policies that one could not load.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (c *memberCounts) Describe(to chan<- *prometheus.Desc) {
	to <- memberEngines
	to <- memberRefusals
}

// Collect implements prometheus.Collector.
func (c *memberCounts) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var joined, refused int
	for _, n := range c.byRun {
		joined, refused = joined+n[0], refused+n[1]
	}
	to <- prometheus.MustNewConstMetric(memberEngines, prometheus.GaugeValue, float64(joined), "joined")
	to <- prometheus.MustNewConstMetric(memberEngines, prometheus.GaugeValue, float64(refused), "left_out")
	for reason, n := range c.refusals {
		to <- prometheus.MustNewConstMetric(memberRefusals, prometheus.CounterValue, float64(n), reason)
	}
}
