package hostmem

import (
	"bufio"
	"fmt"
	"os"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// arena is the size and alignment in bytes of a heap reservation of the runtime.
const arena = 64 << 20

// guarded is the size of the heap at the last GuardHeap.
var guarded atomic.Uint64

// guarding serializes reads of the table of mappings.
var guarding sync.Mutex

// GuardHeap makes the addresses behind the heap readable, up to the end of its last arena.
// Call it before a computation with vector kernels: it takes a few microseconds unless the
// heap has grown.
//
// The backend loads the last values of a row by archsimd.LoadFloat32x16Part of Go 1.27 and its
// siblings. The compiler makes them a load of all 64 bytes and a mask, so they read up to 60
// bytes behind the slice and drop them. When the slice ends at the last mapped byte of the
// heap, that is a fault of the process (SIGSEGV). The runtime maps the heap in pieces of
// 4 MiB and reserves the rest of each arena of 64 MiB behind it.
//
// Two cases remain: a slice at the very end of an arena without another arena behind it, and
// a heap that grows into a new arena during a computation.
func GuardHeap() {
	size := heapSize()
	if size <= guarded.Load() {
		return
	}
	guarding.Lock()
	defer guarding.Unlock()
	if from, to, ok := reserved(); ok {
		// Write access as well: if the runtime maps the next piece at the same time, its memory
		// must not become read-only.
		_, _, _ = unix.Syscall(unix.SYS_MPROTECT, from, to-from, unix.PROT_READ|unix.PROT_WRITE)
	}
	guarded.Store(size)
}

// heapSize returns the number of bytes of address space that the heap has mapped.
func heapSize() uint64 {
	samples := [...]metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
	}
	metrics.Read(samples[:])
	var size uint64
	for _, s := range samples {
		size += s.Value.Uint64()
	}
	return size
}

// reserved returns the addresses that the runtime has reserved behind the heap: the mapping
// without access that follows the mapping of a heap object.
func reserved() (from, to uintptr, ok bool) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, 0, false // not Linux, or no /proc
	}
	defer func() { _ = f.Close() }()
	object := uintptr(unsafe.Pointer(f)) // any object of the heap
	var end uintptr                      // of the adjacent mappings from the object's on
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var start, stop uintptr
		var access string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &start, &stop, &access); err != nil {
			return 0, 0, false
		}
		switch {
		case end == 0:
			if start <= object && object < stop {
				end = stop
			}
		case start != end:
			return 0, 0, false // the arena is followed by another mapping or by none
		case access == "---p":
			return start, stop, stop%arena == 0 && stop-start < arena
		default:
			end = stop
		}
	}
	return 0, 0, false
}
