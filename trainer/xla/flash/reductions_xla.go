//go:build xla

package flash

import (
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/gomlxhooks"
)

// forgetReductions drops the functions that the backend has made for reductions of a graph:
// a loop that reduces, and the code after it, need their own.
func forgetReductions(g *graph.Graph) error {
	if g.Backend().Name() != xla.BackendName {
		return nil
	}
	return gomlxhooks.ForgetReductions(g)
}
