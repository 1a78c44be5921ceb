package recoverybench

import (
	"context"
	"fmt"
	"math"
)

// Plan says what to compare.
type Plan struct {
	// Steps of each run.
	Steps int
	// Rates are the mean numbers of interruptions of a trajectory of mean length.
	Rates []float64
	// Repeats is how often each run is made, with draws of its own.
	Repeats int
	// Train makes the updates, too; without it all steps are sampled by the policy
	// after SFT, so that lengths differ by the recovery alone.
	Train bool
	// Log says what is being made.
	Log func(string)
}

// Result is what one recovery has made of the run, all repeats together.
type Result struct {
	Recovery     Recovery `json:"recovery"`
	Rate         float64  `json:"rate"`
	Trajectories int      `json:"trajectories"`
	// Interrupted is interruptions for each trajectory that was kept in the end.
	Interrupted float64 `json:"interrupted"`
	// Reward is the mean of all trajectories, LastReward of the last quarter of the steps.
	Reward     float64 `json:"reward"`
	LastReward float64 `json:"last_reward"`
	MeanTokens float64 `json:"mean_tokens"`
	// Bias is the mean length less that of the undisturbed run, as a share of it, and
	// BiasError the standard error of that.
	Bias      float64 `json:"bias"`
	BiasError float64 `json:"bias_error"`
	Median    int     `json:"median_tokens"`
	P90       int     `json:"p90_tokens"`
	P99       int     `json:"p99_tokens"`
	Longest   int     `json:"longest_tokens"`
	// LostTokens are the sampled tokens thrown away, for each that was kept.
	LostTokens float64 `json:"lost_tokens"`
	// Equal is true when every trajectory and every policy equals the undisturbed run's.
	Equal bool `json:"equal"`

	lengths  []int
	variance float64
	prints   []string // what identifies each repeat
}

// Compare carries out the run undisturbed, and with each recovery at each rate.
func Compare(ctx context.Context, c Config, p Plan) ([]Result, error) {
	s := newService(c)
	defer s.close()
	p.Log("base run: supervised updates")
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	undisturbed, err := s.repeat(ctx, p, Undisturbed, 0, 0)
	if err != nil {
		return nil, err
	}
	out := []Result{undisturbed}
	for _, rate := range p.Rates {
		chance := 1 - math.Exp(-rate/undisturbed.MeanTokens)
		for _, how := range []Recovery{SameDraws, FreshRollouts, FreshGroups} {
			r, err := s.repeat(ctx, p, how, rate, chance)
			if err != nil {
				return out, err
			}
			r.compareWith(undisturbed)
			out = append(out, r)
		}
	}
	return out, nil
}

// repeat makes all repeats of a run.
func (s *service) repeat(ctx context.Context, p Plan, how Recovery, rate, chance float64) (Result, error) {
	var all, last tally
	var prints []string
	for n := range p.Repeats {
		p.Log(fmt.Sprintf("%s at %g interruptions, run %d of %d", how, rate, n+1, p.Repeats))
		s.salts.reset(uint64(n))
		id := fmt.Sprintf("%s-%g-%d", compact(how), rate, n)
		b, err := s.branch(ctx, id)
		if err != nil {
			return Result{}, err
		}
		print, err := b.play(ctx, p, how, hazard{seed: b.seed + uint64(n), chance: chance}, &all, &last)
		if err != nil {
			return Result{}, err
		}
		prints = append(prints, print)
	}
	r := all.result()
	r.Recovery, r.Rate, r.LastReward, r.prints = how, rate, last.result().Reward, prints
	return r, nil
}

// compareWith fills in what is relative to the undisturbed run.
func (r *Result) compareWith(base Result) {
	r.Bias = r.MeanTokens/base.MeanTokens - 1
	r.BiasError = math.Sqrt(r.variance/float64(r.Trajectories)+base.variance/float64(base.Trajectories)) / base.MeanTokens
	r.Equal = len(r.prints) == len(base.prints)
	for i := range r.prints {
		r.Equal = r.Equal && r.prints[i] == base.prints[i]
	}
}
