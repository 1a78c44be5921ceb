package device

import (
	"fmt"

	"temper/internal/fault"
	"temper/trainer/cpu/kernels"
)

// CheckKernels returns an error of one line, of the kind InvalidConfig, if a backend has no
// such kernels in this process.
func CheckKernels(backend string, c kernels.Choice) error {
	err := kernels.Check(c)
	if err == nil && c == kernels.Portable && !Threads(backend) {
		err = fmt.Errorf("%s kernels are those of the backend go, not of %s", c, backend)
	}
	if err != nil {
		return fault.Newf(fault.InvalidConfig, "trainer.kernels: %w", err)
	}
	return nil
}
