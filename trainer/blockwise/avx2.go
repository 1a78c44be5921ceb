//go:build goexperiment.simd && amd64

package blockwise

import (
	"math"
	"simd/archsimd"
	"unsafe"

	"temper/trainer/lanes"
)

// AVX2 are the kernels for AVX2. The backend computes their answers.
func AVX2() *Kernels {
	return &Kernels{product: multiply8, soften: soften8, pull: pull8}
}

type half = archsimd.Float32x8

// halfLanes is the number of float32 in a half vector.
const halfLanes = 8

func loadHalf(p unsafe.Pointer) half { return archsimd.LoadFloat32x8Array((*[halfLanes]float32)(p)) }

func storeHalf(v half, p unsafe.Pointer) { v.StoreArray((*[halfLanes]float32)(p)) }

func halfAt(s []float32, i int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)
}

// multiply8 takes tiles of four rows and 16 columns, then single rows of 8 columns. What
// is left of the columns goes to plain Go.
func multiply8(p product) {
	at := 0
	for ; p.columns-at >= halfLanes; at += halfLanes {
		r := 0
		if p.columns-at >= 2*halfLanes {
			for ; p.rows-r >= 4; r += 4 {
				p.tile4x16(r, at)
			}
			for ; r < p.rows; r++ {
				p.tile1x8(r, at)
				p.tile1x8(r, at+halfLanes)
			}
			at += halfLanes
			continue
		}
		for ; r < p.rows; r++ {
			p.tile1x8(r, at)
		}
	}
	if at < p.columns {
		rest := p
		rest.y, rest.out, rest.columns = p.y[at:], p.out[at:], p.columns-at
		multiplyScalar(rest)
	}
}

// tile4x16 computes 16 columns of four rows.
func (p *product) tile4x16(row, column int) {
	x, y := halfAt(p.x, row*p.xRow), halfAt(p.y, column)
	var a0, a1, b0, b1, c0, c1, d0, d1 half
	for k := range p.depth {
		y0, y1 := loadHalf(unsafe.Add(y, 4*k*p.yStep)), loadHalf(unsafe.Add(y, 4*k*p.yStep+4*halfLanes))
		at := unsafe.Add(x, 4*k*p.xStep)
		v := archsimd.BroadcastFloat32x8(*(*float32)(at))
		a0, a1 = v.MulAdd(y0, a0), v.MulAdd(y1, a1)
		v = archsimd.BroadcastFloat32x8(*(*float32)(unsafe.Add(at, 4*p.xRow)))
		b0, b1 = v.MulAdd(y0, b0), v.MulAdd(y1, b1)
		v = archsimd.BroadcastFloat32x8(*(*float32)(unsafe.Add(at, 8*p.xRow)))
		c0, c1 = v.MulAdd(y0, c0), v.MulAdd(y1, c1)
		v = archsimd.BroadcastFloat32x8(*(*float32)(unsafe.Add(at, 12*p.xRow)))
		d0, d1 = v.MulAdd(y0, d0), v.MulAdd(y1, d1)
	}
	for i, v := range [...]half{a0, a1, b0, b1, c0, c1, d0, d1} {
		p.put(v, row+i/2, column+i%2*halfLanes)
	}
}

// tile1x8 computes 8 columns of a row.
func (p *product) tile1x8(row, column int) {
	x, y := halfAt(p.x, row*p.xRow), halfAt(p.y, column)
	var sum half
	for k := range p.depth {
		v := archsimd.BroadcastFloat32x8(*(*float32)(unsafe.Add(x, 4*k*p.xStep)))
		sum = v.MulAdd(loadHalf(unsafe.Add(y, 4*k*p.yStep)), sum)
	}
	p.put(sum, row, column)
}

// put stores sums, or adds what is there.
func (p *product) put(sum half, row, column int) {
	at := halfAt(p.out, row*p.outRow+column)
	if p.add {
		sum = sum.Add(loadHalf(at))
	}
	storeHalf(sum, at)
}

// fold adds the lanes: each half to the other, then neighbors, then the rest.
func fold(v half) float32 {
	four := v.GetLo().Add(v.GetHi())
	two := four.ConcatAddPairs(four)
	return two.GetElem(0) + two.GetElem(1)
}

func soften8(row []float32, n int, scale float32) {
	s, full := archsimd.BroadcastFloat32x8(scale), n/halfLanes*halfLanes
	for i := 0; i < full; i += halfLanes {
		at := halfAt(row, i)
		storeHalf(loadHalf(at).Mul(s), at)
	}
	for i := full; i < n; i++ {
		row[i] *= scale
	}
	most := float32(math.Inf(-1))
	for _, x := range row[:n] {
		most = max(most, x)
	}
	m, acc := archsimd.BroadcastFloat32x8(most), archsimd.BroadcastFloat32x8(0)
	for i := 0; i < full; i += halfLanes {
		at := halfAt(row, i)
		x := lanes.ExpFloor8(loadHalf(at).Sub(m))
		storeHalf(x, at)
		acc = acc.Add(x)
	}
	all := fold(acc)
	for i, x := range row[full:n] {
		e := exp32(x - most)
		row[full+i] = e
		all += e
	}
	by := archsimd.BroadcastFloat32x8(1 / all)
	for i := 0; i < full; i += halfLanes {
		at := halfAt(row, i)
		storeHalf(loadHalf(at).Mul(by), at)
	}
	for i := full; i < n; i++ {
		row[i] /= all
	}
	clear(row[n:])
}

func pull8(dp, p []float32, n int, scale float32) {
	full, acc := n/halfLanes*halfLanes, archsimd.BroadcastFloat32x8(0)
	for i := 0; i < full; i += halfLanes {
		acc = loadHalf(halfAt(dp, i)).MulAdd(loadHalf(halfAt(p, i)), acc)
	}
	sum := fold(acc)
	for i := full; i < n; i++ {
		sum += dp[i] * p[i]
	}
	mean, s := archsimd.BroadcastFloat32x8(sum), archsimd.BroadcastFloat32x8(scale)
	for i := 0; i < full; i += halfLanes {
		at := halfAt(dp, i)
		storeHalf(loadHalf(at).Sub(mean).Mul(loadHalf(halfAt(p, i))).Mul(s), at)
	}
	for i := full; i < n; i++ {
		dp[i] = (dp[i] - sum) * p[i] * scale
	}
	clear(dp[n:])
}
