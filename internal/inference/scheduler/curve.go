package scheduler

import "math"

// Lengths are counted in spans of equal width. A problem belongs to one of a few classes,
// by the mean length of its trajectories; each class has a survival curve. The problem's
// own trajectories so far, the running ones included, determine how likely each class is: a
// problem whose first rollouts run long is soon known to be long.
const (
	numSpans   = 48
	numClasses = 8
	numPhases  = 3   // of a trajectory: no call yet, one or two calls, more
	shapeSigma = 0.4 // spread of log-lengths within a class before anything was seen
	shapeCount = 8   // how many trajectories that first guess is worth
	classCount = 0.5 // how many problems the guess of even classes is worth, each
	refitEvery = 16  // problems that end between two fits
	forgetting = 1 - 1.0/4096
	// damping weakens the evidence of each trajectory, because classes are coarse.
	damping = 0.7
	// smallest keeps logarithms finite.
	smallest = 1e-6
)

func phaseOf(calls int) int {
	switch {
	case calls == 0:
		return 0
	case calls <= 2:
		return 1
	}
	return 2
}

// curves are the survival curves of all stages.
type curves struct {
	width  int // tokens of a span
	stages map[stageKey]*stage
	memory map[problemKey]int8 // class of a problem when it was last sampled
}

type stageKey struct {
	run   string
	stage int
}

type problemKey struct{ run, problem string }

// stage has the lengths of one stage of a run.
type stage struct {
	problems [numClasses]float64
	ends     [numClasses][numSpans]float64
	// seen and due are ends in each phase, and what the curves without phases expect:
	// their ratio is the phase's hazard.
	seen, due [numPhases]float64
	fresh     int
	limit     int
	// survival[p][j][c] is the chance to reach span j, with the hazard of phase p.
	survival [numPhases][numSpans + 1][numClasses]float64
	logs     [numPhases][numSpans + 1][numClasses]float64
	mean     [numClasses]float64 // tokens of a new trajectory
}

func newCurves(longest int) *curves {
	return &curves{width: (longest + numSpans - 1) / numSpans, stages: map[stageKey]*stage{}, memory: map[problemKey]int8{}}
}

func (c *curves) stage(k stageKey, limit int) *stage {
	st := c.stages[k]
	if st == nil {
		st = &stage{limit: limit}
		c.guess(st)
		c.stages[k] = st
	}
	return st
}

// guess fills a stage with curves before any trajectory has ended: classes that divide the
// limit evenly, each a bell of log-lengths around its middle.
func (c *curves) guess(st *stage) {
	for k := range numClasses {
		st.problems[k] = classCount
		middle := math.Log((float64(k) + 0.5) / numClasses * float64(st.limit))
		below := 0.0
		for j := range numSpans {
			if j*c.width >= st.limit {
				break
			}
			upTo := 1.0
			if end := (j + 1) * c.width; end < st.limit {
				upTo = normal((math.Log(float64(end)) - middle) / shapeSigma)
			}
			st.ends[k][j] = shapeCount * (upTo - below)
			below = upTo
		}
	}
	for p := range numPhases {
		st.seen[p], st.due[p] = 50, 50
	}
	c.fit(st)
}

func normal(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// fit makes the curves from the counts.
func (c *curves) fit(st *stage) {
	st.fresh = 0
	for k := range numClasses {
		total := 0.0
		for _, n := range st.ends[k] {
			total += n
		}
		left, mean := total, 0.0
		for j := range numSpans + 1 {
			share := max(left/total, smallest)
			mean += share * float64(c.width)
			for p := range numPhases {
				l := math.Log(share) * st.seen[p] / st.due[p]
				st.logs[p][j][k] = l
				st.survival[p][j][k] = max(math.Exp(l), smallest)
			}
			if j < numSpans {
				left -= st.ends[k][j]
			}
		}
		st.mean[k] = max(0, mean-float64(c.width)/2)
	}
}

// classOf finds the class of a mean length.
func (st *stage) classOf(mean float64) int {
	return min(numClasses-1, max(0, int(mean/float64(st.limit)*numClasses)))
}

func (c *curves) spanOf(length int64) int { return min(numSpans-1, int(length)/c.width) }

// end is how one trajectory ended: its length, and its lengths when phases began.
type end struct {
	length int64
	marks  [numPhases]int64
	phase  int
}

// learn takes in a problem, all of whose trajectories have ended.
func (c *curves) learn(st *stage, problem problemKey, ends []end) {
	if len(ends) == 0 {
		return
	}
	sum := 0.0
	for _, e := range ends {
		sum += float64(e.length)
	}
	k := st.classOf(sum / float64(len(ends)))
	c.memory[problem] = int8(k) //nolint:gosec // below numClasses
	for i := range numClasses {
		st.problems[i] *= forgetting
		for j := range numSpans {
			st.ends[i][j] *= forgetting
		}
	}
	st.problems[k]++
	for _, e := range ends {
		st.ends[k][c.spanOf(e.length)]++
		st.seen[e.phase]++
		for p := range e.phase + 1 {
			to := e.length
			if p < e.phase {
				to = e.marks[p+1]
			}
			// The curve of the phase has its hazard in it; dividing takes it out.
			hazard := st.logs[p][c.spanOf(e.marks[p])][k] - st.logs[p][c.spanOf(to)][k]
			st.due[p] += max(0, hazard) * st.due[p] / st.seen[p]
		}
	}
	if st.fresh++; st.fresh >= refitEvery {
		c.fit(st)
	}
}

// classWeights holds the logarithm of each class's weight for one problem.
type classWeights [numClasses]float64

// priorWeights returns the weights before the first trajectory: from the frequency of each
// class, and from the class that the problem had when it was sampled before.
func (c *curves) priorWeights(st *stage, problem problemKey) classWeights {
	var b classWeights
	before, known := c.memory[problem]
	for k := range numClasses {
		b[k] = math.Log(st.problems[k])
		if known {
			b[k] -= math.Abs(float64(k) - float64(before))
		}
	}
	return b
}

// weights returns the weights as shares that add up to 1.
func (b *classWeights) weights() (w [numClasses]float64) {
	top := b[0]
	for _, l := range b[1:] {
		top = max(top, l)
	}
	sum := 0.0
	for k, l := range b {
		w[k] = math.Exp(l - top)
		sum += w[k]
	}
	for k := range w {
		w[k] /= sum
	}
	return w
}

// survived adds that a trajectory lived from span i to span j.
func (b *classWeights) survived(st *stage, phase, i, j int) {
	for k := range b {
		b[k] += damping * (st.logs[phase][j][k] - st.logs[phase][i][k])
	}
}

// ended adds that a trajectory ended in span j, having reached it.
func (b *classWeights) ended(st *stage, phase, j int) {
	for k := range b {
		here, next := st.survival[phase][j][k], st.survival[phase][j+1][k]
		b[k] += damping * math.Log(max(1-next/here, 1e-3))
	}
}

// expect is the length of a new trajectory by which problems are ordered: the mean of the
// fourth powers, so that a problem that may be long goes before one that is surely average.
// The longest trajectories end a step, and those that start late end last.
func (b *classWeights) expect(st *stage) float64 {
	sum := 0.0
	for k, w := range b.weights() {
		square := st.mean[k] * st.mean[k]
		sum += w * square * square
	}
	return math.Sqrt(math.Sqrt(sum))
}
