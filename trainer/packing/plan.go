package packing

// Shape is the padded size of a microbatch: B rows of T tokens.
type Shape struct {
	Rows   int `json:"rows"`
	Length int `json:"length"`
}

// Microbatch is the input of one device pass.
type Microbatch struct {
	Shape
	Members []*Row
	Starts  []int // of each member among the B*T tokens, in ascending order
	Packed  bool  // a row may hold several members
	// Fixed reports that the shape is one of a few, each with its program.
	Fixed bool
}

// Alone returns the pass of the same length with a single row, beside rows of padding if the
// shape is fixed.
func (mb Microbatch) Alone(r *Row) Microbatch {
	if !mb.Fixed {
		mb.Rows = 1
	}
	mb.Members, mb.Starts = []*Row{r}, []int{0}
	return mb
}

// Plan is the division of a minibatch into device passes.
type Plan struct {
	// Tokens bounds the padded tokens of a pass. A longer row makes a pass alone.
	Tokens int
	// Pack lets several sequences share a row.
	Pack bool
	// RowsMultiple divides the number of rows of a pass, by rows of padding: a mesh deals the
	// rows over the devices of its data axis. 0 is 1.
	RowsMultiple int
	// Buckets are the shapes of all passes, except those with a row longer than each of them;
	// see Choose. Their rows are a multiple of RowsMultiple. Without Buckets passes may have
	// many shapes.
	Buckets []Shape
}

// Microbatches cuts rows of similar length into passes. Of all ways to cut the rows, sorted by
// length, it takes the one with the least padding and the fewest passes.
func (p Plan) Microbatches(rows []*Row) []Microbatch {
	if len(p.Buckets) > 0 {
		return p.bucketed(rows)
	}
	var out []Microbatch
	if p.Pack {
		out = cut(pack(rows), p.Tokens)
	} else {
		out = cut(pad(rows), p.Tokens)
	}
	for i := range out {
		out[i].Packed = p.Pack
		if m := p.RowsMultiple; m > 1 {
			out[i].Rows = (out[i].Rows + m - 1) / m * m
		}
	}
	return out
}

// NumShapes bounds the number of shapes that the passes of a plan can have, for
// samples of up to maxTokens tokens.
func (p Plan) NumShapes(maxTokens int) int {
	shapes, bucket := 0, paddedLength
	if p.Pack {
		bucket = packedLength
	}
	for n := 1; n < maxTokens; n = bucket(n) + 1 {
		length := bucket(n)
		for r := 1; r == 1 || r*length <= p.Tokens; r = nextRows(r) {
			shapes++
		}
	}
	return shapes
}

// filledRow is one row of a microbatch with its sequences.
type filledRow struct {
	length  int // padded
	members []*Row
	starts  []int // of each member in the row
}

// passCost is the constant cost of a device pass, in tokens.
const passCost = 64

// cut deals rows, the longest first, into passes; see Plan.Microbatches.
func cut(rows []filledRow, tokens int) []Microbatch {
	n := len(rows)
	cost, size := make([]int, n+1), make([]int, n) // of rows[i:], and the rows of its first pass
	for i := n - 1; i >= 0; i-- {
		length := rows[i].length
		for r := 1; r == 1 || r*length <= tokens; r = nextRows(r) {
			c := r*length + passCost + cost[min(i+r, n)]
			if r == 1 || c < cost[i] {
				cost[i], size[i] = c, r
			}
			if i+r >= n {
				break
			}
		}
	}
	var out []Microbatch
	for i := 0; i < n; i += size[i] {
		mb := Microbatch{Shape: Shape{Rows: size[i], Length: rows[i].length}}
		for k, l := range rows[i:min(i+size[i], n)] {
			for m, r := range l.members {
				mb.Members, mb.Starts = append(mb.Members, r), append(mb.Starts, k*mb.Length+l.starts[m])
			}
		}
		out = append(out, mb)
	}
	return out
}

// nextRows is the number of rows after n in 1, 2, 3, 5, 7, 11, 15, 23, 31, ...:
// one less than a power of two, or one less than three times a power of two. An odd
// number of rows keeps the columns of an activation from falling into the same few
// cache lines, which would make transposing it take twice as long.
func nextRows(n int) int {
	switch m := n + 1; {
	case m < 4:
		return n + 1
	case m&(m-1) == 0:
		return m + m/2 - 1
	default:
		return m/3*4 - 1
	}
}
