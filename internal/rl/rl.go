// Package rl owns the nouns of agentic reinforcement learning: problems,
// trajectories, groups, batches, the reasons why things stop, and the seeds
// from which every random draw of a run comes. It holds no behaviour beyond
// small pure helpers and imports the standard library and the words of sandbox/status.
//
// Invariant: in a Trajectory, Tokens, LossMask and RolloutLogprobs have equal
// length, and LossMask is true exactly on tokens that the policy sampled.
package rl

import (
	"fmt"
	"strings"
	"time"

	"temper/sandbox/status"
)

// Problem is a prompt with its ground truth.
type Problem struct {
	// ID is the name of the problem, unique in its file and for ever: visible ASCII
	// without '/', at most 200 bytes.
	ID string `json:"id"`
	// Env is the environment that decides whether an answer is right, unless reward.path
	// names a function that does.
	Env string `json:"env"`
	// Level is the difficulty in the environment (chase: number of lookups). It only
	// labels the problem.
	Level int `json:"level,omitempty"`
	// Prompt is the text of the user message.
	Prompt string `json:"prompt"`
	// Answer is the grading key. No program of the policy ever sees it.
	Answer string `json:"answer"`
	// Fixture is Python code that the sandbox runs before each tool call of this
	// problem, or once before the first call of a session. The model never sees it.
	Fixture string `json:"fixture,omitempty"`
	// Source is the data set that the problem comes from.
	Source string `json:"source,omitempty"`
	// License is the licence of the source.
	License string `json:"license,omitempty"`
}

// FinishReason tells why one generation ended.
type FinishReason string

// The reasons of a generation's end.
const (
	FinishStop   FinishReason = "stop"   // a stop token was sampled; it is the last token
	FinishLength FinishReason = "length" // MaxTokens reached
	FinishAbort  FinishReason = "abort"  // the caller took the generation away; what was sampled counts
)

// StopReason tells why a trajectory ended.
type StopReason string

// The reasons of a trajectory's end.
const (
	StopAnswered  StopReason = "answered"   // the last turn made no tool call
	StopMaxTurns  StopReason = "max_turns"  // the turn limit was reached with a call outstanding
	StopMaxTokens StopReason = "max_tokens" // the response token limit was reached
	// StopCut marks a trajectory that a newer policy continues. No group has one.
	StopCut        StopReason = "cut"
	StopInfraError StopReason = "infra_error" // engine or sandbox failed for good; excluded from its group
	// The run's own reward function failed, and reward.on_error is exclude.
	StopRewardError StopReason = "reward_error"
)

// ToolCall is one parsed or malformed call with its answer.
type ToolCall struct {
	// ID is the idempotency key of the call; empty when the call is malformed.
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
	// Arguments are a JSON object as the policy wrote it, without space.
	Arguments string        `json:"arguments,omitempty"`
	Status    status.Status `json:"status"`
	Response  string        `json:"response"` // text shown to the policy, after truncation
	// Spent is the time of the call; not part of the run's bits.
	Spent CallTime `json:"-"`
}

// CallTime is the time of a call. Queue to Stderr are 0 if no program ran.
type CallTime struct {
	// Begin is when the call began, since the trajectory did, and Took how long the
	// trajectory waited for its answer.
	Begin, Took time.Duration
	// Queue, Wall, CPU and PeakMemory are as measured by the sandbox: the wait for an
	// executor, and what the program took.
	Queue, Wall, CPU         time.Duration
	PeakMemory               int64 // bytes
	StdoutBytes, StderrBytes int
	// Stdout and Stderr are the output of the program, if the run keeps it.
	Stdout, Stderr string
}

// surplusEnd ends the response to a call beyond the limit of calls in a turn.
const surplusEnd = " calls per turn"

// SurplusReason reports why a call beyond the limit of calls in a turn is refused.
func SurplusReason(most int) string { return fmt.Sprintf("at most %d%s", most, surplusEnd) }

// Surplus reports whether the call was refused for the limit of calls in a turn.
func (c *ToolCall) Surplus() bool {
	return c.Status == status.Refused && c.ID == "" && strings.HasSuffix(c.Response, surplusEnd)
}

// Turn is one generation plus its tool results.
type Turn struct {
	// Start and End delimit the sampled tokens of the turn in Trajectory.Tokens.
	Start  int          `json:"start"`
	End    int          `json:"end"`
	Finish FinishReason `json:"finish"`
	Calls  []ToolCall   `json:"calls,omitempty"`
	// Begin is when the generation began, since the trajectory did, and Generated how long
	// it took with the wait for the engine. They are not part of the run's bits, and 0
	// where another process has generated.
	Begin     time.Duration `json:"-"`
	Generated time.Duration `json:"-"`
}

