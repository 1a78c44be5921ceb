package schedulerbench

import (
	"fmt"
	"math"

	"temper/internal/inference/scheduler"
)

// Contender is one row of the table.
type Contender struct {
	Name        string
	Policy      scheduler.Policy
	Coefficient float64
	Lockstep    bool
	// Continuous samples the next step while the tail of this one runs.
	Continuous bool
}

// Contenders are the policies, from the simplest to the one that knows the lengths.
func Contenders() []Contender {
	return []Contender{
		{Name: "static split, tools in lockstep", Policy: scheduler.StaticSplit, Lockstep: true},
		{Name: "static split", Policy: scheduler.StaticSplit},
		{Name: "least requests", Policy: scheduler.LeastRequests},
		{Name: "worst case, coefficient 1", Policy: scheduler.WorstCase},
		{Name: "worst case, coefficient 0.7", Policy: scheduler.WorstCase, Coefficient: 0.7},
		{Name: expectedName, Policy: scheduler.Expected},
		{Name: oracleName, Policy: scheduler.Oracle},
		{Name: continuousName, Policy: scheduler.Expected, Continuous: true},
	}
}

const (
	expectedName   = "expected need"
	oracleName     = "oracle"
	continuousName = "expected need, staleness 1"
)

// Plan says what to compare.
type Plan struct {
	Hardware   Hardware
	Engines    int
	Seeds      int
	Config     scheduler.Config
	Contenders []Contender
	// Past is how many steps the scheduler has seen before, Ahead how many are sampled
	// one after the other by a continuous contender.
	Past, Ahead int
	// Stored, when not empty, are the rollouts of a stored step, in place of drawn ones.
	Stored []Rollout
	// Log is told what was simulated.
	Log func(string)
}

// Result is a contender in one workload, over all seeds.
type Result struct {
	Workload, Contender string
	// Ratio is the time over the bound: the mean, the least and the most of the seeds.
	Ratio, Least, Most float64
	Seconds            float64
	Bound              Bound
	// Preempted and Recomputed are shares of trajectories and of tokens.
	Preempted, Recomputed float64
	Moves                 float64 // of 1,000 trajectories
	Busy                  float64
}

// draw makes the steps of a seed: those of the past and those to sample.
func (p *Plan) draw(w *Workload, seed uint64, steps int) (past, ahead [][]Rollout) {
	if len(p.Stored) > 0 {
		for range steps {
			ahead = append(ahead, p.Stored)
		}
		return nil, ahead
	}
	for i := range p.Past {
		past = append(past, w.Draw(seed, i, 0))
	}
	for i := range steps {
		ahead = append(ahead, w.Draw(seed, p.Past+i, 0))
	}
	return past, ahead
}

// Compare simulates all contenders in a workload.
func (p *Plan) Compare(w Workload) ([]Result, error) {
	var out []Result
	for _, c := range p.Contenders {
		r := Result{Workload: w.Name, Contender: c.Name, Least: math.Inf(1)}
		for seed := range p.Seeds {
			if err := p.one(&r, &w, c, uint64(seed)+1); err != nil { //nolint:gosec // small
				return nil, fmt.Errorf("%s, %s, seed %d: %w", w.Name, c.Name, seed+1, err)
			}
		}
		n := float64(p.Seeds)
		for _, v := range []*float64{&r.Ratio, &r.Seconds, &r.Preempted, &r.Recomputed, &r.Moves, &r.Busy} {
			*v /= n
		}
		if p.Log != nil {
			p.Log(fmt.Sprintf("%s, %s: %.3f of the bound", w.Name, c.Name, r.Ratio))
		}
		out = append(out, r)
	}
	return out, nil
}

// one adds a seed to a result.
func (p *Plan) one(r *Result, w *Workload, c Contender, seed uint64) error {
	set := Setting{Hardware: p.Hardware, Engines: p.Engines, Config: p.Config, Lockstep: c.Lockstep, Stage: w.Stage}
	set.Config.Policy, set.Config.Coefficient = c.Policy, 1
	if c.Coefficient > 0 {
		set.Config.Coefficient = c.Coefficient
	}
	steps := 1
	if c.Continuous {
		steps, set.Window = p.Ahead, 1
	}
	past, ahead := p.draw(w, seed, steps)
	if c.Policy == scheduler.Expected {
		set.History = past
	}
	o, err := Simulate(set, ahead)
	if err != nil {
		return err
	}
	seconds, bound := o.Seconds, p.Hardware.bound(ahead[0], p.Engines).Seconds()
	if c.Continuous {
		// A step's share of all, with the start of the first and the tail of the last.
		seconds, bound = o.Seconds/float64(steps), 0
		for _, step := range ahead {
			bound += p.Hardware.bound(step, p.Engines).Work() / float64(steps)
		}
	}
	ratio := seconds / bound
	r.Ratio += ratio
	r.Least, r.Most = min(r.Least, ratio), max(r.Most, ratio)
	r.Seconds += seconds
	r.Bound = p.Hardware.bound(ahead[0], p.Engines)
	r.Preempted += float64(o.Preempted) / float64(o.Trajectories)
	r.Recomputed += float64(o.Recomputed) / float64(o.Sampled+o.Prefilled)
	r.Moves += 1000 * float64(o.Moves) / float64(o.Trajectories)
	r.Busy += o.Busy
	return nil
}

// Variant is the cost model with one number changed.
type Variant struct {
	Name     string
	Hardware Hardware
}

// Variants change bandwidth and overhead by 30 % either way.
func Variants(h Hardware) []Variant {
	out := []Variant{{Name: "as given", Hardware: h}}
	for _, by := range []float64{0.7, 1.3} {
		wide, slow := h, h
		wide.Bandwidth *= by
		slow.Overhead *= by
		out = append(out, Variant{fmt.Sprintf("bandwidth x %.1f", by), wide}, Variant{fmt.Sprintf("overhead x %.1f", by), slow})
	}
	return out
}

// CompareAll compares in each workload.
func (p *Plan) CompareAll(workloads []Workload) ([]Result, error) {
	var out []Result
	for _, w := range workloads {
		r, err := p.Compare(w)
		if err != nil {
			return nil, err
		}
		out = append(out, r...)
	}
	return out, nil
}
