package run

import (
	"temper/internal/blob"
	"temper/internal/grpo"
	"temper/internal/rl"
)

// GroupRecord is what became of the group of one problem in a step. It is made
// when the group ends and is all that the batch of the step needs to know of it.
type GroupRecord struct {
	ProblemID string    `json:"problem_id"`
	Fate      grpo.Fate `json:"fate"`
	// Samples are what the trainer gets of the group; none for a dropped one.
	Samples    blob.Ref `json:"samples,omitzero"`
	NumSamples int      `json:"num_samples,omitempty"`
	// InfraErrors counts trajectories that the infrastructure lost. All sums up the
	// others, Correct the correct ones among those, KeptCorrect the correct ones
	// that were kept.
	InfraErrors int   `json:"infra_errors,omitempty"`
	All         Tally `json:"all,omitzero"`
	Correct     Tally `json:"correct,omitzero"`
	KeptCorrect Tally `json:"kept_correct,omitzero"`
	// ErrorPenalties and FormatPenalties are p_err and p_format of the correct
	// trajectories, by Rollout (arXiv 2508.20722, equations 5 and 6).
	ErrorPenalties  []float64 `json:"p_err,omitempty"`
	FormatPenalties []float64 `json:"p_format,omitempty"`
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

// StoredBatch is the batch of a step: the groups of its problems, ordered by
// problem. Programs before it stored the samples themselves under the same key;
// such a batch has no groups.
type StoredBatch struct {
	Step   int           `json:"step"`
	Groups []GroupRecord `json:"groups,omitempty"`
	// Samples of a batch of an older program.
	Samples []rl.Sample `json:"samples,omitempty"`
}
