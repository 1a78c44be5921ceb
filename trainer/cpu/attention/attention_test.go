package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// problem is a call with its dimensions.
type problem struct {
	batch, tokens, heads, kv, dim int
	segments                      []int // lengths within each row; nil for one
	q, k, v, do                   []float32
}

func newProblem(p problem) problem {
	draw := rand.New(rand.NewPCG(uint64(p.tokens), uint64(p.dim)))
	fill := func(heads int) []float32 {
		out := make([]float32, p.batch*p.tokens*heads*p.dim)
		for i := range out {
			out[i] = float32(draw.NormFloat64())
		}
		return out
	}
	p.q, p.k, p.v, p.do = fill(p.heads), fill(p.kv), fill(p.kv), fill(p.heads)
	return p
}

func (p problem) header() []float32 {
	h := Header(p.batch, p.tokens, p.heads, p.kv, p.dim)
	for range p.batch {
		for id, n := range p.segments {
			h = append(h, slices.Repeat([]float32{float32(id)}, n)...)
		}
	}
	return h
}

func (p problem) answers(k *Kernels) []float32 {
	out := make([]float32, len(p.q))
	for i := range p.batch * p.kv {
		k.Call(Answer, i, p.q, slices.Concat(p.k, p.v), p.header(), out, nil)
	}
	return out
}

// gradients are those of queries, keys and values, one behind the other.
func (p problem) gradients(k *Kernels) []float32 {
	x := slices.Concat(p.q, p.k, p.v)
	out := slices.Repeat([]float32{float32(math.NaN())}, len(x)) // what a buffer held before
	for i := range p.batch * p.kv {
		k.Call(Gradient, i, x, p.do, p.header(), out, nil)
	}
	return out
}

// plain computes answers and gradients in double precision, with whole matrices.
func (p problem) plain() (answers, gradients []float64) {
	answers, gradients = make([]float64, len(p.q)), make([]float64, len(p.q)+2*len(p.k))
	dq, dk, dv := gradients[:len(p.q)], gradients[len(p.q):][:len(p.k)], gradients[len(p.q)+len(p.k):]
	starts := make([]int, 0, p.tokens)
	for at := 0; len(starts) < p.tokens; {
		n := p.tokens
		if p.segments != nil {
			n = p.segments[at]
		}
		starts, at = append(starts, slices.Repeat([]int{len(starts)}, n)...), at+1
	}
	scale := 1 / math.Sqrt(float64(p.dim))
	for b := range p.batch {
		for h := range p.heads {
			kv := h / (p.heads / p.kv)
			for i := range p.tokens {
				q := ((b*p.tokens+i)*p.heads + h) * p.dim
				key := func(j int) int { return ((b*p.tokens+j)*p.kv + kv) * p.dim }
				weights, grads, all, mean := make([]float64, p.tokens), make([]float64, p.tokens), 0.0, 0.0
				for j := starts[i]; j <= i; j++ {
					s := 0.0
					for d := range p.dim {
						s += float64(p.q[q+d]) * float64(p.k[key(j)+d])
					}
					weights[j] = math.Exp(s * scale)
					all += weights[j]
				}
				for j := starts[i]; j <= i; j++ {
					weights[j] /= all
					for d := range p.dim {
						answers[q+d] += weights[j] * float64(p.v[key(j)+d])
						grads[j] += float64(p.do[q+d]) * float64(p.v[key(j)+d])
						dv[key(j)+d] += weights[j] * float64(p.do[q+d])
					}
					mean += weights[j] * grads[j]
				}
				for j := starts[i]; j <= i; j++ {
					ds := weights[j] * (grads[j] - mean) * scale
					for d := range p.dim {
						dq[q+d] += ds * float64(p.k[key(j)+d])
						dk[key(j)+d] += ds * float64(p.q[q+d])
					}
				}
			}
		}
	}
	return answers, gradients
}

