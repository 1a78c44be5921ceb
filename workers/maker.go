package workers

import (
	"temper/internal/config"
	"temper/internal/proof"
	"temper/trainer/device"
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

// onMesh is a backend with its mesh, which decides bits as well: sums over devices have
// an order of their own.
func onMesh(backend string, m device.Mesh) string {
	if !m.Several() {
		return backend
	}
	return backend + " on " + m.String()
}
