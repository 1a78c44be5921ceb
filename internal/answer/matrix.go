package answer

import (
	"fmt"
	"strconv"
	"strings"
)

// maxTree bounds the nodes of what matrices make of each other, and maxOrder the rows of a
// determinant: both grow as powers of what is written.
const (
	maxTree  = 1 << 14
	maxOrder = 6
)

// matrix reads rows of cells: a & b ; c & d.
func (p *parser) matrix() (*node, error) {
	if !p.accept("{") {
		return nil, noFormula("a matrix without cells")
	}
	out := &node{op: opMatrix}
	width, rows := 0, 0
	for {
		cells := 0
		for {
			n, err := p.sum()
			if err != nil {
				return nil, err
			}
			out.args = append(out.args, n)
			if cells++; !p.accept("&") {
				break
			}
		}
		if rows++; rows > 1 && cells != width {
			return nil, noFormula("a matrix with rows of %d and %d cells", width, cells)
		}
		width = cells
		if !p.accept(";") || p.is("}") {
			break
		}
	}
	if !p.accept("}") {
		return nil, noFormula("a matrix is not closed")
	}
	return out.shaped(rows, width), nil
}

func (n *node) shaped(rows, width int) *node {
	n.name = fmt.Sprintf("%dx%d", rows, width)
	return n
}

// shape returns rows and columns of a matrix.
func (n *node) shape() (rows, width int) {
	before, after, _ := strings.Cut(n.name, "x")
	rows, _ = strconv.Atoi(before)
	width, _ = strconv.Atoi(after)
	return rows, width
}

// size is the number of nodes of a tree; what is above limit counts as limit.
func (n *node) size(limit int) int {
	total := 1
	for _, a := range n.args {
		if total >= limit {
			return limit
		}
		total += a.size(limit - total)
	}
	return total
}

// hasMatrix reports whether one of parts is a matrix.
func hasMatrix(parts []*node) bool {
	for _, n := range parts {
		if n.op == opMatrix {
			return true
		}
	}
	return false
}

// joinMatrices adds matrices of one shape, multiplies them by each other and by scalars,
// and raises them to whole powers.
func joinMatrices(o op, parts []*node) (*node, error) {
	switch {
	case o == opPow && len(parts) == 2 && parts[1].scalar():
		times, ok := parts[1].rat()
		if !ok || !times.IsInt() || times.Sign() <= 0 || times.Num().BitLen() > 6 {
			return nil, noFormula("a matrix to a power that is no small whole number")
		}
		many := make([]*node, times.Num().Int64())
		for i := range many {
			many[i] = parts[0]
		}
		return joinMatrices(opMul, many)
	case o != opAdd && o != opMul:
		return nil, noFormula("%s of a matrix", o)
	}
	out := parts[0]
	for _, n := range parts[1:] {
		var err error
		if out, err = twoMatrices(o, out, n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// twoMatrices joins two parts, of which one may be a scalar in a product.
func twoMatrices(o op, a, b *node) (*node, error) {
	switch {
	case a.scalar() && b.scalar():
		return join(o, a, b)
	case o == opAdd:
		if a.op != opMatrix || b.op != opMatrix || a.name != b.name {
			return nil, noFormula("a sum of different shapes")
		}
		out := &node{op: opMatrix, name: a.name, args: make([]*node, len(a.args))}
		for i := range out.args {
			out.args[i] = folded(opAdd, a.args[i], b.args[i])
		}
		return out, nil
	case a.op == opMatrix && b.op == opMatrix:
		return product(a, b)
	case b.op == opMatrix:
		a, b = b, a
	}
	if a.op != opMatrix || !b.scalar() {
		return nil, noFormula("arithmetic with a list")
	}
	if b.size(maxTree)*len(a.args) >= maxTree {
		return nil, errTree
	}
	out := &node{op: opMatrix, name: a.name, args: make([]*node, len(a.args))}
	for i := range out.args {
		out.args[i] = folded(opMul, b, a.args[i])
	}
	return out, nil
}

var errTree = noFormula("matrices make too much of each other")

// product multiplies rows by columns.
func product(a, b *node) (*node, error) {
	rows, inner := a.shape()
	below, width := b.shape()
	if inner != below {
		return nil, noFormula("a product of %s and %s", a.name, b.name)
	}
	if width*a.size(maxTree)+rows*b.size(maxTree) >= maxTree {
		return nil, errTree
	}
	out := (&node{op: opMatrix}).shaped(rows, width)
	for i := range rows {
		for j := range width {
			terms := make([]*node, inner)
			for k := range inner {
				terms[k] = folded(opMul, a.args[i*inner+k], b.args[k*width+j])
			}
			out.args = append(out.args, folded(opAdd, terms...))
		}
	}
	return out, nil
}

// folded is a sum or a product of scalars, as a number where it is one.
func folded(o op, parts ...*node) *node {
	if len(parts) == 1 {
		return parts[0]
	}
	n := &node{op: o, args: parts}
	if r, ok := n.rat(); ok {
		return &node{op: opNum, num: r}
	}
	return n
}

// determinant develops a square matrix by its first row.
func determinant(n *node) (*node, error) {
	rows, width := n.shape()
	if rows != width || rows > maxOrder {
		return nil, noFormula("a determinant of %s", n.name)
	}
	if rows == 1 {
		return n.args[0], nil
	}
	if n.size(maxTree)*rows*rows*rows >= maxTree {
		return nil, errTree
	}
	terms := make([]*node, width)
	for skip := range width {
		minor := (&node{op: opMatrix}).shaped(rows-1, width-1)
		for i := 1; i < rows; i++ {
			for j := range width {
				if j != skip {
					minor.args = append(minor.args, n.args[i*width+j])
				}
			}
		}
		inner, err := determinant(minor)
		if err != nil {
			return nil, err
		}
		terms[skip] = folded(opMul, n.args[skip], inner)
		if skip%2 == 1 {
			terms[skip] = folded(opMul, integer(-1), terms[skip])
		}
	}
	return folded(opAdd, terms...), nil
}
