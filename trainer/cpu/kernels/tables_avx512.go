//go:build goexperiment.simd && amd64

package kernels

import (
	"math"
	"simd/archsimd"

	"temper/trainer/cpu/vector"
	"temper/trainer/gomlxhooks"
)

// attend16 answers a query from a table in the order of sums of the backend's attention in 16
// lanes. It reports false for heads that the backend adds in another order.
func attend16(l *lookup) bool {
	if l.dim%16 != 0 {
		return false
	}
	blocks := (l.n + BlockTokens - 1) / BlockTokens
	l.scores = grow(l.scores, blocks*BlockTokens)
	for g := range l.queries {
		at := l.query + g*l.queryStride
		if l.dim == 32 {
			l.score1632(l.q[at:][:32], blocks)
		} else {
			l.score16(l.q[at:][:l.dim], blocks)
		}
		l.soften16()
		for d := 0; d < l.dim; {
			if l.dim-d >= 4*16 {
				l.mix16x4(at, d)
				d += 4 * 16
				continue
			}
			if l.dim-d >= 2*16 {
				l.mix16x2(at, d)
				d += 2 * 16
				continue
			}
			l.mix16x1(at, d)
			d += 16
		}
	}
	return true
}

// score1632 fills the scores of whole blocks, for heads of 32 dimensions.
func (l *lookup) score1632(q []float32, blocks int) {
	q0 := archsimd.LoadFloat32x16(q[0:16])
	q1 := archsimd.LoadFloat32x16(q[16:32])
	for b := range blocks {
		keys, scores, stride := l.k[l.place(b*BlockTokens):], l.scores[b*BlockTokens:][:BlockTokens], l.stride
		for i := 0; i < BlockTokens; i += 4 {
			k0, k1, k2, k3 := keys[i*stride:][:32], keys[(i+1)*stride:][:32], keys[(i+2)*stride:][:32], keys[(i+3)*stride:][:32]
			v0 := fold16(q0.Mul(archsimd.LoadFloat32x16(k0[0:16])).Add(q1.Mul(archsimd.LoadFloat32x16(k0[16:32]))))
			v1 := fold16(q0.Mul(archsimd.LoadFloat32x16(k1[0:16])).Add(q1.Mul(archsimd.LoadFloat32x16(k1[16:32]))))
			v2 := fold16(q0.Mul(archsimd.LoadFloat32x16(k2[0:16])).Add(q1.Mul(archsimd.LoadFloat32x16(k2[16:32]))))
			v3 := fold16(q0.Mul(archsimd.LoadFloat32x16(k3[0:16])).Add(q1.Mul(archsimd.LoadFloat32x16(k3[16:32]))))
			sums := v0.ConcatAddPairs(v1).ConcatAddPairs(v2.ConcatAddPairs(v3))
			sums.Mul(archsimd.BroadcastFloat32x4(l.scale)).Store(scores[i:][:4])
		}
	}
}

// score16 is score1632 for any number of dimensions.
func (l *lookup) score16(q []float32, blocks int) {
	half := len(q)
	if len(q) == 128 {
		half /= 2 // the terms of each half are added first
	}
	for b := range blocks {
		at := l.place(b * BlockTokens)
		for i := 0; i < BlockTokens; i += 4 {
			var folded [4]archsimd.Float32x4
			for j := range 4 {
				k := l.k[at:][:len(q)]
				sum := chain16(q[:half], k[:half])
				if half < len(q) {
					sum = sum.Add(chain16(q[half:], k[half:]))
				}
				folded[j] = fold16(sum)
				at += l.stride
			}
			add4(&folded).Mul(archsimd.BroadcastFloat32x4(l.scale)).Store(l.scores[b*BlockTokens+i:][:4])
		}
	}
}

// chain16 adds the products of two heads lane by lane.
func chain16(q, k []float32) archsimd.Float32x16 {
	sum := archsimd.BroadcastFloat32x16(0)
	for d := 0; d < len(q); d += 16 {
		sum = sum.Add(archsimd.LoadFloat32x16(q[d:][:16]).Mul(archsimd.LoadFloat32x16(k[d:][:16])))
	}
	return sum
}

