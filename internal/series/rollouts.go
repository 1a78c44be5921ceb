package series

import (
	"cmp"
	"slices"

	"temper/internal/rl"
)

// Rollouts are the rollout numbers of a step that a person watches. They are
// stored with the batch, so that their names in JSON stay.
type Rollouts struct {
	RewardMean         float64 `json:"reward_mean"`
	ToolErrorRate      float64 `json:"tool_error_rate"`      // over all calls of all trajectories
	CorrectErrorRate   float64 `json:"correct_error_rate"`   // over the calls of correct trajectories, sampled
	KeptErrorRate      float64 `json:"kept_error_rate"`      // the same after resampling
	MeanResponseTokens float64 `json:"mean_response_tokens"` //
	MeanTurns          float64 `json:"mean_turns"`
	MeanCalls          float64 `json:"mean_calls"`
	ClipRatio          float64 `json:"clip_ratio"` // share of trajectories that hit the token limit
	Groups             int     `json:"groups"`
	GroupsAllCorrect   int     `json:"groups_all_correct"`
	GroupsAllWrong     int     `json:"groups_all_wrong"`
	Trajectories       int     `json:"trajectories"`
	Kept               int     `json:"kept"`
	InfraErrors        int     `json:"infra_errors"`
	PErrMean           float64 `json:"p_err_mean"`    // over correct trajectories
	PFormatMean        float64 `json:"p_format_mean"` // over correct trajectories
	// Released are the counts of the released code.
	Released Released `json:"released,omitzero"`
	// Spread is how far apart the trajectories are.
	Spread SpreadSummary `json:"spread,omitzero"`
	// GroupsTooSmall are those that rl.roc.mode released has dropped for their size.
	GroupsTooSmall int `json:"groups_too_small,omitempty"`
	// Partial are the trajectories that several policies sampled, and Versions what each has
	// sampled, where rl.partial_rollout_tokens is set.
	Partial  int             `json:"partial,omitempty"`
	Versions []VersionTokens `json:"versions,omitempty"`
}

// VersionTokens is how many tokens a policy version has sampled.
type VersionTokens struct {
	Version int64 `json:"version"`
	Tokens  int   `json:"tokens"`
}

// AddTokens counts tokens of a version. The list stays in the order of versions.
func AddTokens(list []VersionTokens, version int64, tokens int) []VersionTokens {
	i, found := slices.BinarySearchFunc(list, version, func(v VersionTokens, want int64) int { return cmp.Compare(v.Version, want) })
	if !found {
		list = slices.Insert(list, i, VersionTokens{Version: version})
	}
	list[i].Tokens += tokens
	return list
}

// Tally sums up trajectories.
type Tally struct {
	Num     int     `json:"num"`
	Calls   int     `json:"calls"`
	Failed  int     `json:"failed"` // calls
	Tokens  int     `json:"tokens"` // of responses
	Turns   int     `json:"turns"`
	Clipped int     `json:"clipped"` // at the limit of tokens
	Reward  float64 `json:"reward"`
}

// Add counts a trajectory.
func (c *Tally) Add(t *rl.Trajectory) {
	calls, failed := t.ToolCounts()
	c.Num++
	c.Calls += calls
	c.Failed += failed
	c.Tokens += t.ResponseTokens()
	c.Turns += len(t.Turns)
	c.Reward += t.Reward
	if t.StopReason == rl.StopMaxTokens {
		c.Clipped++
	}
}

// Merge counts what another tally has counted.
func (c *Tally) Merge(o Tally) {
	c.Num += o.Num
	c.Calls += o.Calls
	c.Failed += o.Failed
	c.Tokens += o.Tokens
	c.Turns += o.Turns
	c.Clipped += o.Clipped
	c.Reward += o.Reward
}

// Mean is a sum by the number of trajectories, 0 where there is none.
func (c *Tally) Mean(sum float64) float64 {
	if c.Num == 0 {
		return 0
	}
	return sum / float64(c.Num)
}

// ToolErrorRate is the share of the tool calls that failed.
func (c *Tally) ToolErrorRate() float64 { return rl.ToolErrorRate(c.Calls, c.Failed) }
