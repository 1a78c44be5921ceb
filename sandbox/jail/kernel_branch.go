package jail

import (
	"context"
	"errors"
)

// ErrNoBranch means that a kernel cannot be copied.
var ErrNoBranch = errors.New("the kernel cannot be copied")

// Branch returns a kernel in the state of k.
func (k *Kernel) Branch(_ context.Context) (*Kernel, error) {
	return nil, ErrNoBranch
}
