//go:build goexperiment.simd && amd64

package decode

import "unsafe"

// tile256 is arithmetic.tile; see product256_amd64.s.
func tile256(rows int, wide bool) (tileFunc, int) {
	switch {
	case rows >= 5 && wide:
		return tile256of6x64, 6
	case rows >= 5:
		return tile256of6x32, 6
	case rows >= 3 && wide:
		return tile256of4x64, 4
	case rows >= 3:
		return tile256of4x32, 4
	case rows >= 2 && wide:
		return tile256of2x64, 2
	case rows >= 2:
		return tile256of2x32, 2
	case wide:
		return tile256of1x64, 1
	}
	return tile256of1x32, 1
}

//go:noescape
func tile256of6x64(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile256of6x32(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile256of4x64(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile256of4x32(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile256of2x64(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile256of2x32(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile256of1x64(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

//go:noescape
func tile256of1x32(x, w, out unsafe.Pointer, xStride, outStride, depth, add int)

// turn256Float32 turns 16 rows, 8 at a time.
func turn256Float32(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int) {
	turn8Float32(dst, src, dstStride, srcStride, depth, ahead)
	turn8Float32(unsafe.Add(dst, 32), unsafe.Add(src, 8*srcStride), dstStride, srcStride, depth, ahead)
}

// turn256BFloat16 turns 16 rows, 8 at a time.
func turn256BFloat16(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int) {
	turn8BFloat16(dst, src, dstStride, srcStride, depth, ahead)
	turn8BFloat16(unsafe.Add(dst, 32), unsafe.Add(src, 8*srcStride), dstStride, srcStride, depth, ahead)
}

//go:noescape
func turn8Float32(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)

//go:noescape
func turn8BFloat16(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)

// tile512 is arithmetic.tile; see product512_amd64.s.
func tile512(rows int, wide bool) (tileFunc, int) {
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

// Both turn 16 rows of a weight; see turn512_amd64.s.

//go:noescape
func turnFloat32(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)

//go:noescape
func turnBFloat16(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)
