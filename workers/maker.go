package workers

import (
	"temper/internal/config"
	"temper/internal/run/chain"
	"temper/trainer/cpu/kernels"
	"temper/trainer/device"
)

// makerOf describes this process for the manifests of the runs that it works for.
func makerOf(role, backend string, mesh device.Mesh) func(config.Run) chain.Maker {
	m := chain.ThisMaker(role, onMesh(backend, mesh))
	return func(cfg config.Run) chain.Maker {
		m := m
		m.Kernels, _ = bitsOf(backend, cfg) // a run goes on where its device cannot be described
		return m
	}
}

// bitsOf is one line with all that decides bits on the device of a backend under a run's
// configuration.
func bitsOf(backend string, cfg config.Run) (string, error) {
	if device.Threads(backend) {
		return kernels.Describe(kernels.Choice(cfg.Trainer.Kernels)).Bits(), nil
	}
	return device.Bits(backend)
}

// onMesh is a backend with its mesh, which decides bits as well: sums over devices have
// an order of their own.
func onMesh(backend string, m device.Mesh) string {
	if !m.Several() {
		return backend
	}
	return backend + " on " + m.String()
}
