//go:build goexperiment.simd && amd64

package decode

import "unsafe"

// multiply is x [rows, depth] times the matrix: out [rows, padded]. Both have some rows
// beyond, up to spareRows, that it may read and write. scratch has room for a panel of a
// tile.
func (m *matrix) multiply(out, x []float32, rows, panel int, scratch []float32) {
	if rows == 0 {
		return
	}
	xStride, outStride := 4*m.depth, 4*m.padded
	for column := 0; column < m.padded; column += wideTile {
		columns := narrowTile
		if m.padded-column >= wideTile {
			columns = wideTile
		}
		for from := 0; from < m.depth; from += panel {
			depth := min(panel, m.depth-from)
			w := m.tile(scratch, column, columns, from, depth)
			for row := 0; row < rows; {
				tile, n := tileFor(rows-row, columns == wideTile)
				tile(unsafe.Pointer(&x[row*m.depth+from]), w, unsafe.Pointer(&out[row*m.padded+column]), xStride, outStride, depth, from)
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
