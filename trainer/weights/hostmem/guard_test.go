package hostmem_test

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"temper/trainer/weights/hostmem"
)

// A vector that is loaded from the last bytes of the heap reads behind them. There must be
// something to read.
func TestGuardHeapMakesTheEndReadable(t *testing.T) {
	var kept [][]byte
	for range 1 << 16 { // pages of the runtime: one of them is the last that is mapped
		block := make([]byte, 8<<10)
		kept = append(kept, block)
		behind := uintptr(unsafe.Pointer(unsafe.SliceData(block))) + uintptr(len(block))
		if readable(t, behind) || behind%(64<<20) == 0 {
			continue
		}
		hostmem.GuardHeap()
		if !readable(t, behind) {
			t.Fatalf("after GuardHeap the byte at %#x, behind a block at the end of the heap, cannot be read", behind)
		}
		// The heap goes on to grow over what was made readable.
		for range 8 {
			block := make([]byte, 4<<20)
			for i := range block {
				block[i] = byte(i)
			}
			kept = append(kept, block)
		}
		return
	}
	t.Fatalf("none of %d blocks lay at the end of the mapped heap: the test does not see what it is for", len(kept))
}

// Most calls find the heap as it was.
func BenchmarkGuardHeap(b *testing.B) {
	for b.Loop() {
		hostmem.GuardHeap()
	}
}

// readable reports whether the kernel can read a byte of this process.
func readable(t *testing.T, address uintptr) bool {
	t.Helper()
	var b byte
	local := []unix.Iovec{{Base: &b, Len: 1}}
	_, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: address, Len: 1}}, 0)
	if err != nil && err != unix.EFAULT {
		t.Skipf("process_vm_readv: %v", err)
	}
	return err == nil
}
