package rl_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/rl"
)

func someSamples() []rl.Sample {
	long := rl.Sample{ProblemID: "p/\u00e9\n\"", Rollout: 31, Advantage: float32(math.Pi), Truncated: true}
	for i := range 1000 {
		long.Tokens = append(long.Tokens, int32(i*7919%151936))
		long.LossMask = append(long.LossMask, i > 20 && i%7 != 0)
		logprob := float32(0)
		if long.LossMask[i] {
			logprob = -rl.Uniform(3, i)
		}
		long.RolloutLogprobs = append(long.RolloutLogprobs, logprob)
	}
	return []rl.Sample{
		{ProblemID: "q", Tokens: []int32{1, math.MaxInt32, 10}, LossMask: []bool{false, true, true}, RolloutLogprobs: []float32{0, -math.MaxFloat32, -1e-45}, Advantage: -0.70710677},
		long,
		{ProblemID: "empty", Tokens: []int32{}, LossMask: []bool{}, RolloutLogprobs: []float32{}},
	}
}

// TestSamplesSurviveStorage: each bit that the trainer sees comes back.
func TestSamplesSurviveStorage(t *testing.T) {
	for _, samples := range [][]rl.Sample{nil, someSamples()} {
		var buf bytes.Buffer
		if err := rl.WriteSamples(&buf, samples); err != nil {
			t.Fatal(err)
		}
		got, err := rl.ReadSamples(&buf)
		if diff := cmp.Diff(samples, got); err != nil || diff != "" {
			t.Errorf("error %v, -written +read:\n%s", err, diff)
		}
	}
	var buf bytes.Buffer
	if err := rl.WriteSamples(&buf, []rl.Sample{{ProblemID: "p", Tokens: []int32{1}}}); err == nil || !strings.Contains(err.Error(), "sample p/0: 1 tokens, 0 mask") {
		t.Errorf("a sample without its mask: %v", err)
	}
	outside := rl.Sample{ProblemID: "p", Tokens: []int32{1}, LossMask: []bool{false}, RolloutLogprobs: []float32{-1}}
	if err := rl.WriteSamples(&buf, []rl.Sample{outside}); err == nil || !strings.Contains(err.Error(), "token 0 is not in the loss") {
		t.Errorf("a log-probability that would be lost: %v", err)
	}
}

// TestDamagedSamplesAreRefused: a file that is cut anywhere is refused, and a
// header does not make the reader allocate what is not there.
func TestDamagedSamplesAreRefused(t *testing.T) {
	var buf bytes.Buffer
	if err := rl.WriteSamples(&buf, someSamples()[:2]); err != nil {
		t.Fatal(err)
	}
	whole, err := rl.ReadSamples(bytes.NewReader(buf.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	boundary := 0
	for n := range buf.Len() {
		got, err := rl.ReadSamples(bytes.NewReader(buf.Bytes()[:n]))
		if err == nil {
			boundary++
			if diff := cmp.Diff(whole[:len(got)], got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("cut at %d: other samples:\n%s", n, diff)
			}
		}
	}
	if boundary != 2 { // behind the first line, and behind the first sample
		t.Errorf("%d cuts were accepted, want those between samples alone", boundary)
	}
	forged := "temper samples 1\n" + `{"problem_id": "p", "tokens": 16000000}` + "\nxx"
	if allocated := testing.AllocsPerRun(1, func() { _, _ = rl.ReadSamples(strings.NewReader(forged)) }); allocated > 100 {
		t.Errorf("%v allocations for a forged header", allocated)
	}
	for _, bad := range []string{"", "temper", "temper samples 2\n", "temper samples 1\n{", "temper samples 1\n{\"tokens\": -1}\n", "temper samples 1\n{\"tokens\": 99999999}\n"} {
		if _, err := rl.ReadSamples(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzReadSamples(f *testing.F) {
	var buf bytes.Buffer
	if err := rl.WriteSamples(&buf, someSamples()[:1]); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		samples, err := rl.ReadSamples(bytes.NewReader(data))
		if err != nil {
			return
		}
		for i := range samples { // NaN equals nothing
			for j, v := range samples[i].RolloutLogprobs {
				if v != v {
					samples[i].RolloutLogprobs[j] = 0
				}
			}
		}
		var again bytes.Buffer
		if err := rl.WriteSamples(&again, samples); err != nil {
			t.Fatal(err)
		}
		got, err := rl.ReadSamples(&again)
		if diff := cmp.Diff(samples, got); err != nil || diff != "" {
			t.Errorf("error %v, -read +read again:\n%s", err, diff)
		}
	})
}
