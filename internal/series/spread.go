package series

import (
	"slices"

	"temper/internal/rl"
	"temper/sandbox/status"
)

// Spread is how far apart the trajectories of a group, or of a step, are. Those that the
// infrastructure lost are left out.
type Spread struct {
	Responses []int `json:"responses,omitempty"` // tokens of each
	Prompts   Range `json:"prompts"`             // tokens
	Rewards   Range `json:"rewards"`
	Turns     Range `json:"turns"`
	// Advantages covers the trajectories that the trainer got.
	Advantages Range `json:"advantages"`
	// Statuses counts the calls of tools by how they ended.
	Statuses map[status.Status]int `json:"statuses,omitempty"`
}

// Range sums up numbers.
type Range struct {
	Num int     `json:"num"`
	Sum float64 `json:"sum"`
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// Add counts a number.
func (r *Range) Add(x float64) { r.Merge(Range{1, x, x, x}) }

// Merge counts what others have counted.
func (r *Range) Merge(o Range) {
	switch {
	case o.Num == 0:
	case r.Num == 0:
		*r = o
	default:
		*r = Range{r.Num + o.Num, r.Sum + o.Sum, min(r.Min, o.Min), max(r.Max, o.Max)}
	}
}

// Mean is the mean, 0 of nothing.
func (r Range) Mean() float64 { return r.Sum / float64(max(1, r.Num)) }

// Add counts a trajectory.
func (s *Spread) Add(t *rl.Trajectory) {
	s.Responses = append(s.Responses, t.ResponseTokens())
	s.Prompts.Add(float64(t.PromptTokens))
	s.Rewards.Add(t.Reward)
	s.Turns.Add(float64(len(t.Turns)))
	for _, turn := range t.Turns {
		for _, call := range turn.Calls {
			if s.Statuses == nil {
				s.Statuses = map[status.Status]int{}
			}
			s.Statuses[call.Status]++
		}
	}
}

// Merge counts what others have counted.
func (s *Spread) Merge(o Spread) {
	s.Responses = append(s.Responses, o.Responses...)
	s.Prompts.Merge(o.Prompts)
	s.Rewards.Merge(o.Rewards)
	s.Turns.Merge(o.Turns)
	s.Advantages.Merge(o.Advantages)
	if len(o.Statuses) > 0 && s.Statuses == nil {
		s.Statuses = map[status.Status]int{}
	}
	for name, n := range o.Statuses {
		s.Statuses[name] += n
	}
}

// Summary is the spread without the tokens of each trajectory, which becomes four numbers.
func (s *Spread) Summary() SpreadSummary {
	out := SpreadSummary{Prompts: s.Prompts, Rewards: s.Rewards, Turns: s.Turns, Advantages: s.Advantages, Statuses: s.Statuses}
	sorted := slices.Sorted(slices.Values(s.Responses))
	if n := len(sorted); n > 0 {
		out.ResponseMin, out.ResponseMax = sorted[0], sorted[n-1]
		out.ResponseP50, out.ResponseP90 = sorted[(n-1)/2], sorted[(n-1)*9/10]
	}
	return out
}

// SpreadSummary is the spread of a step.
type SpreadSummary struct {
	ResponseMin int                   `json:"response_min"`
	ResponseP50 int                   `json:"response_p50"`
	ResponseP90 int                   `json:"response_p90"`
	ResponseMax int                   `json:"response_max"`
	Prompts     Range                 `json:"prompts"`
	Rewards     Range                 `json:"rewards"`
	Turns       Range                 `json:"turns"`
	Advantages  Range                 `json:"advantages"`
	Statuses    map[status.Status]int `json:"statuses,omitempty"`
}

// share is the share of calls that ended so.
func (s *SpreadSummary) share(name status.Status) float64 {
	all := 0
	for _, n := range s.Statuses {
		all += n
	}
	return Ratio(s.Statuses[name], all)
}

// spreadRows are the series of the spread.
var spreadRows = slices.Concat([]row{
	spreadRow("critic/rewards/max", rewardOne, Neither, "highest reward of a trajectory", func(s *SpreadSummary) float64 { return s.Rewards.Max }),
	spreadRow("critic/rewards/min", rewardOne, Neither, "lowest reward of a trajectory", func(s *SpreadSummary) float64 { return s.Rewards.Min }),
	spreadRow("critic/advantages/mean", Number, Neither, "mean advantage of the trajectories that the trainer got", func(s *SpreadSummary) float64 { return s.Advantages.Mean() }),
	spreadRow("critic/advantages/max", Number, Neither, "highest advantage of a trajectory", func(s *SpreadSummary) float64 { return s.Advantages.Max }),
	spreadRow("critic/advantages/min", Number, Neither, "lowest advantage of a trajectory", func(s *SpreadSummary) float64 { return s.Advantages.Min }),
	spreadRow("response_length/min", Tokens, Neither, "shortest response", func(s *SpreadSummary) float64 { return float64(s.ResponseMin) }),
	spreadRow("response_length/p50", Tokens, Neither, "response that half of all exceed", func(s *SpreadSummary) float64 { return float64(s.ResponseP50) }),
	spreadRow("response_length/p90", Tokens, Neither, "response that a tenth of all exceed", func(s *SpreadSummary) float64 { return float64(s.ResponseP90) }),
	spreadRow("response_length/max", Tokens, Neither, "longest response", func(s *SpreadSummary) float64 { return float64(s.ResponseMax) }),
	spreadRow("prompt_length/mean", Tokens, Neither, "mean prompt of a trajectory", func(s *SpreadSummary) float64 { return s.Prompts.Mean() }),
	spreadRow("prompt_length/min", Tokens, Neither, "shortest prompt", func(s *SpreadSummary) float64 { return s.Prompts.Min }),
	spreadRow("prompt_length/max", Tokens, Neither, "longest prompt", func(s *SpreadSummary) float64 { return s.Prompts.Max }),
	spreadRow("num_turns/min", Number, Neither, "fewest turns of a trajectory", func(s *SpreadSummary) float64 { return s.Turns.Min }),
	spreadRow("num_turns/max", Number, Neither, "most turns of a trajectory", func(s *SpreadSummary) float64 { return s.Turns.Max }),
}, statusRows())

func spreadRow(name, unit string, better Direction, meaning string, of func(*SpreadSummary) float64) row {
	return row{Metric{name, unit, better, meaning}, func(s *Step) (float64, bool) { return of(&s.Rollouts.Spread), true }}
}

// statusRows have a series for each way in which a call can end.
func statusRows() []row {
	var out []row
	for _, name := range []status.Status{
		status.OK, status.Error, status.TimeLimit, status.MemoryLimit, status.OutputLimit, status.Killed, status.Refused, status.Malformed,
	} {
		better := Lower
		if name == status.OK {
			better = Higher
		}
		out = append(out, spreadRow("tool/status/"+string(name), Share, better, "tool calls that ended so", func(s *SpreadSummary) float64 { return s.share(name) }))
	}
	return out
}
