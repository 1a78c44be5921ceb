//go:build xla

package device

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/go-xla/stablehlo"
	stableshapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"temper/trainer/gomlxhooks"
)

// When a layer is computed again, its barrier is copied. GoMLX makes the barrier's input stand
// for the copy, and takes the input's gradient from it. If that was the node of a constraint,
// it is an identity here, whose gradient passes unchanged.
func init() { //nolint:gochecknoinits // the table has no other door, and is read by all goroutines
	graph.VJPRegistration[graph.NodeTypeIdentity] = func(_ *graph.Node, v []*graph.Node, _ shapes.Shape) []*graph.Node { return v }
}

// Constrain returns x, divided over the mesh as s says; the partitioner moves it there.
// Without it the partitioner decides where the values between inputs and results of a graph
// lie. GoMLX has no such operation, so Constrain adds an identity and replaces its value in the
// program. The gradient passes unchanged. It panics like all functions that build graphs.
func Constrain(x *graph.Node, mesh *distributed.DeviceMesh, s Sharding) *graph.Node {
	out := graph.IdentityWithCustomGradient(x, func(_, v *graph.Node) *graph.Node { return v })
	if err := constrain(out, mesh, s); err != nil {
		exceptions.Panicf("constrain %s: %v", s.Name, err)
	}
	return out
}

func constrain(n *graph.Node, mesh *distributed.DeviceMesh, s Sharding) error {
	value, err := gomlxhooks.NodeValue(n)
	if err != nil {
		return err
	}
	program, err := gomlxhooks.Program(n.Graph())
	if err != nil {
		return err
	}
	results, err := stablehlo.CustomCallV2("Sharding", "", []*stablehlo.Value{value}, nil, []stableshapes.Shape{value.Shape()}, nil)
	if err != nil {
		return err
	}
	call := program.Statements[len(program.Statements)-1]
	call.Attributes = map[string]any{"call_target_name": "Sharding", "sdy.sharding": literal("#sdy.sharding_per_value<[" + s.text(mesh.Name()) + "]>")}
	return gomlxhooks.SetNodeValue(n, results[0], constrained{n.Inputs()[0], mesh, s})
}

// Settle returns two values that XLA computes once; later nodes read them from memory.
// Otherwise XLA may compute them a second time within later nodes, from inputs whose memory
// they are to reuse, and copy these inputs first.
func Settle(x, y *graph.Node) (a, b *graph.Node) {
	if x.Graph().Backend().Name() != xla.BackendName {
		return x, y
	}
	both := graph.OptimizationBarriers(x, y)
	return both[0], both[1]
}

// constrained are the inputs of a node made by Constrain. When a layer is computed again, its
// copy is constrained as well.
type constrained struct {
	x    *graph.Node
	mesh *distributed.DeviceMesh
	s    Sharding
}

// Type implements graph.NodeInputs.
func (constrained) Type() graph.NodeType { return graph.NodeTypeIdentity }

// String implements graph.NodeInputs.
func (c constrained) String() string { return fmt.Sprintf("Constrain(x=[#%d])", c.x.Id()) }

// CloneWithInputs implements graph.NodeInputs.
func (c constrained) CloneWithInputs(_ *graph.Node, inputs ...*graph.Node) *graph.Node {
	return Constrain(inputs[0], c.mesh, c.s)
}

// literal is text of a program.
type literal string

// ToStableHLO returns the text for go-xla.
func (l literal) ToStableHLO() string { return string(l) }

// text is the sharding in the syntax of XLA's partitioner.
func (s Sharding) text(mesh string) string {
	axes := make([]string, len(s.Axes))
	for i, axis := range s.Axes {
		switch axis {
		case "", anyAxis:
			axes[i] = "{" + axis + "}"
		default:
			axes[i] = "{" + strconv.Quote(axis) + "}"
		}
	}
	return fmt.Sprintf("<@%s, [%s]>", mesh, strings.Join(axes, ", "))
}
