package enginebench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/internal/rl"
	"temper/trainer/cpu/kernels"
	"temper/trainer/model"
)

// Case is one load: Batch sequences at once, each of which ends at Context tokens.
type Case struct {
	Size    string `json:"size"`
	Batch   int    `json:"batch"`
	Context int    `json:"context"`
	// NewTokens are decoded for each sequence, after a prompt that fills the rest.
	NewTokens int `json:"new_tokens"`
}

// prompts are those of the case's sequences.
func (c Case) prompts(vocab int, seed uint64) [][]int32 {
	out := make([][]int32, c.Batch)
	for i := range out {
		draw := rl.Rand(rl.Seed(seed, "prompt", uint64(i)))
		out[i] = make([]int32, c.Context-c.NewTokens)
		for p := range out[i] {
			out[i][p] = int32(draw.IntN(vocab))
		}
	}
	return out
}

// Plan is what is measured.
type Plan struct {
	Model model.Config
	// Dir is a model directory with the weights of our engine, which are mapped; empty for
	// start weights.
	Dir       string
	Backend   string // of our engine; empty is go
	Ahead     int    // tokens that an XLA device of our engine makes at a time; 0 is its own choice
	Kernels   kernels.Choice
	Shards    int // of our engine; 0 is its own choice
	Graph     bool
	Seed      uint64
	Rounds    int
	Cases     []Case
	Opponents []Opponent
	// LlamaPython has the package xllamacpp, whose server decodes each case beside; empty
	// is none.
	LlamaPython string
}

// Validate reports all faults.
func (p Plan) Validate() error {
	var errs []error
	if p.Rounds < 1 {
		errs = append(errs, fmt.Errorf("rounds: %d, want at least 1", p.Rounds))
	}
	if len(p.Cases) == 0 {
		errs = append(errs, errors.New("no cases: want at least one batch and one context"))
	}
	for _, c := range p.Cases {
		if c.Batch < 1 || c.NewTokens < 2 || c.Context <= c.NewTokens {
			errs = append(errs, fmt.Errorf("batch %d, %d new tokens of a context of %d: want at least 1, at least 2, and a longer context",
				c.Batch, c.NewTokens, c.Context))
		}
	}
	return errors.Join(errs...)
}

// Opponent decodes the prompts of a case beside our engine.
type Opponent interface {
	Name() string
	// Decode generates newTokens after each prompt, all at once.
	Decode(ctx context.Context, prompts [][]int32, newTokens int) (Round, error)
}

// Round is what one contender took for a case once.
type Round struct {
	// Of an engine that makes several tokens of each sequence in one call to a device: the part of
	// its steps in which the device waits, the transfers between host and device for each token, and
	// how many programs there are.
	HostShare, Transfers float64
	Programs             int
	// FirstToken is when half of the sequences had their first token.
	FirstToken time.Duration
	// Wall and CPU are those of the tokens after the first one, or of all tokens where
	// the contender does not show when the first one came. CPU is 0 where it is unknown.
	Wall, CPU time.Duration
	Tokens    int
	// PeakRSS is the most resident memory of the contender's process so far; 0 where it is
	// unknown.
	PeakRSS int64
	Digest  string // of tokens and log-probabilities; empty for others
}
