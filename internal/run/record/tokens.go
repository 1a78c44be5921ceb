package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// TokenStats describe the sampled tokens of one trajectory, in the order of its loss mask,
// under the policy before the update of the step.
type TokenStats struct {
	Rollout int
	// Differences are the trainer's log-probabilities less the engine's; Entropies belong to
	// the distributions that the tokens were drawn from. Both are in nats.
	Differences, Entropies []float64
}

// The statistics of the tokens of one problem in a step are a first line that names them,
// and one zstd frame: the number of trajectories, and for each its rollout, the number of
// its sampled tokens, the differences in steps of 1e-6 nats, and the entropies in steps of
// 1e-3. All numbers are varints, the differences signed ones.
const (
	tokensMagic    = "temper tokens 1\n"
	differenceStep = 1e-6
	entropyStep    = 1e-3
)

// EncodeTokens writes the statistics of tokens. A number that is not finite becomes the
// largest number that can be written.
func EncodeTokens(list []TokenStats) ([]byte, error) {
	enc, err := newEncoder()
	if err != nil {
		return nil, err
	}
	out := binary.AppendUvarint(nil, uint64(len(list)))
	for _, s := range list {
		if len(s.Differences) != len(s.Entropies) || s.Rollout < 0 {
			return nil, fmt.Errorf("rollout %d has %d differences and %d entropies", s.Rollout, len(s.Differences), len(s.Entropies))
		}
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(s.Rollout)), uint64(len(s.Entropies)))
		for _, x := range s.Differences {
			out = binary.AppendVarint(out, inSteps(x, differenceStep))
		}
		for _, x := range s.Entropies {
			out = binary.AppendUvarint(out, uint64(max(0, inSteps(x, entropyStep)))) //nolint:gosec // not negative
		}
	}
	return enc.EncodeAll(out, []byte(tokensMagic)), nil
}

// inSteps is x in steps, rounded.
func inSteps(x, step float64) int64 {
	if math.IsNaN(x) {
		return math.MaxInt32
	}
	return int64(math.Round(max(-math.MaxInt32, min(math.MaxInt32, x/step))))
}

var errTokens = errors.New("statistics of tokens are damaged")

// DecodeTokens reads the statistics of tokens.
func DecodeTokens(data []byte) ([]TokenStats, error) {
	text, err := unframe(tokensMagic, data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTokens, err)
	}
	r := varints{rest: text}
	var out []TokenStats
	for range r.count() {
		s := TokenStats{Rollout: r.rollout()}
		n := r.count()
		s.Differences, s.Entropies = make([]float64, n), make([]float64, n)
		for i := range s.Differences {
			s.Differences[i] = float64(r.signed()) * differenceStep
		}
		for i := range s.Entropies {
			s.Entropies[i] = float64(r.unsigned()) * entropyStep
		}
		out = append(out, s)
		if r.bad {
			break
		}
	}
	if r.bad || len(r.rest) > 0 {
		return nil, errTokens
	}
	return out, nil
}

// varints reads numbers one after another, and 0 once something was wrong.
type varints struct {
	rest []byte
	bad  bool
}

func (r *varints) unsigned() uint64 {
	x, n := binary.Uvarint(r.rest)
	return advance(r, x, n)
}

func (r *varints) signed() int64 {
	x, n := binary.Varint(r.rest)
	return advance(r, x, n)
}

// count reads a number of things, each of which takes a byte at least.
func (r *varints) count() int {
	n := r.unsigned()
	if n > uint64(len(r.rest)) {
		r.bad = true
		return 0
	}
	return int(n) //nolint:gosec // at most the length
}

// rollout reads the index of a trajectory, which is not bounded by what follows it.
func (r *varints) rollout() int {
	n := r.unsigned()
	if n > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int(n) //nolint:gosec // bounded above
}

func advance[T uint64 | int64](r *varints, x T, n int) T {
	if r.bad = r.bad || n <= 0; r.bad {
		return 0
	}
	r.rest = r.rest[n:]
	return x
}
