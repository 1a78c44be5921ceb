package series

import (
	"maps"
	"math"
	"slices"
	"time"
)

// Durations counts times by size: the bounds of the counts grow by a fourth root of two,
// so that a quantile is right within a fifth.
type Durations struct {
	Counts []int64       `json:"counts,omitempty"`
	Max    time.Duration `json:"max_ns,omitempty"`
}

// shortest is the upper bound of the first count.
const shortest = 100 * time.Microsecond

// Add counts a time.
func (d *Durations) Add(t time.Duration) {
	at := 0
	if t > shortest {
		at = int(math.Ceil(4 * math.Log2(float64(t)/float64(shortest))))
	}
	for len(d.Counts) <= at {
		d.Counts = append(d.Counts, 0)
	}
	d.Counts[at]++
	d.Max = max(d.Max, t)
}

// Merge counts what others have counted.
func (d *Durations) Merge(o Durations) {
	d.Counts = Pool(d.Counts, o.Counts)
	d.Max = max(d.Max, o.Max)
}

// Quantile is a time that a share of all does not exceed, 0 of nothing.
func (d *Durations) Quantile(share float64) time.Duration {
	total, seen := int64(0), int64(0)
	for _, n := range d.Counts {
		total += n
	}
	for i, n := range d.Counts {
		if seen += n; n > 0 && float64(seen) >= share*float64(total) {
			return min(d.Max, time.Duration(float64(shortest)*math.Exp2(float64(i)/4)))
		}
	}
	return d.Max
}

// Gauge is a number that was looked at many times.
type Gauge struct {
	Looks int64   `json:"looks"`
	Sum   float64 `json:"sum"`
	Max   float64 `json:"max"`
}

// Look adds an observation.
func (g *Gauge) Look(x float64) { g.Looks, g.Sum, g.Max = g.Looks+1, g.Sum+x, max(g.Max, x) }

// SamplerUse holds the measurements of a process that only the sampler can make.
type SamplerUse struct {
	// CallWall is the time of the programs of calls, CallQueue their wait for an executor.
	CallWall  Durations `json:"call_wall"`
	CallQueue Durations `json:"call_queue"`
	// Running and Waiting are the requests in the engine, and KVUse the share of its cache
	// that holds something.
	Running Gauge `json:"running"`
	Waiting Gauge `json:"waiting"`
	KVUse   Gauge `json:"kv_use"`
	// Fed counts the context tokens that went through the network, Shared the ones that did
	// not, because other contexts begin alike. Rows counts the rows of all passes with padding,
	// Tokens the sampled tokens, Evictions the sessions that lost their cache to others.
	Fed       int64 `json:"fed"`
	Shared    int64 `json:"shared"`
	Tokens    int64 `json:"tokens"`
	Rows      int64 `json:"rows"`
	Evictions int64 `json:"evictions"`
	// Judging is the time in which trajectories were given their rewards.
	Judging time.Duration `json:"judging_ns"`
	// Loading is the time that the call waited for an engine with the policy.
	Loading time.Duration `json:"loading_ns"`
}

// usageOf sums up the processes of a step. Gauges of engines side by side add up: the mean
// is over all engines together, and the maximum is the sum of the maxima.
func usageOf(parts []Busy) (u SamplerUse, ok bool) {
	loading, judging := map[string]time.Duration{}, map[string]time.Duration{}
	gauges := map[string]SamplerUse{}
	for i := range parts {
		p := parts[i].Usage
		if p == nil {
			continue
		}
		ok = true
		u.CallWall.Merge(p.CallWall)
		u.CallQueue.Merge(p.CallQueue)
		u.Fed, u.Shared, u.Tokens, u.Rows, u.Evictions = u.Fed+p.Fed, u.Shared+p.Shared, u.Tokens+p.Tokens, u.Rows+p.Rows, u.Evictions+p.Evictions
		worker := parts[i].Worker
		loading[worker] = max(loading[worker], p.Loading)
		judging[worker] += p.Judging
		g := gauges[worker]
		g.Running, g.Waiting, g.KVUse = g.Running.joined(p.Running), g.Waiting.joined(p.Waiting), g.KVUse.joined(p.KVUse)
		gauges[worker] = g
	}
	for _, worker := range slices.Sorted(maps.Keys(gauges)) { // sums have the same bits each time
		g := gauges[worker]
		u.Loading, u.Judging = max(u.Loading, loading[worker]), max(u.Judging, judging[worker])
		u.Running, u.Waiting, u.KVUse = u.Running.beside(g.Running), u.Waiting.beside(g.Waiting), u.KVUse.beside(g.KVUse)
	}
	if n := float64(len(gauges)); n > 0 { // a share of all caches, and not a sum of shares
		u.KVUse.Sum, u.KVUse.Max = u.KVUse.Sum/n, u.KVUse.Max/n
	}
	return u, ok
}

