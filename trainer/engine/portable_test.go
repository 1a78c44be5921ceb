package engine_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"temper/internal/config"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/cpu/kernels"
	"temper/trainer/engine"
	"temper/trainer/model"
)

// runFile is where a child process writes what its runs stored.
const runFile = "ENGINE_TEST_RUNS"

// wide is a network of which some products are large and others cut into panels of
// either depth.
func wide() model.Config {
	c := ci()
	c.HiddenSize, c.IntermediateSize, c.HeadDim, c.NumHiddenLayers, c.VocabSize = 208, 272, 32, 1, 401
	return c
}

// tinyRun makes a run of a network: supervised updates, then steps of sampling and an
// update. It returns a digest of all policies and samples.
func tinyRun(t *testing.T, network model.Config, c kernels.Choice) string {
	t.Helper()
	tr, err := trainer.New(trainer.Config{Model: network, Kernels: c, MicrobatchTokens: 512, LaneTokens: 256, Temperature: 1, Pack: true,
		Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28, KL: config.KL{Coefficient: 0.1, Estimator: "k3"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	weights, err := model.InitialTensors(network, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Import(weights); err != nil {
		t.Fatal(err)
	}
	e := start(t, engine.Config{Model: network, Kernels: c, Slots: 8, Shards: 2, MaxContext: network.MaxPositionEmbeddings})
	adam := config.Default().RL.Optimizer
	adam.LR = 1e-3
	h := sha256.New()
	for step := range 3 {
		weights, err := tr.Weights()
		if err != nil {
			t.Fatal(err)
		}
		if err := e.LoadTensors(t.Context(), weights, int64(step+2)); err != nil {
			t.Fatal(err)
		}
		samples := drawn(t, e, uint64(step))
		for i := range samples {
			write(t, h, samples[i].Tokens, samples[i].RolloutLogprobs)
		}
		for _, w := range weights {
			write(t, h, w.Data)
		}
		at := trainer.Position{Step: step + 1, Total: 3}
		if step == 0 { // supervised
			if _, err := tr.SFTStep(t.Context(), samples, adam, at); err != nil {
				t.Fatal(err)
			}
			if err := tr.KeepReference(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		m, err := tr.Update(t.Context(), rl.Batch{Step: step, Samples: samples}, trainer.UpdateOptions{Optimizer: adam, Position: at, NumMinibatches: 1})
		if err != nil {
			t.Fatal(err)
		}
		if m.MismatchMax != 0 || m.PPOKL != 0 {
			t.Errorf("%s kernels, step %d: the trainer is up to %g off the engine, ppo_kl %g; want 0", c, step, m.MismatchMax, m.PPOKL)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// drawn samples 2 trajectories of each of 4 prompts, side by side.
func drawn(t *testing.T, e *engine.Engine, seed uint64) []rl.Sample {
	t.Helper()
	out := make([]rl.Sample, 8)
	var all sync.WaitGroup
	for i := range out {
		all.Go(func() {
			tokens := prompt(i/2, 7+i/2)
			gen, err := e.Generate(t.Context(), inference.Request{Tokens: tokens, MaxTokens: 12 + 10*i, Temperature: 1, Seed: seed<<8 + uint64(i), Version: -1})
			if err != nil {
				t.Error(err)
				return
			}
			s := rl.Sample{ProblemID: fmt.Sprint(i / 2), Rollout: i % 2, Advantage: float32(2*(i%2) - 1)}
			s.Tokens = append(slices.Clone(tokens), gen.Tokens...)
			s.RolloutLogprobs = append(make([]float32, len(tokens)), gen.Logprobs...)
			for k := range s.Tokens {
				s.LossMask = append(s.LossMask, k >= len(tokens))
			}
			out[i] = s
		})
	}
	all.Wait()
	return out
}

// write adds numbers to a digest.
func write(t *testing.T, h hash.Hash, values ...any) {
	t.Helper()
	for _, v := range values {
		if err := binary.Write(h, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
}

// both are the choices of kernels.
var both = []kernels.Choice{kernels.Native, kernels.Portable}

// networks of the tiny runs: one of small products, one of large ones.
func networks() map[string]model.Config {
	return map[string]model.Config{"small": ci(), "wide": wide()}
}

// allRuns makes each run with both choices: "network choice" to digest.
func allRuns(t *testing.T) map[string]string {
	out := map[string]string{}
	for name, network := range networks() {
		for _, c := range both {
			out[name+" "+string(c)] = tinyRun(t, network, c)
		}
	}
	return out
}

// TestRunsInAChild is what TestRunOnEveryMachine runs in processes of their own.
func TestRunsInAChild(t *testing.T) {
	file := os.Getenv(runFile)
	if file == "" {
		t.Skip("only as a child")
	}
	var b strings.Builder
	for name, digest := range allRuns(t) {
		fmt.Fprintf(&b, "%s %s\n", name, digest)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRunOnEveryMachine: a whole run of training and sampling with portable kernels has
// the same policies and samples on CPUs with other vectors. One with native kernels has not.
func TestRunOnEveryMachine(t *testing.T) {
	if err := kernels.Check(kernels.Portable); err != nil {
		t.Skip(err)
	}
	here := allRuns(t)
	wider := kernels.Describe(kernels.Native).Variant == kernels.AVX512
	for _, environ := range []string{"GODEBUG=cpu.avx512f=off", "GODEBUG=simd=+128,cpu.avx512f=off"} {
		there := runsOf(t, environ)
		for name := range networks() {
			portable := here[name+" portable"]
			if got := there[name+" portable"]; got != portable {
				t.Errorf("%s, %s: portable kernels make another run: %s, want %s", environ, name, got, portable)
			}
			if same := there[name+" native"] == here[name+" native"]; same && wider {
				t.Errorf("%s, %s: the native run is the same without AVX-512, so nothing was taken away", environ, name)
			}
		}
	}
}

// runsOf makes all runs in a process with a variable of the environment.
func runsOf(t *testing.T, environ string) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runs")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRunsInAChild$")
	cmd.Env = append(os.Environ(), environ, runFile+"="+file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", environ, err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		got[f[0]+" "+f[1]] = f[2]
	}
	return got
}

// TestRunsOfBothChoicesShareAProcess: runs with native and with portable kernels that
// compute at the same time have the bits that they have alone.
func TestRunsOfBothChoicesShareAProcess(t *testing.T) {
	if err := kernels.Check(kernels.Portable); err != nil {
		t.Skip(err)
	}
	want := map[kernels.Choice]string{}
	for _, c := range both {
		want[c] = tinyRun(t, ci(), c)
	}
	for i := range 4 {
		c := both[i%2]
		t.Run(fmt.Sprint(c, i), func(t *testing.T) {
			t.Parallel()
			if got := tinyRun(t, ci(), c); got != want[c] {
				t.Errorf("beside others: %s, want %s", got, want[c])
			}
		})
	}
}
