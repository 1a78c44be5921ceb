package schedulerbench

import (
	"fmt"
	"math"

	"temper/internal/rl"
)

// Workload describes the rollouts of a step.
type Workload struct {
	Name  string
	Stage int
	// Problems and Rollouts of each.
	Problems, Rollouts int
	// Prompt, and the tokens that a tool's answer adds.
	Prompt, ToolTokens int
	// Mean is the mean length after the prompt, between Shortest and Limit.
	Mean            float64
	Shortest, Limit int
	// ProblemSigma and RolloutSigma spread the logarithm of lengths between problems
	// and within one.
	ProblemSigma, RolloutSigma float64
	// DriftSigma spreads what an epoch of training changes of a problem's lengths.
	DriftSigma float64
	// Calls is the mean number of tool calls, 0 to MaxCalls; a call takes ToolSeconds.
	Calls       float64
	MaxCalls    int
	ToolSeconds float64
}

// Stages are the first and the third stage of the paper's run: 512 problems of 32
// rollouts, 45,000 calls a step.
func Stages() []Workload {
	w := Workload{
		Problems: 512, Rollouts: 32, Prompt: 500, ToolTokens: 80, Shortest: 1000,
		ProblemSigma: 0.45, RolloutSigma: 0.35, DriftSigma: 0.15, Calls: 2.7, MaxCalls: 10, ToolSeconds: 0.3,
	}
	one, three := w, w
	one.Name, one.Stage, one.Mean, one.Limit = "stage 1", 1, 3000, 8000
	three.Name, three.Stage, three.Mean, three.Limit = "stage 3", 3, 6900, 12000
	return []Workload{one, three}
}

// Rollout is what one trajectory will do: the tokens of each turn, with a tool call
// between two turns.
type Rollout struct {
	ID, Problem string
	Prompt      int
	Limit       int
	Turns       []int
	Tools       []Call
}

// Call is one tool call: how long it takes and the tokens of its answer.
type Call struct {
	Seconds float64
	Tokens  int
}

// Length is the number of tokens after the prompt.
func (r *Rollout) Length() int {
	n := 0
	for _, t := range r.Turns {
		n += t
	}
	for _, c := range r.Tools {
		n += c.Tokens
	}
	return n
}

// Draw makes the rollouts of a step in an epoch. Equal seeds give equal rollouts. In
// another epoch the same problems have other rollouts, by a policy that has changed.
func (w *Workload) Draw(seed uint64, step, epoch int) []Rollout {
	noise := make([]float64, 0, w.Problems*w.Rollouts)
	for p := range w.Problems {
		own := w.ProblemSigma * rl.Rand(rl.Seed(seed, "scheduler/problem", uint64(step), uint64(p))).NormFloat64() //nolint:gosec // not negative
		r := rl.Rand(rl.Seed(seed, "scheduler/rollouts", uint64(step), uint64(p), uint64(epoch)))                  //nolint:gosec // not negative
		own += w.DriftSigma * r.NormFloat64()
		for range w.Rollouts {
			noise = append(noise, own+w.RolloutSigma*r.NormFloat64())
		}
	}
	middle := w.middle(noise)
	out := make([]Rollout, 0, len(noise))
	for i, x := range noise {
		p, k := i/w.Rollouts, i%w.Rollouts
		out = append(out, w.rollout(fmt.Sprintf("s%d/p%d/%d", step, p, k), fmt.Sprintf("s%d/p%d", step, p), w.length(middle, x),
			rl.Seed(seed, "scheduler/calls", uint64(step), uint64(i), uint64(epoch)))) //nolint:gosec // not negative
	}
	return out
}

func (w *Workload) length(middle, x float64) int {
	return int(min(float64(w.Limit), max(float64(w.Shortest), middle*math.Exp(x))))
}

// middle finds the scale at which the clipped lengths have the mean that is asked for.
func (w *Workload) middle(noise []float64) float64 {
	low, high := 1.0, 100*w.Mean
	for range 60 {
		mid := (low + high) / 2
		sum := 0
		for _, x := range noise {
			sum += w.length(mid, x)
		}
		if float64(sum) < w.Mean*float64(len(noise)) {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// rollout cuts a length into turns. Longer ones call more tools.
func (w *Workload) rollout(id, problem string, length int, seed uint64) Rollout {
	r := rl.Rand(seed)
	calls, limit := 0, math.Exp(-w.Calls*float64(length)/w.Mean)
	for p := r.Float64(); p > limit && calls < w.MaxCalls; p *= r.Float64() { // Poisson
		calls++
	}
	out := Rollout{ID: id, Problem: problem, Prompt: w.Prompt, Limit: w.Limit}
	sampled := length - calls*w.ToolTokens
	cuts := make([]float64, calls+1)
	sum := 0.0
	for i := range cuts {
		cuts[i] = 0.2 + r.Float64()
		sum += cuts[i]
	}
	left := sampled
	for i, c := range cuts {
		n := max(1, int(float64(sampled)*c/sum))
		if i == calls {
			n = left
		}
		left -= n
		out.Turns = append(out.Turns, n)
		if i < calls {
			out.Tools = append(out.Tools, Call{Seconds: w.ToolSeconds, Tokens: w.ToolTokens})
		}
	}
	return out
}
