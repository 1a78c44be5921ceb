package device_test

import (
	"testing"

	"temper/trainer/device"
)

// TestHelpersOfTheGoBackend can be sent to rest and back: an update of the backend
// that hides them would slow training down and change nothing else.
func TestHelpersOfTheGoBackend(t *testing.T) {
	backend, err := device.Open("go")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Finalize()
	described := backend.Description()
	h := device.HelpersOf(backend)
	h.Rest()
	if got, want := backend.Description(), "Go Portable Compute Backend (parallelism=0)"; got != want {
		t.Errorf("at rest: %q, want %q", got, want)
	}
	h.Work()
	if got := backend.Description(); got != described {
		t.Errorf("at work again: %q, want %q", got, described)
	}
	device.Helpers{}.Rest() // those of other backends: nothing happens
	device.Helpers{}.Work()
}

func TestThreads(t *testing.T) {
	for name, want := range map[string]bool{"": true, "go": true, "go:ops_sequential": true, "xla:cuda": false} {
		if got := device.Threads(name); got != want {
			t.Errorf("Threads(%q) = %v, want %v", name, got, want)
		}
	}
}
