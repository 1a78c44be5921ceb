package packing

// Tokens returns the size of a pass of the shape, including padding.
func (s Shape) Tokens() int { return s.Rows * s.Length }

// bucketed cuts rows into passes of the plan's Buckets. Of all ways to cut the rows, sorted by
// length, it takes the one with the least padding and the fewest passes. A row longer than all
// buckets makes a pass of its length.
func (p Plan) bucketed(rows []*Row) []Microbatch {
	filled := p.fillRows(rows)
	lengths := make([]int, len(filled))
	for i, l := range filled {
		lengths[i] = l.length
	}
	var out []Microbatch
	for _, shape := range p.cutLengths(lengths) {
		mb := Microbatch{Shape: shape, Packed: p.Pack, Fixed: true}
		n := min(shape.Rows, len(filled))
		for k, l := range filled[:n] {
			for m, r := range l.members {
				mb.Members, mb.Starts = append(mb.Members, r), append(mb.Starts, k*mb.Length+l.starts[m])
			}
		}
		out, filled = append(out, mb), filled[n:]
	}
	return out
}

// fillRows puts sequences into rows, the longest first. Without Pack a row has the length of
// its sequence. With Pack it has the length of the smallest bucket for its first sequence, and
// each further sequence goes into the first row with space for it.
func (p Plan) fillRows(rows []*Row) []filledRow {
	var out []filledRow
	var used []int
	for _, r := range byLength(rows) {
		i := 0
		for ; i < len(out) && !(p.Pack && used[i]+r.Length <= out[i].length); i++ {
		}
		if i == len(out) {
			length := r.Length
			if p.Pack {
				length = p.lengthFor(length)
			}
			out, used = append(out, filledRow{length: length}), append(used, 0)
		}
		out[i].members, out[i].starts = append(out[i].members, r), append(out[i].starts, used[i])
		used[i] += (r.Length + Align - 1) / Align * Align
	}
	return out
}

// lengthFor returns the length of the shortest bucket that holds a sequence, or its own.
func (p Plan) lengthFor(n int) int {
	best := 0
	for _, b := range p.Buckets {
		if b.Length >= n && (best == 0 || b.Length < best) {
			best = b.Length
		}
	}
	if best == 0 {
		return paddedLength(n)
	}
	return best
}

// cutLengths deals rows of these lengths, the longest first, into passes and returns their
// shapes; see bucketed.
func (p Plan) cutLengths(lengths []int) []Shape {
	var c cutting
	c.cut(p, lengths)
	var out []Shape
	for i := 0; i < len(lengths); i += c.first[i].Rows {
		out = append(out, c.first[i])
	}
	return out
}

// cutting is the result of a cut: from each row on, the cost of its passes and the shape of
// the first.
type cutting struct {
	cost  []int
	first []Shape
}

func (c *cutting) cut(p Plan, lengths []int) {
	n := len(lengths)
	if len(c.first) < n {
		c.cost, c.first = make([]int, n+1), make([]Shape, n)
	}
	c.cost[n] = 0
	for i := n - 1; i >= 0; i-- {
		c.first[i] = Shape{}
		for _, b := range p.Buckets {
			if b.Length < lengths[i] {
				continue
			}
			if cost := b.Tokens() + passCost + c.cost[min(i+b.Rows, n)]; c.first[i].Rows == 0 || cost < c.cost[i] {
				c.cost[i], c.first[i] = cost, b
			}
		}
		if c.first[i].Rows == 0 {
			own := Shape{Rows: max(1, p.RowsMultiple), Length: paddedLength(lengths[i])}
			c.cost[i], c.first[i] = own.Tokens()+passCost+c.cost[min(i+own.Rows, n)], own
		}
	}
}
