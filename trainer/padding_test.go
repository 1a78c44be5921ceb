package trainer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/internal/config"
	"temper/internal/rl"
)

// TestGarbageInPaddingChangesNothing writes other tokens, targets and
// log-probabilities where no sample stands. Sums and gradients must keep their
// bits.
func TestGarbageInPaddingChangesNothing(t *testing.T) {
	for _, pack := range []bool{false, true} {
		cfg := trapConfig()
		cfg.Pack, cfg.MicrobatchTokens = pack, 1<<14
		cfg.Loss = config.Default().RL.Loss
		tr := trapTrainer(t, cfg)
		var s []rl.Sample
		for i, n := range []int{40, 23, 9, 17, 30} {
			s = append(s, story(i+1, n)[i])
		}
		rows, err := makeRows(s, cfg.Model)
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range []objective{objectiveSFT, objectiveGRPO} {
			mb := tr.microbatches(rows)[0]
			real := laid(mb, func(r *row) []bool { return slices.Repeat([]bool{true}, r.length) })
			if len(mb.members) < 3 || !slices.Contains(real, false) {
				t.Fatalf("%d members, padding %v: the test has no teeth", len(mb.members), slices.Contains(real, false))
			}
			run := func(garbage bool) [][]float32 {
				p := program{obj, passGradient}
				args := mb.feed(p, 50)
				if garbage {
					for _, i := range []int{inTokens, inTargets, inRollout, inOld} {
						if i < len(args) {
							spoil(args[i].(*tensors.Tensor), real)
						}
					}
				}
				out, err := tr.call(p, mb.shape, args...)
				if err != nil {
					t.Fatal(err)
				}
				var all [][]float32
				for _, x := range out {
					flat, err := tensors.CopyFlatData[float32](x)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, flat)
				}
				return all
			}
			clean, dirty := run(false), run(true)
			for i := range clean {
				if !slices.Equal(clean[i], dirty[i]) {
					t.Errorf("pack %v, %v: output %d depends on the padding", pack, obj, i)
				}
			}
		}
	}
}

// spoil changes the values of tokens that are not real. Positions and segments,
// which follow the tokens of packed rows, say what is padding and stay.
func spoil(x *tensors.Tensor, real []bool) {
	switch x.DType().String() {
	case "Int32":
		tensors.MustMutableFlatData(x, func(flat []int32) {
			for i := range real {
				if !real[i] {
					flat[i] = int32(7+3*i) % 29
				}
			}
		})
	case "Float32":
		tensors.MustMutableFlatData(x, func(flat []float32) {
			for i := range real {
				if !real[i] {
					flat[i] = -1e9
				}
			}
		})
	default:
		panic(fmt.Sprintf("input of type %s", x.DType()))
	}
}

// TestPackedRowsHoldEachSampleOnce: whatever the lengths, samples stand apart
// within rows, on the grid, and all else is padding.
func TestPackedRowsHoldEachSampleOnce(t *testing.T) {
	draw := rl.Rand(9)
	for range 300 {
		var lengths []int
		for range 1 + draw.IntN(70) {
			lengths = append(lengths, 1+draw.IntN(400))
		}
		rows, tokens := rowsOf(lengths...), 1+draw.IntN(9000)
		seen := map[int]bool{}
		for _, mb := range packed(rows, tokens) {
			if mb.rows*mb.length > tokens && mb.rows > 1 || !mb.packed {
				t.Fatalf("%d rows of %d tokens exceed %d, or are not packed", mb.rows, mb.length, tokens)
			}
			taken := make([]bool, mb.rows*mb.length)
			for i, r := range mb.members {
				start := mb.starts[i]
				if seen[r.index] || start%packAlign != 0 || start%mb.length+r.length > mb.length {
					t.Fatalf("sample %d of %d tokens starts at %d of rows of %d, seen %v", r.index, r.length, start, mb.length, seen[r.index])
				}
				seen[r.index] = true
				if slices.Contains(taken[start:start+r.length], true) {
					t.Fatalf("sample %d overlaps another", r.index)
				}
				for p := range r.length {
					taken[start+p] = true
				}
			}
			layout := mb.layout(make([]int32, len(taken)))
			for i, real := range taken {
				if segment := layout[2*len(taken)+i]; (segment != 0) != real {
					t.Fatalf("token %d has segment %d, holds a sample: %v", i, segment, real)
				}
			}
		}
		if len(seen) != len(lengths) {
			t.Fatalf("%d of %d samples are in a microbatch", len(seen), len(lengths))
		}
	}
}

func TestPackingIsTight(t *testing.T) {
	draw := rl.Rand(6)
	real, padded := 0, 0
	for range 50 {
		var lengths []int
		for range 64 {
			lengths = append(lengths, 30+draw.IntN(1970)) // lengths differ much more than in one bucket
		}
		for _, mb := range packed(rowsOf(lengths...), 16384) {
			padded += mb.rows * mb.length
			for _, r := range mb.members {
				real += r.length
			}
		}
	}
	if share := float64(real) / float64(padded); share < 0.9 {
		t.Errorf("%.3f of the tokens passed through the network are real, want 0.9", share)
	}
}

// TestMaxGraphs pins what the comment of MaxGraphs says.
func TestMaxGraphs(t *testing.T) {
	cfg := trapConfig()
	cfg.Model.MaxPositionEmbeddings, cfg.MicrobatchTokens = 12288, 12288
	for _, want := range []struct {
		backend       string
		plain, packed int
	}{{"xla:cuda", 3163, 475}, {"go", 819, 131}} {
		cfg.Backend, cfg.Pack = want.backend, false
		plain := cfg.MaxGraphs()
		cfg.Pack = true
		if packed := cfg.MaxGraphs(); plain != want.plain || packed != want.packed {
			t.Errorf("%s: at most %d graphs, packed %d; the comment says %d and %d", want.backend, plain, packed, want.plain, want.packed)
		}
	}
}
