package jail

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// What one child costs its owner in descriptors: of a kernel its memory, input, bell, two
// outputs and a hold on the process, and for a moment the other ends of those. The rest is
// for connections.
const (
	descriptorsPerChild = 8
	descriptorsOfOwner  = 4096
)

// makeRoomFor raises the limit of descriptors of this process so that it can hold so many
// children. Without the right to do so, or above what the machine gives to any process, the
// limit stays, and kernels that wait give way to new ones: see descriptorError.
func makeRoomFor(children int) {
	want := uint64(descriptorsPerChild*children + descriptorsOfOwner)
	var limit unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &limit) != nil || limit.Cur >= want {
		return
	}
	for ; want > limit.Cur; want -= (want - limit.Cur + 1) / 2 {
		raised := unix.Rlimit{Cur: want, Max: max(limit.Max, want)}
		if unix.Prlimit(0, unix.RLIMIT_NOFILE, &raised, nil) == nil {
			return
		}
	}
}

// descriptorError is why a descriptor of a child could not be made.
func descriptorError(what string, err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return fmt.Errorf("%w: %w: %s: %w", &sandbox.Overloaded{
			Detail: "programs and kernels use all descriptors there may be", RetryAfter: time.Second,
		}, ErrNoProcess, what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
