package workers

import (
	"temper/internal/config"
	"temper/internal/proof"
	"temper/trainer/kernels"
)

// makerOf describes this process for the manifests of the runs that it works for. What
// decides bits on a device of another kind than the CPU is the device's own.
func makerOf(role, backend string) func(config.Run) proof.Maker {
	m := proof.ThisMaker(role, backend)
	return func(cfg config.Run) proof.Maker {
		m := m
		if backend == "" || backend == "go" {
			m.Kernels = kernels.Describe(kernels.Choice(cfg.Trainer.Kernels)).Bits()
		}
		return m
	}
}