// joined are two stretches of one engine, one after another.
func (g Gauge) joined(o Gauge) Gauge {
	return Gauge{g.Looks + o.Looks, g.Sum + o.Sum, max(g.Max, o.Max)}
}

// mean returns 0 without observations.
func (g Gauge) mean() float64 { return g.Sum / float64(max(1, g.Looks)) }

// beside are two engines side by side: of the sum only its mean and its most are known.
func (g Gauge) beside(o Gauge) Gauge { return Gauge{1, g.mean() + o.mean(), g.Max + o.Max} }

// usageRows are the series of usage. A step that no process of ours sampled has none of them.
var usageRows = []row{
	usageRow("tool/wall_s/p50", Seconds, Lower, "what half of the programs of calls took at most", func(u *SamplerUse) float64 { return u.CallWall.Quantile(0.5).Seconds() }),
	usageRow("tool/wall_s/p95", Seconds, Lower, "what 95 % of the programs of calls took at most", func(u *SamplerUse) float64 { return u.CallWall.Quantile(0.95).Seconds() }),
	usageRow("tool/wall_s/max", Seconds, Lower, "longest program of a call", func(u *SamplerUse) float64 { return u.CallWall.Max.Seconds() }),
	usageRow("tool/queue_s/p50", Seconds, Lower, "what half of the calls waited at most for an executor", func(u *SamplerUse) float64 { return u.CallQueue.Quantile(0.5).Seconds() }),
	usageRow("tool/queue_s/p95", Seconds, Lower, "what 95 % of the calls waited at most for an executor", func(u *SamplerUse) float64 { return u.CallQueue.Quantile(0.95).Seconds() }),
	usageRow("tool/queue_s/max", Seconds, Lower, "longest wait of a call for an executor", func(u *SamplerUse) float64 { return u.CallQueue.Max.Seconds() }),
	usageRow("engine/running/mean", Number, Neither, "mean requests that have a place in a pass, of all engines", func(u *SamplerUse) float64 { return u.Running.mean() }),
	usageRow("engine/running/max", Number, Neither, "most such requests", func(u *SamplerUse) float64 { return u.Running.Max }),
	usageRow("engine/waiting/mean", Number, Lower, "mean requests that wait for a place", func(u *SamplerUse) float64 { return u.Waiting.mean() }),
	usageRow("engine/waiting/max", Number, Lower, "most such requests", func(u *SamplerUse) float64 { return u.Waiting.Max }),
	usageRow("engine/kv_use/mean", Share, Neither, "mean share of the caches that holds something", func(u *SamplerUse) float64 { return u.KVUse.mean() }),
	usageRow("engine/kv_use/max", Share, Neither, "largest such share", func(u *SamplerUse) float64 { return u.KVUse.Max }),
	usageRow("engine/fill/mean", Share, Higher, "rows of passes that are no padding", func(u *SamplerUse) float64 { return ratio64(u.Tokens+u.Fed, u.Rows) }),
	usageRow("engine/evictions", Number, Lower, "idle sessions that lost their cache to others", func(u *SamplerUse) float64 { return float64(u.Evictions) }),
	usageRow("engine/prefix_hit_rate", Share, Higher, "context tokens that were not fed because other contexts begin alike", func(u *SamplerUse) float64 { return ratio64(u.Shared, u.Shared+u.Fed) }),
	usageRow("timing_s/reward", Seconds, Lower, "a part of sampling in which trajectories were given their rewards, of the process that took longest", func(u *SamplerUse) float64 { return u.Judging.Seconds() }),
	usageRow("timing_s/load_policy", Seconds, Lower, "what sampling waited for engines with the policy", func(u *SamplerUse) float64 { return u.Loading.Seconds() }),
}

func usageRow(name, unit string, better Direction, meaning string, of func(*SamplerUse) float64) row {
	return row{Metric{name, unit, better, meaning}, func(s *Step) (float64, bool) {
		u, ok := usageOf(s.SamplingBusy)
		return of(&u), ok
	}}
}

func ratio64(a, b int64) float64 { return float64(a) / float64(max(1, b)) }
