package kernels

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"temper/internal/rl"
	"temper/trainer/cpu/attention"
)

// reach is an attention over keys that lie one behind the other, and over the same keys in
// blocks that do not.
type reach struct {
	n, dim, kv, group int
	q, k, v           []float32 // contiguous: [n, kv, dim]
	tk, tv            []float32 // in blocks
	table             []float32
}

func newReach(n, dim, kv, group int) *reach {
	r := &reach{n: n, dim: dim, kv: kv, group: group}
	drawn := 0
	random := func(n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			drawn++
			out[i] = (rl.Uniform(5, drawn) - 0.5) * 4
		}
		return out
	}
	blocks := (n + BlockTokens - 1) / BlockTokens
	r.q, r.k, r.v = random(kv*group*dim), random(n*kv*dim), random(n*kv*dim)
	r.tk, r.tv = random(2*blocks*BlockTokens*kv*dim), random(2*blocks*BlockTokens*kv*dim)
	r.table = []float32{float32(n - 3)}
	for b := range blocks {
		id := 2*(blocks-1-b) + 1
		r.table = append(r.table, float32(id))
		for i := b * BlockTokens; i < min(n, (b+1)*BlockTokens); i++ {
			at := (id*BlockTokens + i%BlockTokens) * kv * dim
			copy(r.tk[at:], r.k[i*kv*dim:][:kv*dim])
			copy(r.tv[at:], r.v[i*kv*dim:][:kv*dim])
		}
	}
	return r
}

// run answers the heads of one key/value head.
func (r *reach) run(f attentionFunc, head int, table bool, out, scores []float32) bool {
	k, v, bias, limit := r.k, r.v, []float32(nil), r.n
	if table {
		k, v, bias, limit = r.tk, r.tv, r.table, 3
	}
	return f(r.q, k, v, out, head*r.group*r.dim, head*r.dim, r.kv*r.group*r.dim, r.kv*r.dim, r.dim, nil, nil, 0, bias, 0,
		scores, r.group, 1, r.n, r.dim, float32(1/math.Sqrt(float64(r.dim))), false, 1, limit)
}

// TestTablesGiveTheBitsOfRows holds attention through tables against the backend's own
// attention over contiguous keys.
func TestTablesGiveTheBitsOfRows(t *testing.T) {
	variants := testedTables()
	if len(variants) == 0 {
		t.Skip("the backend has no kernels for attention in this binary")
	}
	for name, v := range variants {
		for _, dim := range []int{8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 256} {
			for _, n := range []int{3, 7, 15, 16, 17, 33, 100, 320} {
				r := newReach(n, dim, 2, 3)
				for head := range r.kv {
					want, got := make([]float32, len(r.q)), make([]float32, len(r.q))
					scores := make([]float32, 3*n+64)
					if !r.run(v.inner, head, false, want, scores) || !r.run(v.tables, head, true, got, scores) {
						t.Fatalf("%s: not computed", name)
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s: %d keys of %d: tables give other bits than rows", name, n, dim)
					}
				}
			}
		}
	}
}

// TestSequencesGiveTheBitsOfRows holds the answers to whole sequences against the backend's
// own attention, over rows of two sequences.
func TestSequencesGiveTheBitsOfRows(t *testing.T) {
	for name, v := range testedTables() {
		for _, dim := range []int{8, 16, 24, 32, 36, 64, 80, 128, 256} {
			for _, n := range []int{1, 7, 17, 24, 51, 130} {
				s := newSequences(n, dim)
				want, got := make([]float32, len(s.q)), make([]float32, len(s.q))
				s.byBackend(t, v.inner, want)
				s.byBlocks(v.tables, got)
				if !slices.Equal(got, want) {
					t.Errorf("%s: %d tokens of %d: blocks give other bits than rows", name, n, dim)
				}
			}
		}
	}
}

