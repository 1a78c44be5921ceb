// Package inference owns the port through which rollouts generate tokens. It
// knows nothing of models or devices; engines implement it.
//
// Invariant: what a Generation reports depends only on the policy version and
// the Request, never on what else the engine is generating at the time.
package inference

import (
	"context"
	"errors"
	"fmt"

	"temper/internal/blob"
	"temper/internal/rl"
)

// Errors of the port. Wrap them; callers use errors.Is.
var (
	// ErrOverloaded means that the engine refuses the request now; try again later.
	ErrOverloaded = errors.New("policy engine overloaded")
	// ErrStaleVersion means that the engine does not hold the requested version.
	ErrStaleVersion = errors.New("policy version not loaded")
	// ErrTooLarge means that no engine could ever hold the request, whatever the load.
	ErrTooLarge = errors.New("request larger than the engine")
	// ErrCut is the cause with which a caller ends a context to take a generation away
	// from an engine and keep what it has sampled.
	ErrCut = errors.New("generation cut")
)

// Request asks for one generation.
type Request struct {
	// Tokens is the whole context: prompt and everything since.
	Tokens []int32
	// MaxTokens bounds the generation, at least 1.
	MaxTokens int
	// Stop lists token ids that end the generation; the one sampled is kept.
	Stop []int32
	// Temperature scales the logits; 0 means greedy.
	Temperature float32
	// Seed of the trajectory: the token at absolute position p is selected by rl.Uniform(Seed, p).
	Seed uint64
	// Version the caller insists on; -1 accepts any.
	Version int64
	// Sampler removes unlikely tokens before the draw; nil for none, which is the only
	// value in training. With a sampler the log-probabilities describe the truncated
	// distribution, and a loss that compares them with the trainer's own would need to
	// know which tokens were left at every position. No loss here takes such a mask.
	Sampler *Sampler
	// TopLogprobs asks for that many of the likeliest tokens at each position, at most
	// MaxTopLogprobs; 0 asks for none. Training asks for none.
	TopLogprobs int
	// Session names a trajectory whose context only ever grows, so that the
	// engine may keep its KV cache between turns; "" for none.
	Session string
}

// MaxTopLogprobs bounds Request.TopLogprobs. It is OpenAI's bound.
const MaxTopLogprobs = 20

// Sampler keeps the likeliest tokens, after temperature. Its limits apply in the order of
// the fields, each to what the ones before it have left. Tokens of equal probability are
// kept in the order of their ids. The likeliest token is always kept.
type Sampler struct {
	// TopK keeps that many tokens; 0 keeps all.
	TopK int `json:"top_k,omitempty"`
	// TopP keeps the fewest tokens that together have at least this probability; 0 and 1
	// keep all.
	TopP float64 `json:"top_p,omitempty"`
	// MinP keeps the tokens that are at least this fraction as likely as the likeliest;
	// 0 keeps all.
	MinP float64 `json:"min_p,omitempty"`
	// KeepIDs asks for the ids of the kept tokens.
	KeepIDs bool `json:"keep_ids,omitempty"`
}

// Validate reports limits out of range. Errors: one line that names each.
func (s *Sampler) Validate() error {
	var errs []error
	if s.TopK < 0 {
		errs = append(errs, fmt.Errorf("top_k %d, want 0 or more", s.TopK))
	}
	for _, p := range []struct {
		name  string
		value float64
	}{{"top_p", s.TopP}, {"min_p", s.MinP}} {
		if !(p.value >= 0 && p.value <= 1) {
			errs = append(errs, fmt.Errorf("%s %v, want 0 to 1", p.name, p.value))
		}
	}
	return errors.Join(errs...)
}

// Kept tells what a Sampler left at one position.
type Kept struct {
	Count int `json:"count"`
	// IDs are the kept tokens, ascending, where Sampler.KeepIDs asks for them.
	IDs []int32 `json:"ids,omitempty"`
}

// TokenLogprob is a token that might have been sampled.
type TokenLogprob struct {
	ID      int32   `json:"id"`
	Logprob float32 `json:"logprob"` // nats, under the sampling distribution
}

