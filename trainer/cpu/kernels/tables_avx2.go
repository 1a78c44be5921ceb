//go:build goexperiment.simd && amd64

package kernels

import (
	"math"
	"simd/archsimd"

	"temper/trainer/cpu/vector"
	"temper/trainer/gomlxhooks"
)

// attend8 answers a query from a table in the order of sums of the backend's attention in 8
// lanes. It reports false for heads that the backend adds in another order.
func attend8(l *lookup) bool {
	if l.dim%8 != 0 || l.dim == 128 {
		return false
	}
	blocks := (l.n + BlockTokens - 1) / BlockTokens
	l.scores = grow(l.scores, blocks*BlockTokens)
	for g := range l.queries {
		at := l.query + g*l.queryStride
		if l.dim == 32 {
			l.score832(l.q[at:][:32], blocks)
		} else {
			l.score8(l.q[at:][:l.dim], blocks)
		}
		l.soften8()
		for d := 0; d < l.dim; {
			if l.dim-d >= 4*8 {
				l.mix8x4(at, d)
				d += 4 * 8
				continue
			}
			if l.dim-d >= 2*8 {
				l.mix8x2(at, d)
				d += 2 * 8
				continue
			}
			l.mix8x1(at, d)
			d += 8
		}
	}
	return true
}

// score832 fills the scores of whole blocks, for heads of 32 dimensions.
func (l *lookup) score832(q []float32, blocks int) {
	q0 := archsimd.LoadFloat32x8(q[0:8])
	q1 := archsimd.LoadFloat32x8(q[8:16])
	q2 := archsimd.LoadFloat32x8(q[16:24])
	q3 := archsimd.LoadFloat32x8(q[24:32])
	for b := range blocks {
		keys, scores, stride := l.k[l.place(b*BlockTokens):], l.scores[b*BlockTokens:][:BlockTokens], l.stride
		for i := 0; i < BlockTokens; i += 4 {
			k0, k1, k2, k3 := keys[i*stride:][:32], keys[(i+1)*stride:][:32], keys[(i+2)*stride:][:32], keys[(i+3)*stride:][:32]
			v0 := fold8(q0.Mul(archsimd.LoadFloat32x8(k0[0:8])).Add(q1.Mul(archsimd.LoadFloat32x8(k0[8:16]))).Add(q2.Mul(archsimd.LoadFloat32x8(k0[16:24]))).Add(q3.Mul(archsimd.LoadFloat32x8(k0[24:32]))))
			v1 := fold8(q0.Mul(archsimd.LoadFloat32x8(k1[0:8])).Add(q1.Mul(archsimd.LoadFloat32x8(k1[8:16]))).Add(q2.Mul(archsimd.LoadFloat32x8(k1[16:24]))).Add(q3.Mul(archsimd.LoadFloat32x8(k1[24:32]))))
			v2 := fold8(q0.Mul(archsimd.LoadFloat32x8(k2[0:8])).Add(q1.Mul(archsimd.LoadFloat32x8(k2[8:16]))).Add(q2.Mul(archsimd.LoadFloat32x8(k2[16:24]))).Add(q3.Mul(archsimd.LoadFloat32x8(k2[24:32]))))
			v3 := fold8(q0.Mul(archsimd.LoadFloat32x8(k3[0:8])).Add(q1.Mul(archsimd.LoadFloat32x8(k3[8:16]))).Add(q2.Mul(archsimd.LoadFloat32x8(k3[16:24]))).Add(q3.Mul(archsimd.LoadFloat32x8(k3[24:32]))))
			sums := v0.ConcatAddPairs(v1).ConcatAddPairs(v2.ConcatAddPairs(v3))
			sums.Mul(archsimd.BroadcastFloat32x4(l.scale)).Store(scores[i:][:4])
		}
	}
}

// score8 is score832 for any number of dimensions.
func (l *lookup) score8(q []float32, blocks int) {
	half := len(q)
	if len(q) == 64 {
		half /= 2 // the terms of each half are added first
	}
	for b := range blocks {
		at := l.place(b * BlockTokens)
		for i := 0; i < BlockTokens; i += 4 {
			var folded [4]archsimd.Float32x4
			for j := range 4 {
				k := l.k[at:][:len(q)]
				sum := chain8(q[:half], k[:half])
				if half < len(q) {
					sum = sum.Add(chain8(q[half:], k[half:]))
				}
				folded[j] = fold8(sum)
				at += l.stride
			}
			add4(&folded).Mul(archsimd.BroadcastFloat32x4(l.scale)).Store(l.scores[b*BlockTokens+i:][:4])
		}
	}
}

// chain8 adds the products of two heads lane by lane.
func chain8(q, k []float32) archsimd.Float32x8 {
	sum := archsimd.BroadcastFloat32x8(0)
	for d := 0; d < len(q); d += 8 {
		sum = sum.Add(archsimd.LoadFloat32x8(q[d:][:8]).Mul(archsimd.LoadFloat32x8(k[d:][:8])))
	}
	return sum
}