// soften16 replaces the scores by weights. It adds the scores behind the last full vector term
// by term.
func (l *lookup) soften16() {
	w := l.scores[:l.n]
	most := w[0]
	for _, s := range w[1:] {
		if s > most {
			most = s
		}
	}
	full := len(w) / 16 * 16
	sums, shift := archsimd.BroadcastFloat32x16(0), archsimd.BroadcastFloat32x16(most)
	for i := 0; i < full; i += 16 {
		e := vector.ExpRounded(archsimd.LoadFloat32x16(w[i:][:16]).Sub(shift))
		e.Store(w[i:][:16])
		sums = sums.Add(e)
	}
	var total float32
	if full > 0 {
		v := fold16(sums)
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
	factor := archsimd.BroadcastFloat32x16(inverse)
	for i := 0; i < full; i += 16 {
		archsimd.LoadFloat32x16(w[i:][:16]).Mul(factor).Store(w[i:][:16])
	}
	for i := range w[full:] {
		w[full+i] *= inverse
	}
}

// mix16x1 adds the values of 16 dimensions from d on.
func (l *lookup) mix16x1(at, d int) {
	sum0 := archsimd.BroadcastFloat32x16(0)
	for b := 0; b*BlockTokens < l.n; b++ {
		values, stride := l.v[l.place(b*BlockTokens)+d:], l.stride
		for i, w := range l.scores[b*BlockTokens : min(b*BlockTokens+BlockTokens, l.n)] {
			if w != 0 {
				v, weight := values[i*stride:][:16], archsimd.BroadcastFloat32x16(w)
				sum0 = weight.MulAdd(archsimd.LoadFloat32x16(v[0:16]), sum0)
			}
		}
	}
	out := l.output[at+d:][:16]
	sum0.Store(out[0:16])
}

// mix16x2 adds the values of 32 dimensions from d on.
func (l *lookup) mix16x2(at, d int) {
	sum0 := archsimd.BroadcastFloat32x16(0)
	sum1 := archsimd.BroadcastFloat32x16(0)
	for b := 0; b*BlockTokens < l.n; b++ {
		values, stride := l.v[l.place(b*BlockTokens)+d:], l.stride
		for i, w := range l.scores[b*BlockTokens : min(b*BlockTokens+BlockTokens, l.n)] {
			if w != 0 {
				v, weight := values[i*stride:][:32], archsimd.BroadcastFloat32x16(w)
				sum0 = weight.MulAdd(archsimd.LoadFloat32x16(v[0:16]), sum0)
				sum1 = weight.MulAdd(archsimd.LoadFloat32x16(v[16:32]), sum1)
			}
		}
	}
	out := l.output[at+d:][:32]
	sum0.Store(out[0:16])
	sum1.Store(out[16:32])
}

// mix16x4 adds the values of 64 dimensions from d on.
func (l *lookup) mix16x4(at, d int) {
	sum0 := archsimd.BroadcastFloat32x16(0)
	sum1 := archsimd.BroadcastFloat32x16(0)
	sum2 := archsimd.BroadcastFloat32x16(0)
	sum3 := archsimd.BroadcastFloat32x16(0)
	for b := 0; b*BlockTokens < l.n; b++ {
		values, stride := l.v[l.place(b*BlockTokens)+d:], l.stride
		for i, w := range l.scores[b*BlockTokens : min(b*BlockTokens+BlockTokens, l.n)] {
			if w != 0 {
				v, weight := values[i*stride:][:64], archsimd.BroadcastFloat32x16(w)
				sum0 = weight.MulAdd(archsimd.LoadFloat32x16(v[0:16]), sum0)
				sum1 = weight.MulAdd(archsimd.LoadFloat32x16(v[16:32]), sum1)
				sum2 = weight.MulAdd(archsimd.LoadFloat32x16(v[32:48]), sum2)
				sum3 = weight.MulAdd(archsimd.LoadFloat32x16(v[48:64]), sum3)
			}
		}
	}
	out := l.output[at+d:][:64]
	sum0.Store(out[0:16])
	sum1.Store(out[16:32])
	sum2.Store(out[32:48])
	sum3.Store(out[48:64])
}

// fold16 adds the quarters of a vector.
func fold16(v archsimd.Float32x16) archsimd.Float32x4 { return fold8(v.GetLo().Add(v.GetHi())) }
