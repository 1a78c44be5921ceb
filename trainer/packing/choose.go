package packing

import (
	"cmp"
	"math"
	"slices"
)

// Forecast is the expected work of a run, as far as its configuration tells.
type Forecast struct {
	// MaxTokens is the longest sequence, MeanTokens the expected mean; 0 is a third of the
	// longest.
	MaxTokens, MeanTokens int
	Demands               []Demand
}

// Demand is a set of passes with common shapes.
type Demand struct {
	// Kinds is the number of graphs of each shape.
	Kinds   int
	Batches []Batch
}

// Batch is a number of updates of equally many sequences.
type Batch struct{ Sequences, Updates int }

// Budget is the cost of graphs.
type Budget struct {
	// Max is the most graphs. Each demand has one shape in any case.
	Max int
	// Fixed graphs have no shape.
	Fixed int
	// Price is the time of compiling a graph, in the tokens of passes of equal time.
	Price float64
}

// Choice is the shapes of the passes of a run.
type Choice struct {
	// Buckets of each demand, ascending by length, then by rows.
	Buckets [][]Shape
	Graphs  int
	// Padding is the expected share of padding in the tokens of passes.
	Padding float64
}

// Choose chooses the buckets for a forecast: as many as the budget allows and as pay for their
// graphs by less padding. The choice follows from the arguments alone, so that the bits of a
// run do not depend on its starts.
func (p Plan) Choose(f Forecast, b Budget) Choice {
	var options [][]option
	for _, d := range f.Demands {
		options = append(options, newChooser(p, f, d).options((b.Max-b.Fixed)/max(1, d.Kinds)))
	}
	best, taken := math.Inf(1), make([]int, len(options))
	eachOf(options, func(at []int) {
		graphs, cost := b.Fixed, 0.0
		least := true
		for i, k := range at {
			graphs += len(options[i][k].set) * f.Demands[i].Kinds
			cost += options[i][k].cost
			least = least && k == 0
		}
		if cost += b.Price * float64(graphs); cost < best && (graphs <= b.Max || least) {
			best = cost
			copy(taken, at)
		}
	})
	c := Choice{Graphs: b.Fixed}
	tokens, real := 0.0, 0.0
	for i, k := range taken {
		o := options[i][k]
		slices.SortFunc(o.set, compareShapes)
		c.Buckets = append(c.Buckets, o.set)
		c.Graphs += len(o.set) * f.Demands[i].Kinds
		tokens, real = tokens+o.tokens, real+o.real
	}
	if tokens > 0 {
		c.Padding = 1 - real/tokens
	}
	return c
}

// eachOf calls visit with each way to take one option of every demand.
func eachOf(options [][]option, visit func(at []int)) {
	at := make([]int, len(options))
	for {
		visit(at)
		i := 0
		for ; i < len(at); i++ {
			if at[i]++; at[i] < len(options[i]) {
				break
			}
			at[i] = 0
		}
		if i == len(at) {
			return
		}
	}
}

func compareShapes(a, b Shape) int {
	return cmp.Or(cmp.Compare(a.Length, b.Length), cmp.Compare(a.Rows, b.Rows))
}

// Bounds of the search: the sequences in the sample of an update, and the shapes of a demand.
const (
	maxSamples = 128
	maxShapes  = 12
)

// option is a set of shapes with its cost in tokens.
type option struct {
	set                []Shape
	cost, tokens, real float64
}

// chooser finds the cheapest sets of shapes of a demand.
type chooser struct {
	plan       Plan
	longest    int // of the rows; one shape has this length
	candidates []Shape
	samples    []sample
	steps      cutting
}

// sample is a sample of the sequences of an update.
type sample struct {
	rows   []*Row
	filled []int   // lengths of rows, if they do not depend on the shapes
	scale  float64 // number of updates that it stands for
	real   int     // tokens
}

func newChooser(p Plan, f Forecast, d Demand) *chooser {
	c := &chooser{plan: p, longest: paddedLength(f.MaxTokens)}
	most := 1
	for _, b := range d.Batches {
		if b.Sequences < 1 || b.Updates < 1 {
			continue
		}
		most = max(most, b.Sequences)
		lengths := quantiles(f.MaxTokens, f.MeanTokens, min(b.Sequences, maxSamples))
		s := sample{scale: float64(b.Updates) * float64(b.Sequences) / float64(len(lengths))}
		for _, n := range lengths {
			s.rows = append(s.rows, &Row{Length: n})
			s.real += n
		}
		if !p.Pack {
			s.filled = lengths
		}
		c.samples = append(c.samples, s)
	}
	multiple := max(1, p.RowsMultiple)
	for _, length := range lengthsUpTo(c.longest) {
		rows := min(max(1, p.Tokens/length), (most+multiple-1)/multiple)
		for rows > 0 {
			c.candidates = append(c.candidates, Shape{Rows: rows * multiple, Length: length})
			if rows <= 16 {
				rows--
			} else {
				rows /= 2
			}
		}
	}
	return c
}