// soften8 replaces the scores by weights. It adds the scores behind the last full vector term
// by term.
func (l *lookup) soften8() {
	w := l.scores[:l.n]
	most := w[0]
	for _, s := range w[1:] {
		if s > most {
			most = s
		}
	}
	full := len(w) / 8 * 8
	sums, shift := archsimd.BroadcastFloat32x8(0), archsimd.BroadcastFloat32x8(most)
	for i := 0; i < full; i += 8 {
		e := vector.ExpFloor8(archsimd.LoadFloat32x8(w[i:][:8]).Sub(shift))
		e.Store(w[i:][:8])
		sums = sums.Add(e)
	}
	var total float32
	if full > 0 {
		v := fold8(sums)
		v = v.ConcatAddPairs(v)
		total += v.GetElem(0) + v.GetElem(1)
	}
	for i, s := range w[full:] {
		if s == float32(math.Inf(-1)) {
			w[full+i] = 0
			continue
		}
		w[full+i] = gomlxhooks.Exp32(s - most)
		total += w[full+i]
	}
	var inverse float32
	if total > 0 {
		inverse = 1 / total
	}
	factor := archsimd.BroadcastFloat32x8(inverse)
	for i := 0; i < full; i += 8 {
		archsimd.LoadFloat32x8(w[i:][:8]).Mul(factor).Store(w[i:][:8])
	}
	for i := range w[full:] {
		w[full+i] *= inverse
	}
}

// mix8x1 adds the values of 8 dimensions from d on.
func (l *lookup) mix8x1(at, d int) {
	sum0 := archsimd.BroadcastFloat32x8(0)
	for b := 0; b*BlockTokens < l.n; b++ {
		values, stride := l.v[l.place(b*BlockTokens)+d:], l.stride
		for i, w := range l.scores[b*BlockTokens : min(b*BlockTokens+BlockTokens, l.n)] {
			if w != 0 {
				v, weight := values[i*stride:][:8], archsimd.BroadcastFloat32x8(w)
				sum0 = weight.MulAdd(archsimd.LoadFloat32x8(v[0:8]), sum0)
			}
		}
	}
	out := l.output[at+d:][:8]
	sum0.Store(out[0:8])
}

// mix8x2 adds the values of 16 dimensions from d on.
func (l *lookup) mix8x2(at, d int) {
	sum0 := archsimd.BroadcastFloat32x8(0)
	sum1 := archsimd.BroadcastFloat32x8(0)
	for b := 0; b*BlockTokens < l.n; b++ {
		values, stride := l.v[l.place(b*BlockTokens)+d:], l.stride
		for i, w := range l.scores[b*BlockTokens : min(b*BlockTokens+BlockTokens, l.n)] {
			if w != 0 {
				v, weight := values[i*stride:][:16], archsimd.BroadcastFloat32x8(w)
				sum0 = weight.MulAdd(archsimd.LoadFloat32x8(v[0:8]), sum0)
				sum1 = weight.MulAdd(archsimd.LoadFloat32x8(v[8:16]), sum1)
			}
		}
	}
	out := l.output[at+d:][:16]
	sum0.Store(out[0:8])
	sum1.Store(out[8:16])
}

// mix8x4 adds the values of 32 dimensions from d on.
func (l *lookup) mix8x4(at, d int) {
	sum0 := archsimd.BroadcastFloat32x8(0)
	sum1 := archsimd.BroadcastFloat32x8(0)
	sum2 := archsimd.BroadcastFloat32x8(0)
	sum3 := archsimd.BroadcastFloat32x8(0)
	for b := 0; b*BlockTokens < l.n; b++ {
		values, stride := l.v[l.place(b*BlockTokens)+d:], l.stride
		for i, w := range l.scores[b*BlockTokens : min(b*BlockTokens+BlockTokens, l.n)] {
			if w != 0 {
				v, weight := values[i*stride:][:32], archsimd.BroadcastFloat32x8(w)
				sum0 = weight.MulAdd(archsimd.LoadFloat32x8(v[0:8]), sum0)
				sum1 = weight.MulAdd(archsimd.LoadFloat32x8(v[8:16]), sum1)
				sum2 = weight.MulAdd(archsimd.LoadFloat32x8(v[16:24]), sum2)
				sum3 = weight.MulAdd(archsimd.LoadFloat32x8(v[24:32]), sum3)
			}
		}
	}
	out := l.output[at+d:][:32]
	sum0.Store(out[0:8])
	sum1.Store(out[8:16])
	sum2.Store(out[16:24])
	sum3.Store(out[24:32])
}

// fold8 adds the halves of a vector.
func fold8(v archsimd.Float32x8) archsimd.Float32x4 { return v.GetLo().Add(v.GetHi()) }

// add4 adds the numbers of each of four vectors.
func add4(v *[4]archsimd.Float32x4) archsimd.Float32x4 {
	return v[0].ConcatAddPairs(v[1]).ConcatAddPairs(v[2].ConcatAddPairs(v[3]))
}