// Generation holds the sampled tokens of one request.
type Generation struct {
	Tokens []int32
	// Logprobs are the log-probabilities (nats) of Tokens under the sampling
	// distribution: after temperature and, with a Sampler, after truncation.
	Logprobs []float32
	// Kept belongs to Tokens one by one; nil without a Sampler.
	Kept []Kept
	// Top belongs to Tokens one by one: the likeliest tokens at each position, the likeliest
	// first, fewer than asked for where a Sampler left fewer; nil where none were asked for.
	Top     [][]TokenLogprob
	Finish  rl.FinishReason
	Version int64
}

// Engine generates tokens. Implementations are safe for concurrent use.
type Engine interface {
	// Generate blocks until the generation ends or ctx is done; then it returns
	// ctx.Err() and frees what it held. It is idempotent: the same request to the
	// same version gives the same tokens.
	// Where the cause of the context's end is ErrCut, Generate returns what it has
	// sampled, perhaps nothing, with rl.FinishAbort and no error. The rest follows
	// from Tokens and what was sampled, on this engine or another one.
	// Errors: ErrOverloaded, ErrStaleVersion, an error naming the limit for a
	// context that does not fit.
	Generate(ctx context.Context, req Request) (Generation, error)
	// Release drops what the engine keeps for a session. Unknown sessions are no error.
	Release(session string)
	// Version is the version that new requests are served with.
	Version() int64
	// MaxContext is the largest len(Tokens)+MaxTokens accepted.
	MaxContext() int
}

// Status is the state of an engine at one moment.
type Status struct {
	// Version that new requests are served with; -1 before the first Load.
	Version    int64 `json:"version"`
	MaxContext int   `json:"max_context"`
	// Capacity is how many tokens of KV cache the engine can hold, and Used how many of
	// them hold something that cannot be given to others at once.
	Capacity int64 `json:"capacity"`
	Used     int64 `json:"used"`
	// Running requests have a place in the next pass; Waiting ones have none.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Passes and Tokens count device passes and sampled tokens since the start.
	Passes int64 `json:"passes"`
	Tokens int64 `json:"tokens"`
	// Exact engines force the draws: equal requests to one version give equal bits,
	// whatever the engine and the company.
	Exact bool `json:"exact"`
	// Draining engines end what they have and take nothing new.
	Draining bool `json:"draining,omitempty"`
}

// Reporter is an Engine that reports its Status. It is cheap enough to be asked every
// second. Errors: only of the connection to an engine in another process.
type Reporter interface {
	Engine
	Status(ctx context.Context) (Status, error)
}

// Loader is an Engine whose weights can be replaced.
type Loader interface {
	Engine
	// Load replaces the weights by the published policy at ref and then serves
	// version. Requests under way finish on the old weights. Loading the version
	// that is being served already is a no-op.
	Load(ctx context.Context, ref blob.Ref, version int64) error
}

// Prefetcher is an Engine that can bring the weights of a policy near while it serves
// another one, so that the Load of it is short.
type Prefetcher interface {
	Engine
	// Prefetch begins to read the policy that a Load will ask for and does not wait. It
	// changes nothing that the engine serves. The last policy asked for counts, and
	// asking again for it changes nothing; failures show in the Load.
	Prefetch(ctx context.Context, ref blob.Ref, version int64)
}

// Trajectory describes a rollout to an engine before its first turn.
type Trajectory struct {
	// Session is the session of the rollout's requests. Each request is a turn; Release ends the
	// trajectory.
	Session      string
	Run, Problem string
	Stage, Step  int
	// Prompt is the length of the prompt, Limit bounds the tokens after it.
	Prompt, Limit int
}

// Planner is an Engine that plans with whole trajectories: the lengths of those that
// ended say what the others will need.
type Planner interface {
	Engine
	// Begin announces trajectories whose first requests follow soon, all or none. Each of
	// them ends with Release. A session that was not announced is served as well.
	// Errors: ErrTooLarge for one that no engine could ever hold.
	Begin(ctx context.Context, trajectories []Trajectory) error
}

// Ended is how long trajectories of a problem became that ended before.
type Ended struct {
	Run, Problem string
	Stage        int
	// Limit bounds the tokens after the prompt, Turns has for each trajectory how many there
	// were at the end of every turn.
	Limit int
	Turns [][]int
}

// Recaller is a Planner that can be told of trajectories of before its start. They change
// what it expects and no generation.
type Recaller interface {
	Planner
	Recall(ended []Ended)
}
