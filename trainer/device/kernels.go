package device

import (
	"fmt"

	"temper/trainer/kernels"
)

// CheckKernels returns an error of one line where a backend does not have a choice of
// kernels in this process.
func CheckKernels(backend string, c kernels.Choice) error {
	if err := kernels.Check(c); err != nil {
		return err
	}
	if c == kernels.Portable && !Threads(backend) {
		return fmt.Errorf("kernels %s: the backend %s has kernels of its own; want the backend go", c, backend)
	}
	return nil
}
