package trainer

import (
	"fmt"
	"math"
	"slices"

	"temper/internal/rl"
	"temper/trainer/qwen3"
)

// row is a sample as a device pass sees it: positions 0..length-1, each of
// which predicts the token after it. Tokens after the last one in the loss
// influence nothing and are cut off.
type row struct {
	sample     *rl.Sample
	index      int // in the caller's samples
	length     int
	lossTokens int
	old        []float32 // log-probabilities of the targets before the step; nil for none
}

// shape is the padded size of a microbatch: B rows of T tokens.
type shape struct{ rows, length int }

// microbatch is what one device pass works on.
type microbatch struct {
	shape
	members []*row // at most rows
}

// makeRows checks the samples and drops those without a token in the loss.
func makeRows(samples []rl.Sample, cfg qwen3.Config) ([]*row, error) {
	var out []*row
	for i := range samples {
		s := &samples[i]
		if err := checkSample(s, cfg); err != nil {
			return nil, fmt.Errorf("sample %d (%s/%d): %w", i, s.ProblemID, s.Rollout, err)
		}
		r := &row{sample: s, index: i}
		for p, in := range s.LossMask {
			if in {
				r.length = p
				r.lossTokens++
			}
		}
		if r.lossTokens > 0 {
			out = append(out, r)
		}
	}
	return out, nil
}

// checkSample refuses what would train on something else than was meant.
func checkSample(s *rl.Sample, cfg qwen3.Config) error {
	n := len(s.Tokens)
	switch {
	case len(s.LossMask) != n:
		return fmt.Errorf("%d tokens but %d mask entries", n, len(s.LossMask))
	case s.RolloutLogprobs != nil && len(s.RolloutLogprobs) != n:
		return fmt.Errorf("%d tokens but %d rollout log-probabilities", n, len(s.RolloutLogprobs))
	case n > cfg.MaxPositionEmbeddings:
		return fmt.Errorf("%d tokens, the model holds %d", n, cfg.MaxPositionEmbeddings)
	case n > 0 && s.LossMask[0]:
		return fmt.Errorf("the first token is in the loss, but nothing predicts it")
	case math.IsNaN(float64(s.Advantage)) || math.IsInf(float64(s.Advantage), 0):
		return fmt.Errorf("advantage is %v", s.Advantage)
	}
	for p, token := range s.Tokens {
		if token < 0 || int(token) >= cfg.VocabSize {
			return fmt.Errorf("token %d at position %d is outside the vocabulary of %d", token, p, cfg.VocabSize)
		}
	}
	return nil
}

// countTokens returns the tokens of the rows, all and those in the loss.
func countTokens(rows []*row) (all, inLoss int) {
	for _, r := range rows {
		all += r.length
		inLoss += r.lossTokens
	}
	return all, inLoss
}

// minibatches deals the rows into n parts of nearly equal size, in an order
// that depends on seed and step alone.
func minibatches(rows []*row, n int, seed uint64, step int) [][]*row {
	if n <= 1 || len(rows) < 2 {
		return [][]*row{rows}
	}
	n = min(n, len(rows))
	order := rl.Rand(rl.Seed(seed, "minibatch", uint64(step))).Perm(len(rows))
	out := make([][]*row, n)
	for i, at := range order {
		k := i * n / len(rows)
		out[k] = append(out[k], rows[at])
	}
	return out
}

// microbatches packs rows of similar length into passes of at most the given
// number of padded tokens, longest first.
func microbatches(rows []*row, tokens int) []microbatch {
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b *row) int { return b.length - a.length })
	var out []microbatch
	for len(sorted) > 0 {
		length := bucketLength(sorted[0].length)
		n := min(len(sorted), floorRows(max(1, tokens/length)))
		// A remainder that would be padded by more than a quarter is cut in two.
		if 4*ceilRows(n) > 5*n {
			n = floorRows(n)
		}
		out = append(out, microbatch{shape: shape{rows: ceilRows(n), length: length}, members: sorted[:n]})
		sorted = sorted[n:]
	}
	return out
}

// bucketLength rounds up to one of 16, 32, ... 128, 160, ... 256, 320, ...:
// eight lengths to each doubling, at least 16 apart.
func bucketLength(n int) int {
	step := 16
	for 8*step < n {
		step *= 2
	}
	return (n + step - 1) / step * step
}

// floorRows rounds down to one of 1, 2, 3, 4, 6, 8, 12, 16, 24, ...
func floorRows(n int) int {
	size := 1
	for next := 2; next <= n; next = nextRows(next) {
		size = next
	}
	return size
}

// ceilRows rounds up to one of those numbers.
func ceilRows(n int) int {
	size := 1
	for size < n {
		size = nextRows(size)
	}
	return size
}

// nextRows is the number after n: powers of two and their halves more.
func nextRows(n int) int {
	switch {
	case n < 4:
		return n + 1
	case n&(n-1) == 0:
		return n + n/2
	default:
		return n / 3 * 4
	}
}

// MaxGraphs bounds the number of graphs that a trainer ever compiles, whatever
// the lengths of its samples.
func (c Config) MaxGraphs() int {
	shapes := 0
	for n := 1; n < c.Model.MaxPositionEmbeddings; n = bucketLength(n) + 1 {
		length := bucketLength(n)
		for rows := 1; rows <= floorRows(max(1, c.MicrobatchTokens/length)); rows = nextRows(rows) {
			shapes++
		}
	}
	const perObjective = 3 // score, gradient, update
	return 2*perObjective*shapes + 2
}
