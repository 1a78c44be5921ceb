//go:build goexperiment.simd && amd64

package attention

import (
	"math"
	"simd/archsimd"
	"unsafe"

	"temper/trainer/cpu/vector"
	"temper/trainer/gomlxhooks"
)

// AVX2 returns the kernels for AVX2.
func AVX2() *Kernels {
	return &Kernels{answer: answer8, product: multiply8, soften: soften8, pull: pull8}
}

type half = archsimd.Float32x8

// halfLanes is the number of float32 in a half vector.
const halfLanes = 8

func loadHalf(p unsafe.Pointer) half { return archsimd.LoadFloat32x8Array((*[halfLanes]float32)(p)) }

func storeHalf(v half, p unsafe.Pointer) { v.StoreArray((*[halfLanes]float32)(p)) }

func halfAt(s []float32, i int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(s)), 4*i)
}

// keyGroup is the number of columns of one call of the functions for AVX2: two vectors.
const keyGroup = 2 * halfLanes

// multiply8 computes tiles of 16 columns and six rows, then rows of 8 columns. Plain Go
// computes the remaining columns.
func multiply8(p product) {
	at := 0
	for ; p.columns-at >= keyGroup; at += keyGroup {
		p.tiles(at, mul6x16, mul1x16)
	}
	if p.columns-at >= halfLanes {
		for r := range p.rows {
			p.tile1x8(r, at)
		}
		at += halfLanes
	}
	if at < p.columns {
		rest := p
		rest.y, rest.out, rest.columns = p.y[at:], p.out[at:], p.columns-at
		multiplyScalar(rest)
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

// put stores sums, or adds them to the stored ones.
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

// answer8 computes answers in the order of sums of the backend's attention in 8 lanes.
func answer8(s *Sequence, w *workspace) bool {
	if s.Dim%halfLanes != 0 {
		return false
	}
	groups := (s.Tokens + keyGroup - 1) / keyGroup
	weights := Rows{nil, groups*keyGroup + apart}
	weights.Data = grow(&w.weights, smallBlock*weights.Stride)
	keys := grow(&w.keys, groups*keyGroup*s.Dim)
	turn(keys, s.Keys, s.Tokens, s.Dim, keyGroup)
	for head := range s.Queries {
		for from := 0; from < s.Tokens; from += smallBlock {
			n := min(smallBlock, s.Tokens-from)
			end := from + n
			s.score8(head, from, n, keys, weights)
			for r := range n {
				softmax8(weights.from(r).Data[:(end+keyGroup-1)/keyGroup*keyGroup], from+r+1)
			}
			multiply8(product{
				x: weights.Data, xRow: weights.Stride, xStep: 1, y: s.Values.Data, yStep: s.Values.Stride,
				out: s.Answers[head].from(from).Data, outRow: s.Answers[head].Stride, rows: n, columns: s.Dim, depth: end,
			})
		}
	}
	return true
}

// nearKeys is the number of keys that all queries of a block are multiplied with before the
// next keys: they stay in the first-level cache.
const nearKeys = 4096

// score8 fills the scores of n queries from one on, each for the keys up to itself and the
// rest of its last group.
func (s *Sequence) score8(head, from, n int, keys []float32, scores Rows) {
	near := max(1, nearKeys/(keyGroup*s.Dim)) * keyGroup
	for at := 0; at < from+n; at += near {
		for r := max(0, at-from); r < n; r++ {
			groups := (min(from+r+1-at, near) + keyGroup - 1) / keyGroup
			vector.Scores256(unsafe.Pointer(&s.Queries[head].from(from + r).Data[0]), unsafe.Pointer(&keys[at*s.Dim]), unsafe.Pointer(&scores.from(r).Data[at]),
				s.Dim, groups, s.Scale)
		}
	}
}

// softmax8 computes the softmax of the first n numbers of a row in the order of sums of the
// backend: full vectors, then the rest term by term. It sets the others to zero.
func softmax8(row []float32, n int) {
	full, top := n/halfLanes*halfLanes, archsimd.BroadcastFloat32x8(float32(math.Inf(-1)))
	for i := 0; i < full; i += halfLanes {
		top = top.Max(loadHalf(halfAt(row, i)))
	}
	inverse := 1 / exponentials8(row[:n], top)
	for i := full; i < n; i++ {
		row[i] *= inverse
	}
	multiplyBy8(row[:full], inverse)
	clear(row[n:])
}

// soften8 is softmax8 of scaled numbers; it divides the numbers behind the last full vector.
func soften8(row []float32, n int, scale float32) {
	s, full, top := archsimd.BroadcastFloat32x8(scale), n/halfLanes*halfLanes, archsimd.BroadcastFloat32x8(float32(math.Inf(-1)))
	for i := 0; i < full; i += halfLanes {
		at := halfAt(row, i)
		x := loadHalf(at).Mul(s)
		storeHalf(x, at)
		top = top.Max(x)
	}
	for i := full; i < n; i++ {
		row[i] *= scale
	}
	all := exponentials8(row[:n], top)
	for i := full; i < n; i++ {
		row[i] /= all
	}
	multiplyBy8(row[:full], 1/all)
	clear(row[n:])
}

// exponentials8 replaces numbers by the exponentials of their distance to the largest, and
// returns their sum. A lane of top has the largest of the full vectors.
func exponentials8(row []float32, top half) float32 {
	full, most := len(row)/halfLanes*halfLanes, largest8(top)
	for _, x := range row[full:] {
		most = max(most, x)
	}
	var sums [halfLanes]float32
	exponentials(unsafe.Pointer(unsafe.SliceData(row)), unsafe.Pointer(&sums), full/halfLanes, most)
	all := fold(loadHalf(unsafe.Pointer(&sums)))
	for i, x := range row[full:] {
		e := gomlxhooks.Exp32(x - most)
		row[full+i] = e
		all += e
	}
	return all
}

func largest8(v half) float32 {
	four := v.GetLo().Max(v.GetHi())
	return max(four.GetElem(0), four.GetElem(1), four.GetElem(2), four.GetElem(3))
}

// multiplyBy8 multiplies full vectors.
func multiplyBy8(row []float32, factor float32) {
	by := archsimd.BroadcastFloat32x8(factor)
	for i := 0; i < len(row); i += halfLanes {
		at := halfAt(row, i)
		storeHalf(loadHalf(at).Mul(by), at)
	}
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

//go:noescape
func mul6x16(x, y, out unsafe.Pointer, xRow, xStep, yStep, outRow, depth, add int)

//go:noescape
func mul1x16(x, y, out unsafe.Pointer, xRow, xStep, yStep, outRow, depth, add int)

//go:noescape
func exponentials(row, sums unsafe.Pointer, vectors int, most float32)
