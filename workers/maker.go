package workers

import (
	"temper/internal/config"
	"temper/internal/proof"
)

// makerOf describes this process for the manifests of the runs that it works for.
func makerOf(role, backend string) func(config.Run) proof.Maker {
	m := proof.ThisMaker(role, backend)
	return func(config.Run) proof.Maker { return m }
}
