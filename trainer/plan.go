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
	entropy    []float32 // of the policy before the step, where the objective selects by it
	selected   []bool    // the targets that train; nil where the objective does not select
	reference  []float32 // log-probabilities of the targets under the reference policy; nil for none
}

// shape is the padded size of a microbatch: B rows of T tokens.
type shape struct{ rows, length int }

// microbatch is what one device pass works on.
type microbatch struct {
	shape
	members []*row
	starts  []int // of each member among the B*T tokens, in ascending order
	packed  bool  // a row may hold several members
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

// passCost is what a device pass costs besides its tokens, in tokens.
const passCost = 64

// microbatches cuts rows of similar length into passes of at most the given
// number of padded tokens: of all ways to cut the rows, sorted by length, it
// takes the one with the least padding and the fewest passes.
func microbatches(rows []*row, tokens int) []microbatch {
	sorted := byLength(rows)
	lines := make([]line, len(sorted))
	for i, r := range sorted {
		lines[i] = line{length: bucketLength(r.length), members: []*row{r}, starts: []int{0}}
	}
	return cut(lines, tokens)
}

// byLength sorts rows, the longest first.
func byLength(rows []*row) []*row {
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b *row) int { return b.length - a.length })
	return sorted
}

// line is one row of a microbatch with what stands in it.
type line struct {
	length  int // padded
	members []*row
	starts  []int // of each member in the line
}

// cut deals lines, the longest first, into passes; see microbatches.
func cut(lines []line, tokens int) []microbatch {
	n := len(lines)
	cost, size := make([]int, n+1), make([]int, n) // of lines[i:], and the rows of its first pass
	for i := n - 1; i >= 0; i-- {
		length := lines[i].length
		for r := 1; r == 1 || r*length <= tokens; r = nextRows(r) {
			c := r*length + passCost + cost[min(i+r, n)]
			if r == 1 || c < cost[i] {
				cost[i], size[i] = c, r
			}
			if i+r >= n {
				break
			}
		}
	}
	var out []microbatch
	for i := 0; i < n; i += size[i] {
		mb := microbatch{shape: shape{rows: size[i], length: lines[i].length}}
		for k, l := range lines[i:min(i+size[i], n)] {
			for m, r := range l.members {
				mb.members, mb.starts = append(mb.members, r), append(mb.starts, k*mb.length+l.starts[m])
			}
		}
		out = append(out, mb)
	}
	return out
}

// bucketLength rounds up to one of 16, 32, ... 256, 288, ... 512, 576, ...:
// eight to sixteen lengths to each doubling, at least 16 apart.
func bucketLength(n int) int {
	step := 16
	for 16*step < n {
		step *= 2
	}
	return (n + step - 1) / step * step
}

// nextRows is the number of rows after n in 1, 2, 3, 5, 7, 11, 15, 23, 31, ...:
// one less than a power of two or than three times one. Odd numbers of rows keep the columns of an activation from falling
// into the same few cache lines, which makes transposing it twice as slow.
func nextRows(n int) int {
	switch m := n + 1; {
	case m < 4:
		return n + 1
	case m&(m-1) == 0:
		return m + m/2 - 1
	default:
		return m/3*4 - 1
	}
}

// MaxGraphs bounds the number of graphs that a trainer ever compiles, whatever
// the lengths of its samples. With contexts and microbatches of up to 12288
// tokens it is 3163, and 475 with packing; on the Go backend, which cuts smaller
// passes, 819 and 131. Few of them meet in one run.
func (c Config) MaxGraphs() int {
	shapes, bucket := 0, bucketLength
	if c.Pack {
		bucket = packedLength
	}
	for n := 1; n < c.Model.MaxPositionEmbeddings; n = bucket(n) + 1 {
		length := bucket(n)
		for r := 1; r == 1 || r*length <= c.passTokens(); r = nextRows(r) {
			shapes++
		}
	}
	return 2*int(passAdd)*shapes + 3
}