// options returns the cheapest sets of one shape, of two, and so on.
func (c *chooser) options(most int) []option {
	var out []option
	var set []Shape
	for n := 1; n == 1 || n <= min(most, maxShapes); n++ {
		if n == 2 {
			set = c.bestPair()
		} else {
			set = c.grow(set)
		}
		if set == nil {
			break
		}
		set = c.improve(set)
		o := c.count(set)
		o.set = slices.Clone(set)
		out = append(out, o)
	}
	return out
}

// lengthsUpTo returns the possible lengths of a bucket: sixteenths of the longest, and below
// these its halves.
func lengthsUpTo(longest int) []int {
	var out []int
	add := func(n int) {
		if n = (n + 15) / 16 * 16; !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for n := longest / 16; n > 16; n /= 2 {
		add(n)
	}
	for i := 1; i <= 16; i++ {
		add((longest*i + 15) / 16)
	}
	slices.Sort(out)
	return out
}

// grow adds the shape that lowers the cost most; nil for none.
func (c *chooser) grow(set []Shape) []Shape {
	var best []Shape
	lowest := math.Inf(1)
	for _, s := range c.candidates {
		if slices.Contains(set, s) || len(set) == 0 && s.Length != c.longest {
			continue
		}
		next := append(slices.Clone(set), s)
		if cost := c.cost(next); cost < lowest {
			best, lowest = next, cost
		}
	}
	return best
}

// bestPair tries all pairs; nil for none.
func (c *chooser) bestPair() []Shape {
	var best []Shape
	lowest := math.Inf(1)
	for _, s := range c.candidates {
		if s.Length != c.longest {
			continue
		}
		if next := c.grow([]Shape{s}); next != nil {
			if cost := c.cost(next); cost < lowest {
				best, lowest = next, cost
			}
		}
	}
	return best
}

// improve replaces single shapes while that lowers the cost.
func (c *chooser) improve(set []Shape) []Shape {
	lowest := c.cost(set)
	for improved := true; improved; {
		improved = false
		for i := range set {
			for _, s := range c.candidates {
				next := slices.Clone(set)
				next[i] = s
				if slices.Contains(set, s) || !slices.ContainsFunc(next, func(s Shape) bool { return s.Length == c.longest }) {
					continue
				}
				if cost := c.cost(next); cost < lowest {
					set, lowest, improved = next, cost, true
				}
			}
		}
	}
	return set
}

// cost returns the cost of all passes, in tokens.
func (c *chooser) cost(set []Shape) float64 { return c.count(set).cost }

// count counts the tokens of all passes, and the tokens of sequences.
func (c *chooser) count(set []Shape) (o option) {
	p := c.plan
	p.Buckets = set
	for _, s := range c.samples {
		lengths := s.filled
		if lengths == nil {
			for _, l := range p.fillRows(s.rows) {
				lengths = append(lengths, l.length)
			}
		}
		c.steps.cut(p, lengths)
		tokens, passes := 0, 0
		for i := 0; i < len(lengths); i += c.steps.first[i].Rows {
			tokens, passes = tokens+c.steps.first[i].Tokens(), passes+1
		}
		o.tokens += s.scale * float64(tokens)
		o.cost += s.scale * float64(tokens+passes*passCost)
		o.real += s.scale * float64(s.real)
	}
	return o
}

// quantiles returns n lengths, the longest first, for lengths from an exponential distribution
// truncated at most with the given mean; a mean of 0 is a third of most.
func quantiles(most, mean, n int) []int {
	if mean <= 0 {
		mean = most / 3
	}
	rate := rateOf(min(max(float64(mean)/float64(most), 0.02), 0.98))
	out := make([]int, n)
	for i := range out {
		q := 1 - (float64(i)+0.5)/float64(n)
		x := q
		if rate != 0 {
			x = -math.Log1p(q*math.Expm1(-rate)) / rate
		}
		out[i] = min(max(1, int(math.Ceil(x*float64(most)))), most)
	}
	return out
}

// rateOf returns the rate with which the exponential distribution on 0 to 1 has a mean. It is
// negative for means above one half.
func rateOf(mean float64) float64 {
	low, high := -60.0, 60.0
	for range 60 {
		rate := (low + high) / 2
		of := 0.5
		if math.Abs(rate) > 1e-6 {
			of = 1/rate - 1/math.Expm1(rate)
		}
		if of > mean {
			low = rate
		} else {
			high = rate
		}
	}
	return low
}