// Span is a stretch of a trajectory whose sampled tokens are of one policy version. It ends
// where the next one begins.
type Span struct {
	From    int   `json:"from"` // index in Trajectory.Tokens
	Version int64 `json:"version"`
}

// Trajectory is the record of one rollout. It is append-only token ids:
// nothing in it was decoded and encoded again.
type Trajectory struct {
	ProblemID string `json:"problem_id"`
	// Rollout is the index within the group, 0 <= Rollout < RolloutsPerProblem.
	Rollout int `json:"rollout"`
	Stage   int `json:"stage"`
	Step    int `json:"step"`
	// Seed drives every draw of this rollout; see Seed and Uniform.
	Seed uint64 `json:"seed"`
	// PolicyVersion is the version that sampled all turns, or the first of Spans.
	PolicyVersion int64 `json:"policy_version"`
	// Spans are the versions of a trajectory that several have sampled, from the first
	// token after the prompt on; none where one has.
	Spans []Span `json:"spans,omitempty"`

	// Tokens is prompt + sampled + tool tokens; the first PromptTokens are the prompt.
	Tokens       []int32 `json:"tokens"`
	PromptTokens int     `json:"prompt_tokens"`
	// LossMask is true exactly on sampled tokens; same length as Tokens.
	LossMask []bool `json:"loss_mask"`
	// RolloutLogprobs is the engine's log-probability of each sampled token
	// (nats, at the sampling temperature), 0 where LossMask is false.
	RolloutLogprobs []float32 `json:"rollout_logprobs"`

	Turns      []Turn     `json:"turns"`
	StopReason StopReason `json:"stop_reason"`
	// Text is the decoded response with special tokens, for people and verifiers.
	Text string `json:"text"`
	// Answer is the extracted final answer, "" when there is none.
	Answer string `json:"answer"`
	// AnswerTags is the number of <answer> blocks in the response.
	AnswerTags int     `json:"answer_tags"`
	Reward     float64 `json:"reward"`
	// Details is the JSON object that the run's own reward function returns beside the
	// reward.
	Details string `json:"reward_details,omitempty"`
	// Err tells what went wrong in an excluded trajectory.
	Err string `json:"err,omitempty"`

	// SampleTime and ToolTime are the wall time spent waiting for the engine
	// and for the sandbox. They are not part of the run's bits.
	SampleTime time.Duration `json:"-"`
	ToolTime   time.Duration `json:"-"`
}

// ResponseTokens returns the number of tokens after the prompt.
func (t *Trajectory) ResponseTokens() int { return len(t.Tokens) - t.PromptTokens }

// VersionAt is the version that a token after the prompt belongs to.
func (t *Trajectory) VersionAt(token int) int64 {
	version := t.PolicyVersion
	for _, s := range t.Spans {
		if s.From > token {
			break
		}
		version = s.Version
	}
	return version
}

// Excluded reports whether the trajectory has no reward and counts for nothing.
func (t *Trajectory) Excluded() bool {
	return t.StopReason == StopInfraError || t.StopReason == StopRewardError
}

// ToolCounts returns how many tool calls the trajectory made and how many failed.
func (t *Trajectory) ToolCounts() (calls, failed int) {
	for _, turn := range t.Turns {
		for _, c := range turn.Calls {
			calls++
			if c.Status.Failed() {
				failed++
			}
		}
	}
	return calls, failed
}

// ToolErrorRate is the share of tool calls that failed, 0 without calls.
func ToolErrorRate(calls, failed int) float64 {
	if calls == 0 {
		return 0
	}
	return float64(failed) / float64(calls)
}

// Validate reports a violated invariant of the record.
func (t *Trajectory) Validate() error {
	if len(t.LossMask) != len(t.Tokens) || len(t.RolloutLogprobs) != len(t.Tokens) {
		return fmt.Errorf("trajectory %s/%d: %d tokens, %d mask, %d logprobs: lengths differ",
			t.ProblemID, t.Rollout, len(t.Tokens), len(t.LossMask), len(t.RolloutLogprobs))
	}
	if t.PromptTokens < 0 || t.PromptTokens > len(t.Tokens) {
		return fmt.Errorf("trajectory %s/%d: prompt of %d tokens in %d", t.ProblemID, t.Rollout, t.PromptTokens, len(t.Tokens))
	}
	for i, m := range t.LossMask[:t.PromptTokens] {
		if m {
			return fmt.Errorf("trajectory %s/%d: prompt token %d is in the loss", t.ProblemID, t.Rollout, i)
		}
	}
	return t.checkSpans()
}

