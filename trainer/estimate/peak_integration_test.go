//go:build integration

package estimate_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"temper/internal/config"
	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/loss"
	"temper/trainer/model"
)

// every leaves out most shapes, since each takes three processes or more.
var every = flag.Int("every", 6, "measure each n-th shape; 1 for all")

// How far an estimate may be from a real peak, that of passes side by side too.
const bound = 0.15

// stepEnv makes the test binary take one step and print what it took.
const stepEnv = "TEMPER_MEASURE_STEP"

func TestMain(m *testing.M) {
	flag.Parse()
	text := os.Getenv(stepEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var s memoryStep
	err := json.Unmarshal([]byte(text), &s)
	var r memory
	if err == nil {
		r, err = measureMemory(context.Background(), s)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sized returns a model of the given sizes; its heads are of 32.
func sized(vocab, hidden, feed, layers, heads int) model.Config {
	return model.Config{VocabSize: vocab, HiddenSize: hidden, IntermediateSize: feed, NumHiddenLayers: layers, NumAttentionHeads: heads,
		NumKeyValueHeads: heads / 2, HeadDim: 32, MaxPositionEmbeddings: 4096, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}
}

// TestPeaks compares predicted with measured peaks of steps on the Go backend,
// each in a process of its own. The estimator's constants were chosen on these shapes.
func TestPeaks(t *testing.T) {
	one, five := sized(1024, 128, 384, 4, 4), sized(1024, 256, 768, 6, 8)
	wide, fat := sized(16384, 128, 384, 4, 4), sized(1024, 384, 1152, 4, 4)
	compare(t, []memoryStep{
		{Model: one, Rows: 15, Length: 256}, {Model: one, Rows: 15, Length: 256, Remat: true},
		{Model: one, Rows: 7, Length: 512}, {Model: one, Rows: 7, Length: 512, Remat: true},
		{Model: one, Rows: 31, Length: 128}, {Model: one, Rows: 3, Length: 1024},
		{Model: five, Rows: 15, Length: 256}, {Model: five, Rows: 15, Length: 256, Remat: true},
		{Model: five, Rows: 7, Length: 512}, {Model: five, Rows: 7, Length: 512, Remat: true},
		{Model: one, Rows: 7, Length: 256, Passes: 2}, {Model: one, Rows: 7, Length: 256, Passes: 2, Remat: true},
		{Model: five, Rows: 7, Length: 256, Passes: 2}, {Model: five, Rows: 2, Length: 256, Passes: 2},
		{Model: wide, Rows: 5, Length: 256}, {Model: wide, Rows: 5, Length: 256, Loss: chunked(5 * 256 * 2048)},
		{Model: wide, Rows: 5, Length: 256, Remat: true, Loss: chunked(5 * 256 * 512)},
		{Model: fat, Rows: 1, Length: 64, Minibatches: 4}, {Model: fat, Rows: 1, Length: 64, Loss: reference()},
	})
}

// TestOtherPeaks is TestPeaks on other shapes, and mixtures of switches. The
// estimator's rules were corrected by some of them, see docs/decisions/0012-memory-on-the-cpu.md.
func TestOtherPeaks(t *testing.T) {
	two, six, eight := sized(3000, 160, 448, 5, 6), sized(8192, 224, 640, 7, 6), sized(5000, 192, 600, 8, 4)
	mixed := chunked(3 * 320 * 1024)
	mixed.EntropyFraction, mixed.KL = 0.2, reference().KL
	compare(t, []memoryStep{
		{Model: two, Rows: 11, Length: 160}, {Model: two, Rows: 5, Length: 448, Remat: true},
		{Model: two, Rows: 7, Length: 256, Sequences: 4}, {Model: two, Rows: 3, Length: 512, Sequences: 8, Remat: true},
		{Model: two, Rows: 5, Length: 288, Minibatches: 2},
		{Model: two, Rows: 5, Length: 288, Passes: 2}, {Model: two, Rows: 3, Length: 448, Passes: 2, Remat: true},
		{Model: six, Rows: 3, Length: 320, Passes: 2}, {Model: six, Rows: 2, Length: 192, Passes: 2},
		{Model: six, Rows: 3, Length: 320}, {Model: six, Rows: 3, Length: 320, Loss: chunked(3 * 320 * 2048)},
		{Model: six, Rows: 3, Length: 320, Loss: reference()}, {Model: six, Rows: 3, Length: 320, Loss: config.Loss{EntropyFraction: 0.2}},
		{Model: six, Rows: 3, Length: 320, Loss: mixed, Minibatches: 2, Remat: true},
		{Model: six, Rows: 3, Length: 320, Remat: true}, {Model: two, Rows: 7, Length: 160, Remat: true},
		{Model: eight, Rows: 3, Length: 448, Remat: true}, {Model: eight, Rows: 5, Length: 224, Remat: true},
		{Model: eight, Rows: 3, Length: 448},
	})
}

func chunked(maxLogits int) config.Loss { return config.Loss{MaxLogits: maxLogits} }

func reference() config.Loss { return config.Loss{KL: config.KL{Coefficient: 0.1}} }

func compare(t *testing.T, steps []memoryStep) {
	t.Helper()
	for i, s := range steps {
		if i%*every != 0 {
			continue
		}
		s.Repeat = 3
		r, err := estimate.Estimate(estimate.Config{
			Model: s.Model, Mesh: device.Mesh{Data: 1, Model: 1}, Rows: s.Rows, Length: s.Length, Remat: s.Remat,
			Passes: s.Passes, Accumulate: s.Passes > 1,
			LogitsChunk: loss.ChunkSize(s.Loss.MaxLogits, s.Rows*s.Length, s.Model.VocabSize), Packed: s.Sequences > 1,
			Reference: s.Loss.KL.Coefficient > 0, SeveralUpdates: s.Minibatches > 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		// The median of three: a buffer of a tenth of the whole may be taken by the
		// collector while the next one is made, or not.
		all := []int64{peak(t, s), peak(t, s), peak(t, s)}
		slices.Sort(all)
		got := all[1]
		off, over := float64(r.Peak)/float64(got)-1, float64(r.Peak)/float64(max(got, atOnce(t, s)))-1
		t.Logf("%.2g million parameters, vocabulary %5d, %d of %2d x %4d, remat %-5v sequences %d, updates %d, max_logits %d, kl %v, entropy %v: predicted %6.1f MB (%s), measured %6.1f MB, %+5.1f %%",
			float64(s.Model.NumParameters())/1e6, s.Model.VocabSize, max(1, s.Passes), s.Rows, s.Length, s.Remat, max(1, s.Sequences), max(1, s.Minibatches), s.Loss.MaxLogits,
			s.Loss.KL.Coefficient > 0, s.Loss.EntropyFraction > 0, float64(r.Peak)/1e6, r.PeakAt, float64(got)/1e6, 100*off)
		if off < -bound || over > bound {
			t.Errorf("the estimate is %.1f %% above what the step took and %.1f %% above what its passes take at once, want from %.0f %% to %.0f %%",
				100*off, 100*over, -100*bound, 100*bound)
		}
	}
}

// atOnce is what the passes side by side would take if each had its peak at the
// same moment, and 0 for one pass. How near they come to it depends on the moment:
// a machine that is busy with other work keeps them apart.
func atOnce(t *testing.T, s memoryStep) int64 {
	t.Helper()
	passes := int64(s.Passes)
	if passes < 2 {
		return 0
	}
	s.Passes = 1
	return passes * peak(t, s)
}

// peak takes the step in another process.
func peak(t *testing.T, s memoryStep) int64 {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), stepEnv+"="+string(text)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r memory
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r.Peak
}
