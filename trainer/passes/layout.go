package passes

import (
	"github.com/gomlx/gomlx/core/graph"

	"temper/trainer/device"
)

// layout says where the values of a graph lie on a mesh whose weights are divided over
// the data axis. Left alone, the partitioner keeps a weight divided and multiplies the
// rows of all replicas with each part of it. Here a weight is gathered just before its
// product, in the backward pass once more, and dropped after it (ZeRO stage 3).
type layout struct{ *sharding }

// Tokens keeps the tokens of each replica where they are.
func (l layout) Tokens(x *graph.Node) *graph.Node {
	return device.Constrain(x, l.devices, device.TokenSharding(x.Rank()))
}

// Whole gathers a weight over the data axis, after a value: not before it is there.
func (l layout) Whole(name string, w, after *graph.Node) *graph.Node {
	if after != nil {
		w = graph.OptimizationBarriers(w, after)[0]
	}
	return device.Constrain(w, l.devices, l.byName[name].Gathered())
}

// Own divides a gradient as its weight is, at once. Without the barrier the cut goes into
// what uses the gradient, and the whole gradients of all layers wait for it. go-xla leaves
// out a barrier of one value on the CPU.
func (l layout) Own(name string, gradient *graph.Node) *graph.Node {
	own := device.Constrain(gradient, l.devices, l.byName[name])
	return graph.OptimizationBarriers(own, graph.ScalarZero(own.Graph(), own.DType()))[0]
}
