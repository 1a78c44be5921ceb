// Package hostmem allocates and fills large buffers and tensors in host memory. It keeps
// none of them.
//
// Invariant: buffers are ordinary memory of the garbage collector. Only the size of their
// pages, and the number of goroutines that copy, differ from make and copy. The values of a
// tensor are in memory once.
package hostmem

import (
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// hugePage is the size and alignment of a large page of the kernel.
	hugePage = 2 << 20
	// copyAlone is the number of values below which a second goroutine costs more than it
	// saves.
	copyAlone = 1 << 20
)

// Floats returns n zeros. Memory that is new to the process comes in large pages where the
// kernel has them: the first write to a small page costs more than copying its content.
func Floats(n int) []float32 {
	values := make([]float32, n)
	advise(unsafe.Pointer(unsafe.SliceData(values)), 4*uintptr(n))
	return values
}

// advise asks for large pages within the range, between their boundaries. A kernel without
// large pages ignores it.
func advise(start unsafe.Pointer, size uintptr) {
	skip := (hugePage - uintptr(start)%hugePage) % hugePage
	if size < skip+hugePage {
		return
	}
	length := (size - skip) / hugePage * hugePage
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(start, skip)), length), unix.MADV_HUGEPAGE)
}

// Copy copies src to dst, of the same length, on all processors.
func Copy(dst, src []float32) { copyAll(dst, src, copyAlone) }

// CopyBytes is Copy for bytes. dst may be longer.
func CopyBytes(dst, src []byte) { copyAll(dst, src, 4*copyAlone) }

func copyAll[T any](dst, src []T, alone int) {
	if len(src) < alone {
		copy(dst, src)
		return
	}
	share := (len(src) + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	var wg sync.WaitGroup
	for at := 0; at < len(src); at += share {
		wg.Go(func() { copy(dst[at:], src[at:min(at+share, len(src))]) })
	}
	wg.Wait()
}
