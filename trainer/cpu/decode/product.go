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
				tile, n := m.vectors.tile(rows-row, columns == wideTile)
				tile(unsafe.Pointer(&x[row*m.depth+from]), w, unsafe.Pointer(&out[row*m.padded+column]), xStride, outStride, depth, from)
				row += n
			}
		}
	}
}

// spareRows is how many rows a product touches at most beyond the last.
const spareRows = 1

// tileFunc multiplies some rows of x with a panel of a tile of weights [depth, columns]: it
// stores the sums, or adds them to out if add is not zero. Strides are in bytes.
type tileFunc = func(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)
