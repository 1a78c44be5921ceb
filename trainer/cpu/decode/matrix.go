//go:build goexperiment.simd && amd64

package decode

import (
	"unsafe"

	"temper/trainer/weights/tensor"
)

// A matrix [depth, width] is multiplied in tiles of 64 columns, the last one of 32 where
// that is enough. A tile holds its columns for each row of the matrix in turn. Columns
// beyond the width are zero.
//
// The tiles are packed, so that a product reads the weights once from the first to the
// last; or they are made from the weights where they lie, a panel of a tile at a time.
// That takes no memory, and time for each pass, not for each of its tokens.
type matrix struct {
	vectors      *arithmetic
	depth, width int
	padded       int       // columns with the padding
	data         []float32 // tiles; nil where parts are read in place
	parts        []tensor.Stored
}

const (
	wideTile   = 64
	narrowTile = 32
	// turned is the number of rows that are turned at once.
	turned = width
	// pairs is the depth of bfloat16 that is turned at once.
	pairs = 2 * width
)

// newMatrix makes a matrix of weights [out, in], as Hugging Face stores them, one tensor
// after another: column i is row i of them all. inPlace leaves them where they lie.
func newMatrix(a *arithmetic, depth, columns int, inPlace bool, parts ...tensor.Stored) matrix {
	m := matrix{vectors: a, depth: depth, width: columns, padded: (columns + narrowTile - 1) / narrowTile * narrowTile, parts: parts}
	if inPlace {
		return m
	}
	data := make([]float32, depth*m.padded)
	for column := 0; column < m.padded; column += wideTile {
		columns := min(wideTile, m.padded-column)
		m.turn(data[column*depth:][:depth*columns], column, columns, 0, depth)
	}
	m.data, m.parts = data, nil
	return m
}

// tile is the panel of rows from..from+depth of the tile that begins at a column. Where
// the matrix is not packed, it lies in scratch.
func (m *matrix) tile(scratch []float32, column, columns, from, depth int) unsafe.Pointer {
	if m.data != nil {
		return unsafe.Pointer(&m.data[column*m.depth+from*columns])
	}
	m.turn(scratch, column, columns, from, depth)
	return unsafe.Pointer(unsafe.SliceData(scratch))
}

// turn makes a panel of a tile: dst [depth, columns].
func (m *matrix) turn(dst []float32, column, columns, from, depth int) {
	for c := 0; c < columns; c += turned {
		m.turnColumns(dst[c:], columns, column+c, from, depth)
	}
}

// turnColumns makes 16 columns of a panel, with the given distance from row to row.
func (m *matrix) turnColumns(dst []float32, stride, column, from, depth int) {
	part, row := m.partOf(column)
	if part == nil {
		clearColumns(dst, stride, 0, depth)
		return
	}
	rows, at := min(turned, part.Len()/m.depth-row), row*m.depth+from
	done := 0
	switch {
	case rows < turned: // the last of an odd vocabulary
	case part.BFloat16 != nil:
		if done = depth / pairs * pairs; done > 0 {
			m.vectors.turnBFloat16(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(&part.BFloat16[at]), 4*stride, 2*m.depth, done, 2*wideTile*m.depth)
		}
	default:
		if done = depth / turned * turned; done > 0 {
			m.vectors.turnFloat32(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(&part.Float32[at]), 4*stride, 4*m.depth, done, 4*wideTile*m.depth)
		}
	}
	if done == depth {
		return
	}
	if rows < turned {
		clearColumns(dst, stride, rows, depth)
	}
	line := make([]float32, depth-done)
	for r := range rows {
		values(line, *part, at+r*m.depth+done)
		for k, v := range line {
			dst[(done+k)*stride+r] = v
		}
	}
}

// partOf finds the tensor with the row that a column is, nil behind the last. A group of
// 16 columns never has rows of two tensors: see Check.
func (m *matrix) partOf(column int) (*tensor.Stored, int) {
	for i := range m.parts {
		p := &m.parts[i]
		if n := p.Len() / m.depth; column < n {
			return p, column
		} else {
			column -= n
		}
	}
	return nil, 0
}

// clearColumns sets columns from..16 of a panel to zero.
func clearColumns(dst []float32, stride, from, depth int) {
	for k := range depth {
		clear(dst[k*stride+from:][:turned-from])
	}
}

// values fills dst with the values of a weight from an index on.
func values(dst []float32, t tensor.Stored, at int) {
	if t.BFloat16 != nil {
		tensor.Widen(dst, t.BFloat16[at:at+len(dst)])
		return
	}
	copy(dst, t.Float32[at:])
}