// checkSpans: the first span begins behind the prompt with PolicyVersion, and each of the
// others later and with a newer version.
func (t *Trajectory) checkSpans() error {
	for i, s := range t.Spans {
		ok := s.From == t.PromptTokens && s.Version == t.PolicyVersion && len(t.Spans) > 1
		if i > 0 {
			ok = s.From > t.Spans[i-1].From && s.Version > t.Spans[i-1].Version && s.From < len(t.Tokens)
		}
		if !ok {
			return fmt.Errorf("trajectory %s/%d: span %d of version %d begins at token %d of %d: spans begin behind the prompt and grow in token and version",
				t.ProblemID, t.Rollout, i, s.Version, s.From, len(t.Tokens))
		}
	}
	return nil
}

// Group is the trajectories of one problem in one step, ordered by Rollout.
type Group struct {
	Problem      Problem      `json:"problem"`
	Trajectories []Trajectory `json:"trajectories"`
}

// Sample is one trajectory as the trainer sees it.
type Sample struct {
	ProblemID       string    `json:"problem_id"`
	Rollout         int       `json:"rollout"`
	Tokens          []int32   `json:"tokens"`
	LossMask        []bool    `json:"loss_mask"`
	RolloutLogprobs []float32 `json:"rollout_logprobs"`
	// Advantage is one number per trajectory, broadcast by LossMask. In stored samples of
	// an estimator that whitens, it is the number before whitening.
	Advantage float32 `json:"advantage"`
	// Truncated means that the trajectory hit the limit of response tokens.
	Truncated bool `json:"truncated,omitempty"`
}

// Batch is all kept trajectories of one step.
type Batch struct {
	Step    int      `json:"step"`
	Samples []Sample `json:"samples"`
}

// LossTokens returns the number of tokens in the loss of the sample.
func (s *Sample) LossTokens() int {
	n := 0
	for _, m := range s.LossMask {
		if m {
			n++
		}
	}
	return n
}

// LossTokens returns the number of tokens in the loss of the batch.
func (b *Batch) LossTokens() int {
	n := 0
	for i := range b.Samples {
		n += b.Samples[i].LossTokens()
	}
	return n
}

// TrainMetrics are the numbers of one step's updates, averaged over its
// minibatches weighted by loss tokens. Names of the series follow verl.
type TrainMetrics struct {
	Loss       float64 `json:"loss"`
	GradNorm   float64 `json:"grad_norm"`
	LR         float64 `json:"lr"`
	Entropy    float64 `json:"entropy"`     // nats per loss token
	ClipLow    float64 `json:"clip_low"`    // fraction of loss tokens clipped at 1-eps_low
	ClipHigh   float64 `json:"clip_high"`   // fraction clipped at 1+eps_high
	PPOKL      float64 `json:"ppo_kl"`      // mean(old - new) log-probability
	MismatchKL float64 `json:"mismatch_kl"` // mean |rollout - trainer| log-probability before the update
	LossTokens int     `json:"loss_tokens"` // denominator of the loss
	Tokens     int     `json:"tokens"`      // all tokens passed through the network, padding excluded
	Updates    int     `json:"updates"`     // optimizer updates applied
	// SkippedUpdates is the number of updates left out because of their gradient norm.
	SkippedUpdates int `json:"skipped_updates,omitempty"`

	// The fractions and means below are over loss tokens. "train" is the trainer's policy
	// before the step, w the ratio of its probability to the engine's, at the level of
	// the correction.
	ClipDual      float64 `json:"clip_dual,omitempty"`       // fraction held at the dual clip
	Untrained     float64 `json:"untrained,omitempty"`       // fraction outside the gradient: left out, or entropy too low
	Penalty       float64 `json:"penalty,omitempty"`         // part of Loss that holds the policy near the reference
	RefK1         float64 `json:"ref_k1,omitempty"`          // mean log(policy/reference)
	RefK2         float64 `json:"ref_k2,omitempty"`          // mean of half the square of that
	RefK3         float64 `json:"ref_k3,omitempty"`          // mean reference/policy - log(reference/policy) - 1
	MismatchMax   float64 `json:"mismatch_max,omitempty"`    // largest |rollout - train| log-probability of a token
	RolloutK1     float64 `json:"rollout_k1,omitempty"`      // mean log(rollout/train)
	RolloutK3     float64 `json:"rollout_k3,omitempty"`      // mean train/rollout - log(train/rollout) - 1
	WeightMean    float64 `json:"weight_mean,omitempty"`     // mean w, before its cap
	WeightMax     float64 `json:"weight_max,omitempty"`      // largest w, before its cap
	WeightCapped  float64 `json:"weight_capped,omitempty"`   // fraction with w above the cap
	WeightLeftOut float64 `json:"weight_left_out,omitempty"` // fraction with w outside the mask
}
