package model_test

import (
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"

	"temper/trainer/model"
)

// cached drives DecodeStep by hand.
type cached struct {
	exec   *ml.Exec
	cfg    model.Config
	rows   int
	width  int // of the tables
	length int // blocks of each sequence
	caches []any
}

func newCached(t *testing.T, cfg model.Config, ts []model.Tensor, rows, length int, gather bool) *cached {
	t.Helper()
	store := ml.NewStore()
	if err := model.ImportDecode(store, cfg, model.ByName(ts)); err != nil {
		t.Fatal(err)
	}
	exec, err := ml.NewExec(backend(t), store, func(s *ml.Scope, in []*graph.Node) []*graph.Node {
		hidden, caches := model.DecodeStep(s, cfg, model.DecodeInputs{
			Tokens: in[0], Rows: in[1], Columns: in[2], Positions: in[3], Queries: in[4], Lengths: in[5], Answers: in[6],
			Tables: in[7], MaxContext: length, Gather: gather,
		}, in[8:])
		return append([]*graph.Node{model.DecodeLogits(s, cfg, hidden)}, caches...)
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cached{exec: exec, cfg: cfg, rows: rows, width: model.TableWidth(length), length: length / model.BlockTokens}
	for range 2 * cfg.NumHiddenLayers {
		cache := tensors.FromShape(cfg.CacheShape(rows*length, c.width))
		tensors.MustMutableFlatData(cache, func(flat []float32) {
			for i := range flat {
				flat[i] = float32(i%17) - 8 // what an earlier sequence left
			}
		})
		c.caches = append(c.caches, cache)
	}
	return c
}

// step feeds next[row] at position at[row] and returns the logits of each fed
// token by row.
func (c *cached) step(t *testing.T, chunk int, next [][]int32, at []int) [][][]float64 {
	t.Helper()
	var tokens, rowOf, places, columns, positions, answers []int32
	tables := make([][][]float32, c.rows)
	for row := range tables {
		tables[row] = [][]float32{make([]float32, c.width)}
		for b := range c.length { // the blocks of the sequences lie among each other, and backwards
			tables[row][0][1+b] = float32((c.length-1-b)*c.rows + row)
		}
	}
	queries, lengths := make([][]int32, chunk), make([][]int32, chunk)
	for k := range chunk {
		queries[k], lengths[k] = make([]int32, c.rows), make([]int32, c.rows)
	}
	for row := range next {
		tables[row][0][0] = float32(at[row])
		for k, token := range next[row] {
			queries[k][row], lengths[k][row] = int32(len(tokens)), int32(k+1)
			position := at[row] + k
			place := int(tables[row][0][1+position/model.BlockTokens])*model.BlockTokens + position%model.BlockTokens
			places, columns = append(places, int32(place/c.width)), append(columns, int32(place%c.width))
			answers = append(answers, int32(k*c.rows+row))
			tokens, rowOf = append(tokens, token), append(rowOf, int32(row))
			positions = append(positions, int32(at[row]+k))
		}
	}
	out, err := c.exec.Call(append([]any{tokens, places, columns, positions, queries, lengths, answers, tables}, c.caches...)...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.caches {
		c.caches[i] = out[1+i]
	}
	flat := rows(t, out[0], c.cfg.PaddedVocab())
	logits := make([][][]float64, len(next))
	for i, row := range rowOf {
		logits[row] = append(logits[row], flat[i])
	}
	return logits
}

// TestCachedDecodeEqualsForward feeds three sequences at their own pace, in
// chunks and token by token, over caches that hold an earlier sequence's values.
func TestCachedDecodeEqualsForward(t *testing.T) {
	for i := range 4 {
		tied, gather := i%2 == 0, i/2 == 1
		cfg := small(tied)
		ts := weightsOf(t, cfg)
		ref := newReference(cfg, ts)
		c := newCached(t, cfg, ts, 4, 32, gather)
		all := [][]int32{sentence(1, 14), sentence(2, 9), nil, sentence(3, 20)}
		got := make([][][]float64, 4)
		for stepNo := range 60 {
			next, at, fed := make([][]int32, 4), make([]int, 4), 0
			for row := range all {
				n := min([]int{1, 3, 0, 4}[(row+stepNo)%4], len(all[row])-len(got[row]))
				at[row], next[row] = len(got[row]), all[row][len(got[row]):len(got[row])+n]
				fed += n
			}
			if fed == 0 {
				continue
			}
			for row, logits := range c.step(t, 4, next, at) {
				got[row] = append(got[row], logits...)
			}
		}
		for row, tokens := range all {
			want := ref.logits(tokens)
			if len(got[row]) != len(want) {
				t.Fatalf("row %d: %d of %d tokens fed", row, len(got[row]), len(want))
			}
			for i := range want {
				for pad := range got[row][i][cfg.VocabSize:] {
					if v := got[row][i][cfg.VocabSize+pad]; v > -1e29 || math.IsNaN(v) {
						t.Fatalf("padding column %d scores %v", pad, v)
					}
				}
				got[row][i] = got[row][i][:cfg.VocabSize]
			}
			near(t, "cached decode", got[row], want, rounding)
		}
	}
}

// TestChunkAndSingleTokensLeaveTheSameBits is what makes eviction invisible.
// Both ways feed four tokens a step, so that the products have equal sizes.
func TestChunkAndSingleTokensLeaveTheSameBits(t *testing.T) {
	cfg := small(true)
	ts := weightsOf(t, cfg)
	tokens := sentence(4, 20)
	chunks, singles := newCached(t, cfg, ts, 4, 32, false), newCached(t, cfg, ts, 4, 32, false)
	var got, want [][]float64
	for i := range tokens {
		next := [][]int32{{3}, tokens[i : i+1], {5}, {7}}
		want = append(want, singles.step(t, 4, next, []int{i, i, i, i})[1]...)
	}
	for i := 0; i < len(tokens); i += 4 {
		got = append(got, chunks.step(t, 4, [][]int32{nil, nil, tokens[i : i+4]}, []int{0, 0, i})[2]...)
	}
	near(t, "chunks of four", got, want, 0)
}

// TestDecodeEqualsForward holds the two graphs of the network against each
// other, four sequences of uneven lengths that move at their own pace.
func TestDecodeEqualsForward(t *testing.T) {
	cfg := small(true)
	ts := weightsOf(t, cfg)
	all := [][]int32{sentence(1, 3), sentence(2, 17), sentence(3, 8), sentence(4, 31)}
	c := newCached(t, cfg, ts, 5, 32, false)
	got := make([][][]float64, len(all))
	for stepNo := range 60 {
		next, at, fed := make([][]int32, 5), make([]int, 5), 0
		for row := range all {
			n := min((row+stepNo)%4, len(all[row])-len(got[row]))
			at[row], next[row] = len(got[row]), all[row][len(got[row]):len(got[row])+n]
			fed += n
		}
		if fed == 0 {
			continue
		}
		for row, logits := range c.step(t, 3, next, at) {
			for _, l := range logits {
				got[row] = append(got[row], l[:cfg.VocabSize])
			}
		}
	}
	for row, tokens := range all {
		want := forward(t, storeOf(t, cfg, ts), cfg, model.Options{}, [][]int32{tokens}, nil, nil)
		near(t, "decoded", got[row], want, rounding)
	}
}
