package loss_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute"
	_ "github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/loss"
)

type node = graph.Node

// call runs a graph function once on the CPU backend.
func call(t *testing.T, fn func(in []*node) []*node, args ...any) []*tensors.Tensor {
	t.Helper()
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Finalize)
	exec, err := graph.NewExec(backend, fn)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Call(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func flat(t *testing.T, x *tensors.Tensor) []float32 {
	t.Helper()
	data, err := tensors.CopyFlatData[float32](x)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func near(t *testing.T, what string, got float32, want, tolerance float64) {
	t.Helper()
	if math.Abs(float64(got)-want) > tolerance || math.IsNaN(float64(got)) {
		t.Errorf("%s = %v, want %v within %v", what, got, want, tolerance)
	}
}

func TestLogprobsAndEntropy(t *testing.T) {
	// softmax of (ln 1, ln 2, ln 5) is (1/8, 2/8, 5/8); the second row is the
	// same distribution shifted far beyond what exp can hold.
	ln2, ln5 := float32(math.Ln2), float32(math.Log(5))
	logits := [][][]float32{{{0, ln2, ln5}, {500, 500 + ln2, 500 + ln5}}}
	targets := [][]int32{{2, 0}}
	entropy := -(1.0/8*math.Log(1.0/8) + 2.0/8*math.Log(2.0/8) + 5.0/8*math.Log(5.0/8))

	out := call(t, func(in []*node) []*node {
		lp, h := loss.Logprobs(in[0], in[1], 1)
		return []*node{lp, h}
	}, logits, targets)
	lp, h := flat(t, out[0]), flat(t, out[1])
	near(t, "log p(5/8)", lp[0], math.Log(5.0/8), 1e-6)
	near(t, "log p(1/8), shifted", lp[1], math.Log(1.0/8), 1e-4)
	near(t, "entropy", h[0], entropy, 1e-6)
	near(t, "entropy, shifted", h[1], entropy, 1e-4)

	// Temperature 1/2 squares the weights: 1, 4, 25.
	out = call(t, func(in []*node) []*node {
		lp, h := loss.Logprobs(in[0], in[1], 0.5)
		return []*node{lp, h}
	}, logits, targets)
	near(t, "log p at temperature 0.5", flat(t, out[0])[0], math.Log(25.0/30), 1e-6)
}

func TestLogprobsGradient(t *testing.T) {
	// d log p(target) / d logits = onehot - softmax, and entropy adds nothing.
	ln2, ln5 := float32(math.Ln2), float32(math.Log(5))
	out := call(t, func(in []*node) []*node {
		lp, h := loss.Logprobs(in[0], in[1], 1)
		return graph.Gradient(graph.ReduceAllSum(graph.Add(lp, h)), in[0])
	}, [][]float32{{0, ln2, ln5}}, []int32{1})
	for i, want := range []float64{-1.0 / 8, 1 - 2.0/8, -5.0 / 8} {
		near(t, "gradient", flat(t, out[0])[i], want, 1e-6)
	}
}

func TestSFT(t *testing.T) {
	inf := float32(math.Inf(-1))
	out := call(t, func(in []*node) []*node {
		l := loss.SFT(in[0], in[1], in[2])
		return append([]*node{l}, graph.Gradient(l, in[0])...)
	}, [][]float32{{-1, -2}, {-4, inf}}, [][]bool{{true, false}, {true, false}}, float32(10))
	near(t, "loss", flat(t, out[0])[0], 0.5, 1e-7)
	for i, want := range []float64{-0.1, 0, -0.1, 0} {
		near(t, "gradient", flat(t, out[1])[i], want, 1e-7)
	}
}

// objective returns loss, clip counts, KL sum and d loss / d logprobs.
func objective(t *testing.T, logprobs, old, advantages []float32, mask []bool, denominator float32) (sums [4]float32, gradient []float32) {
	t.Helper()
	out := call(t, func(in []*node) []*node {
		s := loss.GRPO{ClipLow: 0.2, ClipHigh: 0.28}.Sums(loss.GRPOInputs{
			Logprobs: in[0], OldLogprobs: in[1], Advantages: in[2], Mask: in[3], Denominator: in[4]})
		return append([]*node{s.Loss, s.ClipLow, s.ClipHigh, s.KL}, graph.Gradient(s.Loss, in[0])...)
	}, logprobs, old, advantages, mask, denominator)
	for i := range sums {
		sums[i] = flat(t, out[i])[0]
	}
	return sums, flat(t, out[4])
}

func TestGRPOByHand(t *testing.T) {
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	// ratio and advantage of each token, and the value that min(r A, clip(r) A) takes.
	rows := []struct {
		ratio, advantage, gain, slope float64
		mask                          bool
	}{
		{1, 2, 2, 2, true},          // on policy
		{1.2, 1, 1.2, 1.2, true},    // inside
		{1.5, 1, 1.28, 0, true},     // held at 1+high
		{0.5, 1, 0.5, 0.5, true},    // below, but a good token: not held
		{0.5, -1, -0.8, 0, true},    // held at 1-low
		{1.5, -1, -1.5, -1.5, true}, // above, but a bad token: not held
		{0.9, -2, -1.8, -1.8, true}, // inside
		{3, 0, 0, 0, true},          // no advantage
		{100, 9, 0, 0, false},       // not in the loss
	}
	var logprobs, old, advantages []float32
	var mask []bool
	var gain, kl float64
	for _, r := range rows {
		logprobs, old = append(logprobs, ln(r.ratio)-1), append(old, -1)
		advantages, mask = append(advantages, float32(r.advantage)), append(mask, r.mask)
		if r.mask {
			gain += r.gain
			kl -= math.Log(r.ratio)
		}
	}
	sums, gradient := objective(t, logprobs, old, advantages, mask, 16)
	near(t, "loss", sums[0], -gain/16, 1e-6)
	near(t, "clip low", sums[1], 1, 0)
	near(t, "clip high", sums[2], 1, 0)
	near(t, "kl", sums[3], kl, 1e-5)
	for i, r := range rows {
		near(t, "gradient", gradient[i], -r.slope/16, 1e-6)
	}
}

func TestGRPOOnPolicyIsExact(t *testing.T) {
	logprobs := []float32{-0.1, -3.7, -11.2}
	sums, gradient := objective(t, logprobs, logprobs, []float32{0.5, -1.5, 1}, []bool{true, true, true}, 1)
	if sums != [4]float32{0, 0, 0, 0} {
		t.Errorf("loss, clips, kl = %v, want exactly zero for advantages that add up to zero", sums)
	}
	for i, want := range []float32{-0.5, 1.5, -1} {
		if gradient[i] != want {
			t.Errorf("gradient[%d] = %v, want exactly -advantage = %v", i, gradient[i], want)
		}
	}
}

func TestGRPOSurvivesAbsurdRatios(t *testing.T) {
	sums, gradient := objective(t, []float32{-1, -1}, []float32{-200, -200}, []float32{-1, 1}, []bool{true, true}, 2)
	for _, x := range append(sums[:], gradient...) {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			t.Fatalf("sums %v, gradient %v: not finite", sums, gradient)
		}
	}
}

func TestGRPOGradientMatchesFiniteDifferences(t *testing.T) {
	const n, h = 12, 1e-3
	draw := rand.New(rand.NewPCG(1, 2))
	logprobs, old, advantages, mask := make([]float32, n), make([]float32, n), make([]float32, n), make([]bool, n)
	for i := range n {
		logprobs[i] = float32(-3 * draw.Float64())
		old[i] = logprobs[i] + float32(draw.NormFloat64()*0.4)
		advantages[i] = float32(draw.NormFloat64())
		mask[i] = i%4 != 3
	}
	_, gradient := objective(t, logprobs, old, advantages, mask, 5)
	for i := range n {
		up, down := append([]float32{}, logprobs...), append([]float32{}, logprobs...)
		up[i] += h
		down[i] -= h
		hi, _ := objective(t, up, old, advantages, mask, 5)
		lo, _ := objective(t, down, old, advantages, mask, 5)
		near(t, "gradient", gradient[i], float64(hi[0]-lo[0])/(2*h), 2e-3)
	}
}

// TestSplitsAddUp cuts a minibatch at random places: loss, sums and gradients
// of the parts must add up to those of the whole.
func TestSplitsAddUp(t *testing.T) {
	const n = 40
	draw := rand.New(rand.NewPCG(3, 4))
	logprobs, old, advantages, mask := make([]float32, n), make([]float32, n), make([]float32, n), make([]bool, n)
	for i := range n {
		logprobs[i], old[i] = float32(-draw.Float64()), float32(-draw.Float64())
		advantages[i], mask[i] = float32(draw.NormFloat64()), draw.IntN(3) > 0
	}
	whole, gradient := objective(t, logprobs, old, advantages, mask, 27)
	for range 5 {
		var sums [4]float32
		for from := 0; from < n; {
			to := min(n, from+1+draw.IntN(n/2))
			s, g := objective(t, logprobs[from:to], old[from:to], advantages[from:to], mask[from:to], 27)
			for i := range sums {
				sums[i] += s[i]
			}
			for i := range g {
				if g[i] != gradient[from+i] {
					t.Fatalf("gradient of token %d depends on the split: %v, want %v", from+i, g[i], gradient[from+i])
				}
			}
			from = to
		}
		for i := range sums {
			near(t, "sum over the parts", sums[i], float64(whole[i]), 1e-5)
		}
	}
}

func TestAbsDifference(t *testing.T) {
	out := call(t, func(in []*node) []*node { return []*node{loss.AbsDifference(in[0], in[1], in[2])} },
		[]float32{-1, -2, 9}, []float32{-1.5, -1, 0}, []bool{true, true, false})
	near(t, "sum", flat(t, out[0])[0], 1.5, 1e-7)
}
