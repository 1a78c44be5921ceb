package scheduler

import "math"

// A forecast says how many tokens an engine will hold when it has made so many passes.
// Passes are counted in spans, too, because a running trajectory grows by one token a
// pass. Each trajectory adds its expected tokens and their variance to every span up to
// its limit. The sums are integers, so that taking a trajectory away leaves exactly
// what was there before it.
const (
	ring = 64 // spans of passes that a forecast covers: numSpans and some that are late
	// varianceUnit keeps sums of squares small.
	varianceUnit = 1 << 10
)

// demand is what one trajectory adds to its engine's forecast.
type demand struct {
	first int64 // span of passes
	n     int
	mean  [numSpans + 2]int32
	vary  [numSpans + 2]int64
	// left is the expected number of tokens that are still to come.
	left float64
}

// forecast sums the demands of an engine.
type forecast struct {
	mean, vary [ring]int64
}

func (f *forecast) add(d *demand) {
	for j := range d.n {
		i := (d.first + int64(j)) % ring
		f.mean[i] += int64(d.mean[j])
		f.vary[i] += d.vary[j]
	}
}

func (f *forecast) remove(d *demand) {
	for j := range d.n {
		i := (d.first + int64(j)) % ring
		f.mean[i] -= int64(d.mean[j])
		f.vary[i] -= d.vary[j]
	}
}

// peak is the highest forecast from a span on, with a margin in standard deviations.
func (f *forecast) peak(first int64, margin float64) int64 {
	var top float64
	for j := range int64(numSpans + 2) {
		i := (first + j) % ring
		if f.mean[i] == 0 {
			continue
		}
		top = max(top, float64(f.mean[i])+margin*math.Sqrt(float64(f.vary[i])*varianceUnit))
	}
	return int64(top)
}

// fits says whether a demand can be added and the forecast stays below the capacity. It
// compares squares: this is the innermost loop of a decision.
// It leaves out what the engine holds now, which the caller knows better.
func (f *forecast) fits(d *demand, capacity int64, margin float64) bool {
	square := margin * margin * varianceUnit
	for j := range d.n {
		i := (d.first + int64(j)) % ring
		room := capacity - f.mean[i] - int64(d.mean[j])
		if room < 0 || float64(room)*float64(room) < square*float64(f.vary[i]+d.vary[j]) {
			return false
		}
	}
	return true
}

// predict fills the demand of a trajectory with context tokens now, of which age came
// after the prompt, if its engine has made so many passes.
func (c *curves) predict(out *demand, st *stage, b *classWeights, t *task, context, passes int64) {
	width := int64(c.width)
	out.first = passes / width
	age := max(0, context-int64(t.Prompt))
	if t.known {
		c.predictKnown(out, t, context, passes)
		return
	}
	table := &st.survival[phaseOf(t.calls)]
	position := float64(age) / float64(width)
	at := min(numSpans-1, int(position))
	part := min(1, position-float64(at))
	u := b.weights()
	for k := range u {
		u[k] /= (1-part)*table[at][k] + part*table[at+1][k]
	}
	// A demand is made anew once in a span, so it is half a span old on average, and its
	// trajectory has lived that long: the demands of those that did not are gone.
	fresh := max(smallest, mix(table, &u, position+0.5))
	// The demand's spans begin on multiples of the width; the first is now.
	offset := float64(passes%width) / float64(width)
	point := position - offset
	out.n, out.left = 0, 0
	for j := range len(out.mean) {
		x, tokens, alive := point+float64(j), context, 1.0
		if j > 0 {
			tokens = context + int64(j)*width - passes%width
			if tokens-int64(t.Prompt) >= int64(t.Limit) {
				break
			}
			alive = min(1, mix(table, &u, x)/fresh)
			out.left += alive * float64(width)
		}
		out.put(j, tokens, alive)
	}
	out.left = max(1, min(out.left+0.5*float64(width), float64(t.Limit)-float64(age)))
}

// mix is the chance to be alive at a fraction of a span.
func mix(table *[numSpans + 1][numClasses]float64, u *[numClasses]float64, x float64) float64 {
	at := int(x)
	if at >= numSpans {
		return 0
	}
	part := x - float64(at)
	a, b := 0.0, 0.0
	for k := range u {
		a += u[k] * table[at][k]
		b += u[k] * table[at+1][k]
	}
	return min(1, a+part*(b-a))
}

func (d *demand) put(j int, tokens int64, alive float64) {
	d.n = j + 1
	d.mean[j] = int32(math.Ceil(float64(tokens) * alive)) //nolint:gosec // tokens are below maxTokens
	d.vary[j] = int64(math.Ceil(float64(tokens) * float64(tokens) * alive * (1 - alive) / varianceUnit))
}

// predictKnown is the demand of a trajectory whose length the oracle knows.
func (c *curves) predictKnown(out *demand, t *task, context, passes int64) {
	width := int64(c.width)
	final := int64(t.Prompt + t.Length)
	out.n, out.left = 0, float64(max(1, final-context))
	for j := range len(out.mean) {
		tokens := context
		if j > 0 {
			tokens = context + int64(j)*width - passes%width
			if tokens >= final+width { // one span more: it is held until the end of its last span
				break
			}
		}
		out.put(j, min(tokens, max(final, context)), 1)
	}
}

// peak is the largest expectation of a demand.
func (d *demand) peak() int32 {
	var top int32
	for j := range d.n {
		top = max(top, d.mean[j])
	}
	return top
}
