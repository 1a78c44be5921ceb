//go:build goexperiment.simd && amd64

package vector

import "unsafe"

// Scores512 computes the products of a query of dim dimensions, a multiple of 16, with groups
// of 16 keys, times a scale: keys [groups, dim, 16], out [groups, 16]. Lane j has the terms
// of dimensions j, j+16 and so on, as in the backend's vectors; of 128 dimensions it has the
// terms of each half first. Lanes are added as in Total.
func Scores512(query, keys, out unsafe.Pointer, dim, groups int, scale float32) {
	switch dim {
	case 32:
		scores32(query, keys, out, groups, scale)
	case 64:
		scores64(query, keys, out, groups, scale)
	case 128:
		scores128(query, keys, out, groups, scale)
	default:
		for g := range groups {
			dots512(query, unsafe.Add(keys, 64*g*dim), unsafe.Add(out, 64*g), dim/Width, scale)
		}
	}
}

// Scores256 is Scores512 for AVX2 and a multiple of 8. Lane j has the terms of dimensions j,
// j+8 and so on; of 64 dimensions it has the terms of each half first. Lanes are added as in
// TotalHalf.
func Scores256(query, keys, out unsafe.Pointer, dim, groups int, scale float32) {
	parts, chunks := 1, dim/HalfWidth
	if dim == 64 {
		parts, chunks = 2, chunks/2
	}
	scores8(query, keys, out, groups, parts, chunks, scale)
}

//go:noescape
func scores32(q, keys, out unsafe.Pointer, groups int, scale float32)

//go:noescape
func scores64(q, keys, out unsafe.Pointer, groups int, scale float32)

//go:noescape
func scores128(q, keys, out unsafe.Pointer, groups int, scale float32)

//go:noescape
func dots512(query, keys, out unsafe.Pointer, chunks int, scale float32)

//go:noescape
func scores8(q, keys, out unsafe.Pointer, groups, parts, chunks int, scale float32)
