package passes

import (
	"errors"
	"strings"
	"testing"
)

// TestExhausted knows what plugins of a CPU and of a GPU say when the memory of a device ends,
// and takes no other failure for it.
func TestExhausted(t *testing.T) {
	for text, want := range map[string]bool{
		"RESOURCE_EXHAUSTED: Out of memory allocating 35184372088832 bytes": true,
		// PJRT's C interface tells the number of an error, and the compiler for GPUs fails when it tries kernels.
		"failed to compile the program: PJRT error (code=8): Failed to get configs for: 3 out of 39 instructions. See logs for all failures.": true,
		"PJRT error (code=13): Out of memory while trying to allocate 31.97TiB with allocator GPU_0_bfc on device 0.":                         true,
		"Out of memory allocating 123 bytes":                                                    true,
		"PJRT error (code=13): the device is lost":                                              false,
		"PJRT error (code=3): Unexpected option name passed to PJRT_Client_Create: preallocate": false,
	} {
		err := exhausted(errors.New(text))
		if got := errors.Is(err, ErrTooLarge); got != want {
			t.Errorf("%s: too large is %v, want %v", text, got, want)
		}
		if want && !strings.Contains(err.Error(), "temper plan") {
			t.Errorf("%v: no advice", err)
		}
	}
	if exhausted(nil) != nil {
		t.Error("no error became one")
	}
}
