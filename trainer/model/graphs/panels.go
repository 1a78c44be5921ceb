package graphs

import (
	"github.com/gomlx/compute/dtypes"
	. "github.com/gomlx/gomlx/core/graph"

	"temper/trainer/cpu/kernels"
)

// panelDepth is the number of terms of a product that are added one after another. A
// longer sum is the sum of its panels in their order.
//
// The CPU backend's kernel for large products adds in that way; the depth differs
// between AVX-512 and AVX2. Its kernel for small products adds all terms of a factor
// [in, out] in a single chain. Cutting the factors of small products into panels gives
// both kernels the same bits. The result for a token then depends neither on the number
// of tokens in the pass nor on whether DecodeStep or Forward computes it. With any
// other depth only the last bits differ.
//
// It follows the active kernels: code that builds a graph or imports weights for
// decoding must call kernels.Enter before.
func panelDepth() int { return kernels.PanelDepth() }

// smallProduct is the number of multiplications at which the CPU backend begins to use
// its kernel for large products.
const smallProduct = 4 << 20

// tailColumns divides the number of columns: in the remainder, the kernel for small
// products rounds twice for each term.
const tailColumns = 16

// fewestRows is the least number of tokens in a pass.
const fewestRows = 8

// storedPanels is the number of panels in which a weight [in, out] is stored for
// decoding. It is one where all products with the weight are large.
func storedPanels(depth, width int) int {
	if fewestRows*depth*width >= smallProduct {
		return 1
	}
	return numPanels(depth)
}

// storedPanel returns the bounds of panel i of n stored ones.
func storedPanel(i, n, depth int) (from, to int) {
	if n == 1 {
		return 0, depth
	}
	return panelAt(i, depth)
}

// numPanels is the number of panels of a sum of so many terms.
func numPanels(depth int) int { return (depth + panelDepth() - 1) / panelDepth() }

// panelAt returns the bounds of panel i.
func panelAt(i, depth int) (from, to int) {
	return i * panelDepth(), min(depth, (i+1)*panelDepth())
}

// panelOf is a part of an axis of x; x itself where the part is all of it.
func panelOf(x *Node, axis, from, to int) *Node {
	if from == 0 && to == x.Shape().Dimensions[axis] {
		return x
	}
	return SliceAxis(x, axis, AxisRange(from, to))
}

// productLikeDecode is weighted with the sums of DecodeStep, in float32. It cuts small
// products into panels, with the weight in the layout of the kernel that adds each
// panel in one chain. They have the gradient of weighted.
func productLikeDecode(x, y *Node, width int) *Node {
	n, in, out := x.Shape().Dimensions[0], x.Shape().Dimensions[1], y.Shape().Dimensions[0]
	if x.DType() != dtypes.Float32 || n*in*out >= smallProduct {
		return weighted(x, y, width)
	}
	sum, _ := InternalFusedOpCaller(
		func() *Node { return inPanels(x, y) }, func() *Node { return weighted(x, y, width) }, true)
	return sum
}

// inPanels is the sum of the products of the panels of x [N, in] and y [out, in].
func inPanels(x, y *Node) *Node {
	width, depth := y.Shape().Dimensions[0], y.Shape().Dimensions[1]
	y = swapLast(y) // [in, out]
	if rest := width % tailColumns; rest != 0 {
		y = Pad(y, ScalarZero(y.Graph(), y.DType()), PadAxis{}, PadAxis{End: tailColumns - rest})
	}
	parts := make([]*Node, numPanels(depth))
	for i := range parts {
		from, to := panelAt(i, depth)
		parts[i] = contract(x.DType(), panelOf(x, 1, from, to), 1, panelOf(y, 0, from, to), 0, nil)
	}
	return panelOf(addUp(parts), 1, 0, width)
}

// addUp is the sum of the parts in their order.
func addUp(parts []*Node) *Node {
	sum := parts[0]
	for _, p := range parts[1:] {
		sum = Add(sum, p)
	}
	return sum
}
