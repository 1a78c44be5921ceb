//go:build goexperiment.simd && amd64

package attention

import (
	"math"
	"unsafe"

	"temper/trainer/cpu/vector"
	"temper/trainer/gomlxhooks"
)

// AVX512 returns the kernels for AVX-512.
func AVX512() *Kernels {
	return &Kernels{answer: answer16, product: multiply16, soften: soften16, pull: pull16}
}

// wideTile and narrowTile are the columns, and tileRows the rows, of one call of a function.
const (
	wideTile   = 64
	narrowTile = 32
	tileRows   = 6
)

// multiply16 computes tiles of columns and six rows. Plain Go, which rounds sums differently,
// computes columns beyond a multiple of narrowTile.
func multiply16(p product) {
	for at := 0; at < p.columns; {
		columns, six, one := wideTile, mul6x64, mul1x64
		switch left := p.columns - at; {
		case left < narrowTile:
			rest := p
			rest.y, rest.out, rest.columns = p.y[at:], p.out[at:], left
			multiplyScalar(rest)
			return
		case left < wideTile:
			columns, six, one = narrowTile, mul6x32, mul1x32
		}
		p.tiles(at, six, one)
		at += columns
	}
}

// tiles computes the columns from one on.
func (p *product) tiles(column int, six, one func(x, y, out unsafe.Pointer, xRow, xStep, yStep, outRow, depth, add int)) {
	y, add := unsafe.Pointer(&p.y[column]), 0
	if p.add {
		add = 1
	}
	for r := 0; r < p.rows; {
		f, n := one, 1
		if p.rows-r >= tileRows {
			f, n = six, tileRows
		}
		f(unsafe.Pointer(&p.x[r*p.xRow]), y, unsafe.Pointer(&p.out[r*p.outRow+column]), 4*p.xRow, 4*p.xStep, 4*p.yStep, 4*p.outRow, p.depth, add)
		r += n
	}
}

// answer16 computes answers in the order of sums of the backend's attention in 16 lanes.
func answer16(s *Sequence, w *workspace) bool {
	if s.Dim != 32 && s.Dim != 64 && s.Dim != 128 {
		return false
	}
	groups := (s.Tokens + vector.Width - 1) / vector.Width
	stride := groups*vector.Width + apart
	keys, weights := grow(&w.keys, groups*vector.Width*s.Dim), grow(&w.weights, smallBlock*stride)
	turn(keys, s.Keys, s.Tokens, s.Dim, vector.Width)
	for head := range s.Queries {
		for from := 0; from < s.Tokens; from += smallBlock {
			n := min(smallBlock, s.Tokens-from)
			end := from + n
			for r := range n {
				row, seen := weights[r*stride:][:(end+vector.Width-1)/vector.Width*vector.Width], from+r+1
				vector.Scores512(unsafe.Pointer(&s.Queries[head].Data[(from+r)*s.Queries[head].Stride]), unsafe.Pointer(&keys[0]), unsafe.Pointer(&row[0]), s.Dim, (seen+vector.Width-1)/vector.Width, s.Scale)
				softmax16(row, seen)
			}
			multiply16(product{
				x: weights, xRow: stride, xStep: 1, y: s.Values.Data, yStep: s.Values.Stride,
				out: s.Answers[head].from(from).Data, outRow: s.Answers[head].Stride, rows: n, columns: s.Dim, depth: end,
			})
		}
	}
	return true
}

// softmax16 computes the softmax of the first n numbers of a row in the order of sums of the
// backend: full vectors, then the rest term by term. It sets the others to zero. The row has
// space for a full vector behind n.
func softmax16(row []float32, n int) {
	full := n / vector.Width * vector.Width
	top := vector.Splat(float32(math.Inf(-1)))
	for i := 0; i < full; i += vector.Width {
		top = top.Max(vector.Load(row, i))
	}
	most := vector.Largest(top)
	for _, x := range row[full:n] {
		most = max(most, x)
	}
	m, acc := vector.Splat(most), vector.Splat(0)
	for i := 0; i < full; i += vector.Width {
		x := vector.ExpRounded(vector.Load(row, i).Sub(m))
		vector.Store(x, row, i)
		acc = acc.Add(x)
	}
	var all float32
	if full > 0 {
		all = vector.Total(acc)
	}
	for i, x := range row[full:n] {
		e := gomlxhooks.Exp32(x - most)
		row[full+i] = e
		all += e
	}
	var inverse float32
	if all > 0 {
		inverse = 1 / all
	}
	by := vector.Splat(inverse)
	for i := 0; i < full; i += vector.Width {
		vector.Store(vector.Load(row, i).Mul(by), row, i)
	}
	for i := full; i < n; i++ {
		row[i] *= inverse
	}
	clear(row[n:])
}

// soften16 is softmax16 of scaled numbers, for any n: it computes the rest behind the last
// full vector in one masked vector.
func soften16(row []float32, n int, scale float32) {
	s := vector.Splat(scale)
	full := n / vector.Width * vector.Width
	top := vector.Splat(float32(math.Inf(-1)))
	for i := 0; i < full; i += vector.Width {
		x := vector.Load(row, i).Mul(s)
		vector.Store(x, row, i)
		top = top.Max(x)
	}
	for i := full; i < n; i++ {
		row[i] *= scale
	}
	most := vector.Largest(top)
	for _, x := range row[full:n] {
		most = max(most, x)
	}
	m, acc := vector.Splat(most), vector.Splat(0)
	for i := 0; i < full; i += vector.Width {
		x := vector.ExpRounded(vector.Load(row, i).Sub(m))
		vector.Store(x, row, i)
		acc = acc.Add(x)
	}
	all := vector.Total(acc)
	for i, x := range row[full:n] {
		e := gomlxhooks.Exp32(x - most)
		row[full+i] = e
		all += e
	}
	by := vector.Splat(1 / all)
	for i := 0; i < full; i += vector.Width {
		vector.Store(vector.Load(row, i).Mul(by), row, i)
	}
	for i := full; i < n; i++ {
		row[i] /= all
	}
	clear(row[n:])
}

func pull16(dp, p []float32, n int, scale float32) {
	full := n / vector.Width * vector.Width
	acc := vector.Splat(0)
	for i := 0; i < full; i += vector.Width {
		acc = vector.Load(dp, i).MulAdd(vector.Load(p, i), acc)
	}
	sum := vector.Total(acc)
	for i := full; i < n; i++ {
		sum += dp[i] * p[i]
	}
	mean, s := vector.Splat(sum), vector.Splat(scale)
	for i := 0; i < full; i += vector.Width {
		vector.Store(vector.Load(dp, i).Sub(mean).Mul(vector.Load(p, i)).Mul(s), dp, i)
	}
	for i := full; i < n; i++ {
		dp[i] = (dp[i] - sum) * p[i] * scale
	}
	clear(dp[n:])
}

//go:noescape
func mul6x64(x, y, out unsafe.Pointer, xRow, xStep, yStep, outRow, depth, add int)

//go:noescape
func mul1x64(x, y, out unsafe.Pointer, xRow, xStep, yStep, outRow, depth, add int)

//go:noescape
func mul6x32(x, y, out unsafe.Pointer, xRow, xStep, yStep, outRow, depth, add int)

//go:noescape
func mul1x32(x, y, out unsafe.Pointer, xRow, xStep, yStep, outRow, depth, add int)