func problems() []problem {
	return []problem{
		{batch: 1, tokens: 1, heads: 1, kv: 1, dim: 32}, {batch: 2, tokens: 47, heads: 4, kv: 2, dim: 32},
		{batch: 1, tokens: 131, heads: 2, kv: 2, dim: 64}, {batch: 1, tokens: 70, heads: 3, kv: 1, dim: 128},
		{batch: 2, tokens: 60, heads: 2, kv: 1, dim: 24}, {batch: 1, tokens: 65, heads: 1, kv: 1, dim: 96},
		{batch: 2, tokens: 90, heads: 2, kv: 1, dim: 32, segments: []int{1, 50, 16, 23}},
		{batch: 1, tokens: 1030, heads: 1, kv: 1, dim: 32},
	}
}

// TestAgainstPlainAttention compares each kind of kernels with double precision: within
// 1e-5 of the largest value.
func TestAgainstPlainAttention(t *testing.T) {
	for _, p := range problems() {
		p = newProblem(p)
		wantAnswers, wantGradients := p.plain()
		for name, k := range available() {
			at := fmt.Sprintf("%s %dx%d, %d of %d heads of %d", name, p.batch, p.tokens, p.heads, p.kv, p.dim)
			near(t, at+": answers", p.answers(k), wantAnswers)
			near(t, at+": gradients", p.gradients(k), wantGradients)
		}
	}
}

func near(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	most, worst := 0.0, 0.0
	for i, w := range want {
		most = max(most, math.Abs(w))
		if d := math.Abs(float64(got[i]) - w); !(d <= worst) {
			worst = d
		}
	}
	if !(worst <= 1e-5*most) {
		t.Errorf("%s: off by %g of %g", what, worst, most)
	}
}

// TestFiniteDifferences moves single inputs and looks at what the answers, weighted with
// the gradient, do. Answers of the scalar kernels are exact enough for that.
func TestFiniteDifferences(t *testing.T) {
	p := newProblem(problem{batch: 1, tokens: 9, heads: 2, kv: 1, dim: 32})
	total := func() float64 {
		answers, _ := p.plain()
		sum := 0.0
		for i, a := range answers {
			sum += a * float64(p.do[i])
		}
		return sum
	}
	for name, k := range available() {
		grads, at := p.gradients(k), 0
		for _, x := range [][]float32{p.q, p.k, p.v} {
			for i := 0; i < len(x); i += 37 {
				const step = 1.0 / 256 // exact in float32 at this size up to rounding, which is read back
				was := x[i]
				x[i] = was + step
				up, high := total(), float64(x[i])
				x[i] = was - step
				slope := (up - total()) / (high - float64(x[i]))
				x[i] = was
				if got := float64(grads[at+i]); math.Abs(got-slope) > 1e-3*max(1, math.Abs(slope)) {
					t.Errorf("%s: gradient of input %d is %g, the slope is %g", name, at+i, got, slope)
				}
			}
			at += len(x)
		}
	}
}

// TestSegmentsAreSequences: what lies beside a sequence in its row changes no bit.
func TestSegmentsAreSequences(t *testing.T) {
	p := newProblem(problem{batch: 1, tokens: 120, heads: 2, kv: 1, dim: 32, segments: []int{33, 70, 17}})
	part := func(x []float32, heads int) []float32 { return x[33*heads*p.dim : 103*heads*p.dim] }
	alone := problem{batch: 1, tokens: 70, heads: 2, kv: 1, dim: 32, q: part(p.q, 2), k: part(p.k, 1), v: part(p.v, 1), do: part(p.do, 2)}
	for name, k := range available() {
		if !slices.Equal(part(p.answers(k), 2), alone.answers(k)) {
			t.Errorf("%s: answers differ in a row with others", name)
		}
		if !slices.Equal(part(p.gradients(k), 2), alone.gradients(k)[:len(alone.q)]) {
			t.Errorf("%s: gradients of queries differ in a row with others", name)
		}
	}
}

func BenchmarkGradient(b *testing.B) {
	p := newProblem(problem{batch: 1, tokens: 2048, heads: 2, kv: 1, dim: 32})
	for name, k := range available() {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				p.gradients(k)
			}
		})
		b.Run(name+"/answers", func(b *testing.B) {
			for range b.N {
				p.answers(k)
			}
		})
	}
}
