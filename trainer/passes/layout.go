package passes

import (
	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/device"
)

// layout places the values of a graph on a mesh whose weights are divided over the data axis.
// By default the partitioner keeps a weight divided and multiplies the rows of all replicas
// with each part of it. layout gathers a weight just before its product, in the backward pass
// again, and drops it afterwards (ZeRO stage 3).
type layout struct{ *sharding }

// Tokens keeps the tokens of each replica where they are.
func (l layout) Tokens(x *graph.Node) *graph.Node {
	return device.Constrain(x, l.devices, device.TokenSharding(x.Rank()))
}

// Whole gathers a weight over the data axis, after the value after is ready.
func (l layout) Whole(name string, w, after *graph.Node) *graph.Node {
	if after != nil {
		w = graph.OptimizationBarriers(w, after)[0]
	}
	return device.Constrain(w, l.devices, l.byName[name].Gathered())
}

// Own divides a gradient like its weight at once. Without the barrier the cut moves into the
// consumers of the gradient, and the whole gradients of all layers stay in memory. go-xla
// drops a barrier of one value on the CPU.
func (l layout) Own(name string, gradient *graph.Node) *graph.Node {
	own := device.Constrain(gradient, l.devices, l.byName[name])
	return graph.OptimizationBarriers(own, graph.ScalarZero(own.Graph(), own.DType()))[0]
}