// BenchmarkSequences compares a whole sequence in blocks with the backend's rows.
func BenchmarkSequences(b *testing.B) {
	for name, v := range testedTables() {
		for _, n := range []int{256, 2048} {
			for _, dim := range []int{32, 128} {
				s := newSequences(n, dim)
				out := make([]float32, len(s.q))
				b.Run(fmt.Sprintf("%s/%dx%d/rows", name, n, dim), func(b *testing.B) {
					for range b.N {
						s.byBackend(b, v.inner, out)
					}
				})
				b.Run(fmt.Sprintf("%s/%dx%d/blocks", name, n, dim), func(b *testing.B) {
					for range b.N {
						s.byBlocks(v.tables, out)
					}
				})
			}
		}
	}
}

// sequences are two of n tokens, with four heads of queries and two of keys.
type sequences struct {
	n, dim  int
	q, k, v []float32 // [2*n, heads, dim]
}

func newSequences(n, dim int) sequences {
	random := func(part, n int) []float32 {
		out := make([]float32, n)
		for i := range out {
			out[i] = (rl.Uniform(uint64(part), i) - 0.5) * 4
		}
		return out
	}
	return sequences{n, dim, random(1, 2*n*4*dim), random(2, 2*n*2*dim), random(3, 2*n*2*dim)}
}

func (s sequences) byBackend(tb testing.TB, inner attentionFunc, out []float32) {
	whole, scale := inner.whole(), float32(1/math.Sqrt(float64(s.dim)))
	for row := range 2 {
		for kv := range 2 {
			at := row * s.n
			if !whole(s.q, s.k, s.v, out, (at*4+kv*2)*s.dim, (at*2+kv)*s.dim, 4*s.dim, 2*s.dim, s.dim, 2, s.n, s.dim, scale) {
				tb.Fatal("not computed")
			}
		}
	}
}

func (s sequences) byBlocks(f attentionFunc, out []float32) {
	header := attention.Header(2, s.n, 4, 2, s.dim)
	for part := range 2 * 2 {
		f(s.q, slices.Concat(s.k, s.v), header, out, part*s.dim, 0, 0, 0, 0, nil, nil, 0, []float32{float32(attention.Answer)}, 0,
			nil, 2, s.n, s.n, s.dim, 1, true, s.n, s.n)
	}
}

// TestTermByTermGivesTheOrderOfTheBackend is for builds without kernels.
func TestTermByTermGivesTheOrderOfTheBackend(t *testing.T) {
	r := newReach(37, 24, 2, 2)
	got, want := make([]float32, len(r.q)), make([]float32, len(r.q))
	r.run(withTables(nil, nil, nil), 1, true, got, nil)
	for g := range r.group {
		at := (r.group + g) * r.dim
		scores, most, sum := make([]float32, r.n), float32(math.Inf(-1)), float32(0)
		for i := range scores {
			var dot float32
			for d := range r.dim {
				dot += r.q[at+d] * r.k[(i*r.kv+1)*r.dim+d]
			}
			scores[i] = dot * float32(1/math.Sqrt(float64(r.dim)))
			most = max(most, scores[i])
		}
		for i := range scores {
			scores[i] = float32(math.Exp(float64(scores[i] - most)))
			sum += scores[i]
		}
		for i := range scores {
			scores[i] *= 1 / sum
			for d := range r.dim {
				want[at+d] += scores[i] * r.v[(i*r.kv+1)*r.dim+d]
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Error("another order of sums")
	}
}

// BenchmarkTables compares one query through a table with one over a row.
func BenchmarkTables(b *testing.B) {
	for name, v := range testedTables() {
		for _, n := range []int{128, 512} {
			r := newReach(n, 32, 2, 2)
			out, scores := make([]float32, len(r.q)), make([]float32, 2*n+64)
			for _, table := range []bool{false, true} {
				f := v.inner
				if table {
					f = v.tables
				}
				b.Run(name+map[bool]string{false: "/row", true: "/table"}[table]+"/"+time.Duration(n).String(), func(b *testing.B) {
					for b.Loop() {
						r.run(f, 1, table, out, scores)
					}
				})
			}
		}
	}
}
