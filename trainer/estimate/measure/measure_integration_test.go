//go:build integration

package measure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"

	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/estimate/measure"
	"temper/trainer/qwen3"
)

// How far an estimate may be from a real peak: that of one pass, and that of
// passes side by side, which need not reach their peaks at the same moment.
const bound, sideBySideBound = 0.15, 0.25

// stepEnv makes the test binary take one step and print what it took.
const stepEnv = "TEMPER_MEASURE_STEP"

func TestMain(m *testing.M) {
	text := os.Getenv(stepEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var s measure.Step
	err := json.Unmarshal([]byte(text), &s)
	var r measure.Result
	if err == nil {
		r, err = measure.Run(context.Background(), s)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestPeaks compares predicted with measured peaks of steps on the Go backend,
// each in a process of its own.
func TestPeaks(t *testing.T) {
	one := qwen3.Config{VocabSize: 1024, HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 4, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		HeadDim: 32, MaxPositionEmbeddings: 4096, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}
	five := one
	five.HiddenSize, five.IntermediateSize, five.NumHiddenLayers, five.NumAttentionHeads, five.NumKeyValueHeads = 256, 768, 6, 8, 4
	for _, s := range []measure.Step{
		{Model: one, Rows: 15, Length: 256}, {Model: one, Rows: 15, Length: 256, Remat: true},
		{Model: one, Rows: 7, Length: 512}, {Model: one, Rows: 7, Length: 512, Remat: true},
		{Model: one, Rows: 31, Length: 128}, {Model: one, Rows: 3, Length: 1024},
		{Model: five, Rows: 15, Length: 256}, {Model: five, Rows: 15, Length: 256, Remat: true},
		{Model: five, Rows: 7, Length: 512}, {Model: five, Rows: 7, Length: 512, Remat: true},
		{Model: one, Rows: 7, Length: 256, Passes: 2}, {Model: one, Rows: 7, Length: 256, Passes: 2, Remat: true},
		{Model: five, Rows: 7, Length: 256, Passes: 2}, {Model: five, Rows: 2, Length: 256, Passes: 2},
	} {
		s.Repeat = 3
		r, err := estimate.Estimate(estimate.Config{Model: s.Model, Mesh: device.Mesh{Data: 1, Model: 1}, Rows: s.Rows, Length: s.Length,
			Passes: s.Passes, Accumulate: s.Passes > 1, Remat: s.Remat})
		if err != nil {
			t.Fatal(err)
		}
		got := peak(t, s)
		off := float64(r.Peak)/float64(got) - 1
		t.Logf("%.2g million parameters, %d of %2d x %4d, remat %-5v: predicted %6.1f MB, measured %6.1f MB, %+5.1f %%",
			float64(s.Model.NumParameters())/1e6, max(1, s.Passes), s.Rows, s.Length, s.Remat, float64(r.Peak)/1e6, float64(got)/1e6, 100*off)
		limit := bound
		if s.Passes > 1 {
			limit = sideBySideBound
		}
		if math.Abs(off) > limit {
			t.Errorf("the estimate is off by %.1f %%, want at most %.0f %%", 100*off, 100*limit)
		}
	}
}

// peak takes the step in another process.
func peak(t *testing.T, s measure.Step) int64 {
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
	var r measure.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r.Peak
}
