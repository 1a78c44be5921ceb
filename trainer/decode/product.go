//go:build goexperiment.simd && amd64

package decode

import "unsafe"

// A matrix [depth, width] is stored in tiles of 64 columns, the last one of 32 where that
// is enough. A tile holds its columns for each row of the matrix in turn, so that a
// product reads the weights once from the first to the last. Columns beyond the width
// are zero.
type matrix struct {
	depth, width int
	padded       int // columns with the padding
	data         []float32
}

const (
	wideTile   = 64
	narrowTile = 32
)

// newMatrix packs columns: column i is the i-th row of weights [out, in], as Hugging
// Face stores them, one tensor after another.
func newMatrix(depth, width int, tensors ...[]float32) matrix {
	m := matrix{depth: depth, width: width, padded: (width + narrowTile - 1) / narrowTile * narrowTile}
	m.data = make([]float32, depth*m.padded)
	column := 0
	for _, t := range tensors {
		for ; len(t) > 0; t = t[depth:] {
			tile := column / wideTile
			columns := min(wideTile, m.padded-tile*wideTile)
			at := tile*wideTile*depth + column%wideTile
			for k, v := range t[:depth] {
				m.data[at+k*columns] = v
			}
			column++
		}
	}
	return m
}

// multiply is x [rows, depth] times the matrix: out [rows, padded]. Both have some rows
// beyond, up to spareRows, that it may read and write.
func (m *matrix) multiply(out, x []float32, rows, panel int) {
	xStride, outStride := 4*m.depth, 4*m.padded
	for column := 0; column < m.padded; column += wideTile {
		w := unsafe.Pointer(&m.data[column*m.depth])
		wide := m.padded-column >= wideTile
		columns := narrowTile
		if wide {
			columns = wideTile
		}
		for from := 0; from < m.depth; from += panel {
			depth := min(panel, m.depth-from)
			wPanel := unsafe.Add(w, 4*from*columns)
			for row := 0; row < rows; {
				tile, n := tileFor(rows-row, wide)
				tile(unsafe.Pointer(&x[row*m.depth+from]), wPanel, unsafe.Pointer(&out[row*m.padded+column]), xStride, outStride, depth, from)
				row += n
			}
		}
	}
}

// spareRows is how many rows a product touches at most beyond the last.
const spareRows = 1

// tileFunc multiplies some rows with a tile; see product_amd64.s.
type tileFunc = func(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

// tileFor is the function for the next of some rows, with how many it takes.
func tileFor(rows int, wide bool) (tileFunc, int) {
	switch {
	case rows >= 5 && wide:
		return tile6x64, 6
	case rows >= 5:
		return tile6x32, 6
	case rows >= 3 && wide:
		return tile4x64, 4
	case rows >= 2 && wide:
		return tile2x64, 2
	case rows >= 2:
		return tile2x32, 2
	case wide:
		return tile1x64, 1
	}
	return tile1x32, 1
}

//go:noescape
func tile6x64(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile4x64(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile2x64(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile1x64(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile6x32(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile2x32(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile1x32(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)
