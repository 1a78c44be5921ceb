package jail

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"temper/sandbox"
)

// Descriptors that the owner holds for one child. A kernel needs its memory, input, bell, two
// outputs and a pidfd, and for a moment the other ends of those. The rest is
// for connections.
const (
	descriptorsPerChild = 8
	descriptorsOfOwner  = 4096
)

// makeRoomFor raises the descriptor limit of this process for so many children. If the
// process may not raise it that far, the limit stays, and idle kernels end when new ones
// need their descriptors: see descriptorError.
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

// descriptorError returns the error for a descriptor that could not be made.
func descriptorError(what string, err error) error {
	if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return fmt.Errorf("%w: %w: %s: %w", &sandbox.Overloaded{
			Detail: "programs and kernels use all descriptors there may be", RetryAfter: time.Second,
		}, ErrNoProcess, what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
