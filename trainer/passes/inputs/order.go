// Package inputs owns the inputs of a device pass: their number and order, and how a
// microbatch becomes their tensors. Code that builds a graph finds the inputs by the names of
// this package. It computes nothing from them.
//
// Invariant: padding is zero in every input, and no result depends on it.
//
// Axes in comments: B rows of a microbatch, T tokens of a row.
package inputs

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"temper/internal/config"
	"temper/trainer/loss"
	"temper/trainer/model/graphs"
)

// Order of a microbatch's inputs. Scoring takes the first two, the supervised
// objective the first four. The numbers of the optimizer come last where a pass
// has them.
const (
	Tokens          = iota // int32 [B, T], with packing [3, B, T]: tokens, positions, segments
	Targets                // int32 [B, T], the token after each
	Mask                   // bool [B, T], the targets in the loss
	Denominator            // float32 scalar, the divisor of the sum of losses
	Advantages             // float32 [B, 1], with packing [B, T]
	RolloutLogprobs        // float32 [B, T], the engine's log-probabilities of the targets
	OldLogprobs            // float32 [B, T], the policy's before the step
	HasOld                 // bool scalar; false if the old policy is the present one
	NumFixed               // number of fixed inputs; the inputs of Extras follow in order
)

// Extra is an input of policy updates that only some objectives need.
type Extra int

// The extra inputs.
const (
	Sequences         Extra = iota // int32 [B, T], the number of each token's sequence in the microbatch
	Selected                       // bool [B, T], the targets of the LossMask that train
	ReferenceLogprobs              // float32 [B, T], the reference policy's log-probabilities of the targets
	GroupTokens                    // float32 [B, T], the loss tokens of each token's group in the minibatch
)

// Extras are the extra inputs of an objective, in their order.
type Extras []Extra

// ExtrasOf returns the extra inputs that an objective needs.
func ExtrasOf(l config.Loss) Extras {
	var out Extras
	if loss.NeedsSequences(l) {
		out = append(out, Sequences)
	}
	if l.EntropyFraction > 0 {
		out = append(out, Selected)
	}
	if l.KL.Coefficient > 0 {
		out = append(out, ReferenceLogprobs)
	}
	if loss.NeedsGroups(l) {
		out = append(out, GroupTokens)
	}
	return out
}

// Node returns an extra input among the inputs of a graph; nil if the objective has none.
func (x Extras) Node(in []*graph.Node, e Extra) *graph.Node {
	i := slices.Index(x, e)
	if i < 0 {
		return nil
	}
	return in[NumFixed+i]
}

// ModelInputs splits the input Tokens.
func ModelInputs(tokens *graph.Node) graphs.Inputs {
	if tokens.Rank() == 2 {
		// Rows are padded on the right, where causal attention never looks, so the padding needs
		// no segment.
		return graphs.Inputs{Tokens: tokens}
	}
	dims := tokens.Shape().Dimensions[1:]
	part := func(i int) *graph.Node { return graph.Reshape(graph.SliceAxis(tokens, 0, graph.AxisElem(i)), dims...) }
	return graphs.Inputs{Tokens: part(0), Positions: part(1), Segments: part(2)}
}
