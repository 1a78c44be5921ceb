package trainerbench_test

import (
	"bytes"
	"errors"
	"math"
	"runtime/pprof"
	"strings"
	"testing"

	"temper/tools/bench/trainerbench"
)

// tiny is a configuration that trains in milliseconds.
func tiny(t *testing.T) trainerbench.Config {
	t.Helper()
	model, err := trainerbench.Model("d16,L1,H2,KV1,E8,ff16,V32")
	if err != nil {
		t.Fatal(err)
	}
	return trainerbench.Config{Model: model, Batch: 3, Tokens: 16, Rounds: 2, Steps: 2, Seed: 1}
}

func TestModelSizes(t *testing.T) {
	for _, c := range []struct {
		name   string
		params int
	}{
		{"1m", 918912},
		{"5M", 4984448},
		{"d128,L4,H4,KV2,ff384,V1024", 918912},
		{"d256 L6 H8 KV4 E32 ff768 V1024", 4984448},
	} {
		cfg, err := trainerbench.Model(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.NumParameters(); got != c.params {
			t.Errorf("%s has %d parameters, want %d", c.name, got, c.params)
		}
	}
	for name, want := range map[string]string{
		"d128,X4": `"X4"`, "d16,H3,KV2": "num_attention_heads", "nowhere": "neither a file",
	} {
		if _, err := trainerbench.Model(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %s", name, err, want)
		}
	}
}

func TestTrainReportsWhatItMeasured(t *testing.T) {
	c := tiny(t)
	r, err := trainerbench.Train(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rounds) != 2 || len(r.Losses) != 4 || r.Peak == nil {
		t.Fatalf("%d rounds, %d losses, peak %v: want 2, 4 and a peak", len(r.Rounds), len(r.Losses), r.Peak)
	}
	// Nothing is known of uniform tokens: the loss starts near the logarithm of
	// the vocabulary and falls as the batch is learned by heart.
	if want := math.Log(32); math.Abs(r.Losses[0]-want) > 0.05 {
		t.Errorf("first loss %v, want about %v", r.Losses[0], want)
	}
	if r.Losses[3] >= r.Losses[0] {
		t.Errorf("losses %v do not fall", r.Losses)
	}
	if got, want := r.TokensPerSecond*r.Step.Wall.Seconds(), 48.0; math.Abs(got-want) > 1e-6 {
		t.Errorf("%v tokens a step, want %v", got, want)
	}
	if r.Peak.PerCore < 1e8 || r.PeakShare <= 0 || r.PeakShare >= 1 {
		t.Errorf("share %v of a peak of %v", r.PeakShare, r.Peak.PerCore)
	}
	if r.PeakRSS < 1<<20 {
		t.Errorf("peak memory of %d bytes", r.PeakRSS)
	}
}

func TestDecodeCountsAllTokens(t *testing.T) {
	c := tiny(t)
	c.Rounds = 1
	d, err := trainerbench.Decode(t.Context(), c, 4)
	if err != nil {
		t.Fatal(err)
	}
	if d.Tokens != 4*128 || d.TokensPerSecond <= 0 || d.TokensPerCPUSecond <= 0 {
		t.Errorf("report %+v, want 512 tokens in some time", d)
	}
}

func TestBadConfigurationNamesAllFaults(t *testing.T) {
	c := tiny(t)
	c.Batch, c.Rounds, c.MicrobatchTokens = 0, -1, -1
	_, err := trainerbench.Train(t.Context(), c, nil)
	for _, want := range []string{"batch", "rounds", "microbatch tokens"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

func TestFailedProfileFailsTheMeasurement(t *testing.T) {
	want := errors.New("no profile")
	_, err := trainerbench.Train(t.Context(), tiny(t), func(func() error) error { return want })
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// TestSharesOfMatrixProducts profiles products alone: they must be found, and
// the shares must be of a whole.
func TestSharesOfMatrixProducts(t *testing.T) {
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		t.Skipf("another profile is being taken: %v", err)
	}
	_, err := trainerbench.MeasurePeak(20)
	pprof.StopCPUProfile()
	if err != nil {
		t.Fatal(err)
	}
	shares, err := trainerbench.Shares(profile.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, s := range shares {
		sum += s
	}
	if math.Abs(sum-1) > 1e-9 || shares["gemm"] < 0.5 {
		t.Errorf("shares %v sum to %v, want 1 with most in gemm", shares, sum)
	}
	if _, err := trainerbench.Shares(profile.Bytes()[:profile.Len()/2]); err == nil {
		t.Error("half a profile was read without an error")
	}
}
