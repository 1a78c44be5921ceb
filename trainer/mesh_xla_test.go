//go:build xla

package trainer_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/device"
	"temper/trainer/plugin"
	"temper/trainer/qwen3"
)

// Bounds between a mesh and one device, after four updates at a learning rate of 1e-2.
// Sums over devices have an order of their own, and AdamW divides by roots of small
// numbers: a weight whose gradient is almost zero may move otherwise by a part of a step.
const (
	meshLoss     = 2e-5
	meshLogprob  = 2e-3
	meshWeights  = 2e-3 // of how far the updates move them, in norm
	bf16Loss     = 2e-2
	bf16Weights  = 0.5
	bf16Logprobs = 0.2
)

// cpuPlugin is the backend of the CPU plugin, with its four devices.
func cpuPlugin(t testing.TB) string {
	t.Helper()
	if _, err := plugin.Find("cpu"); err != nil {
		if os.Getenv("TEMPER_REQUIRE_XLA") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v (2026-11-23: temper backend install cpu)", err)
	}
	return "xla:cpu"
}

// meshes over four devices.
var meshes = []device.Mesh{
	{Data: 4, Model: 1, FSDP: true},
	{Data: 1, Model: 4},
	{Data: 2, Model: 2, FSDP: true},
}

// meshConfig has dimensions that all of these meshes divide.
func meshConfig(backend string, mesh device.Mesh) trainer.Config {
	return trainer.Config{
		Backend: backend, Mesh: mesh,
		Model: qwen3.Config{
			VocabSize: 40, HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 2, NumAttentionHeads: 8, NumKeyValueHeads: 4,
			HeadDim: 8, MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1,
		},
		Seed: 7, MicrobatchTokens: 128, Temperature: 0.8, Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28, KL: config.KL{Coefficient: 0.05}},
	}
}

// lesson is what a trainer does in these tests: it keeps its policy as the reference,
// learns from examples, and makes two steps of two updates of several passes each.
type lesson struct {
	losses   []float64
	logprobs [][]float32
	state    checkpoint.State
}

func teach(t testing.TB, tr *trainer.Trainer) lesson {
	t.Helper()
	var out lesson
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(tr.KeepReference())
	o := adam()
	o.Eps = 1e-4
	m, err := tr.SFTStep(t.Context(), samples(6, 24, 3), o, constant(1))
	must(err)
	out.losses = append(out.losses, m.Loss, m.GradNorm)
	for step := 1; step <= 2; step++ {
		m, err := tr.Update(t.Context(), rl.Batch{Step: step, Samples: samples(12, 24, uint64(step))},
			trainer.UpdateOptions{Optimizer: o, Position: constant(step), NumMinibatches: 2})
		must(err)
		out.losses = append(out.losses, m.Loss, m.GradNorm, m.Entropy, m.RefK3)
	}
	out.logprobs, err = tr.Logprobs(t.Context(), samples(5, 24, 9))
	must(err)
	out.state = snapshot(t, tr)
	return out
}

// near compares two lessons and returns the largest differences: of a loss, of a
// log-probability, and of the weights as a part of their movement.
func near(a, b lesson, start []qwen3.Tensor) (losses, logprobs, weights float64) {
	for i := range a.losses {
		losses = max(losses, math.Abs(a.losses[i]-b.losses[i])/max(1, math.Abs(b.losses[i])))
	}
	for i := range a.logprobs {
		for j := range a.logprobs[i] {
			logprobs = max(logprobs, math.Abs(float64(a.logprobs[i][j]-b.logprobs[i][j])))
		}
	}
	return losses, logprobs, norm(a.state.Weights, b.state.Weights) / norm(b.state.Weights, start)
}

// norm is that of the difference of two sets of weights.
func norm(a, b []qwen3.Tensor) float64 {
	sum := 0.0
	for i := range a {
		for j := range a[i].Data {
			d := float64(a[i].Data[j]) - float64(b[i].Data[j])
			sum += d * d
		}
	}
	return math.Sqrt(sum)
}

// TestMeshesLearnAsOneDevice, and twice the same: a second lesson from the same start
// ends in the same bits. A policy from each mesh is published as it is.
func TestMeshesLearnAsOneDevice(t *testing.T) {
	backend := cpuPlugin(t)
	for _, pack := range []bool{false, true} {
		goConfig := meshConfig("go", device.Mesh{})
		goConfig.Pack = pack
		tr := initialised(t, goConfig)
		start := weights(t, tr)
		want := teach(t, tr)
		for _, mesh := range append([]device.Mesh{{}}, meshes...) {
			t.Run(fmt.Sprintf("pack %v, %v", pack, mesh), func(t *testing.T) {
				cfg := meshConfig(backend, mesh)
				cfg.Pack = pack
				tr := initialised(t, cfg)
				begin := snapshot(t, tr)
				got := teach(t, tr)
				losses, logprobs, moved := near(got, want, start)
				t.Logf("losses within %.2g, log-probabilities %.2g, weights %.2g; %d graphs", losses, logprobs, moved, tr.NumGraphs())
				if !(losses <= meshLoss && logprobs <= meshLogprob && moved <= meshWeights) {
					t.Errorf("losses differ by %.3g, log-probabilities by %.3g, weights by %.3g of their movement; want at most %g, %g and %g",
						losses, logprobs, moved, meshLoss, meshLogprob, meshWeights)
				}
				if err := tr.RestoreState(begin); err != nil {
					t.Fatal(err)
				}
				again := teach(t, tr)
				sameState(t, "the same lesson again", again.state, got.state)
				if diff := cmp.Diff(again.losses, got.losses); diff != "" {
					t.Errorf("losses of the same lesson again (-got +want):\n%s", diff)
				}
				store := memblob.New()
				ref, err := tr.Publish(t.Context(), store, "policies/1", checkpoint.Policy{})
				if err != nil {
					t.Fatal(err)
				}
				published, err := checkpoint.LoadWeights(t.Context(), store, ref)
				if err != nil {
					t.Fatal(err)
				}
				if d := distance(published.Weights, again.state.Weights); d != 0 {
					t.Errorf("published weights differ by %v", d)
				}
			})
		}
	}
}

// TestOptionsOnAMesh: layers computed again and the vocabulary in pieces change nothing
// but rounding, bfloat16 stays near.
func TestOptionsOnAMesh(t *testing.T) {
	backend := cpuPlugin(t)
	tr := initialised(t, meshConfig("go", device.Mesh{}))
	start := weights(t, tr)
	want := teach(t, tr)
	for name, c := range map[string]struct {
		change                   func(*trainer.Config)
		losses, logprobs, weight float64
	}{
		"remat":  {func(c *trainer.Config) { c.Remat = true }, meshLoss, meshLogprob, meshWeights},
		"chunks": {func(c *trainer.Config) { c.Loss.MaxLogits = 1024 }, meshLoss, meshLogprob, meshWeights},
		"bf16":   {func(c *trainer.Config) { c.Compute = "bfloat16" }, bf16Loss, bf16Logprobs, bf16Weights},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := meshConfig(backend, device.Mesh{Data: 2, Model: 2, FSDP: true})
			c.change(&cfg)
			losses, logprobs, moved := near(teach(t, initialised(t, cfg)), want, start)
			t.Logf("losses within %.2g, log-probabilities %.2g, weights %.2g", losses, logprobs, moved)
			if !(losses <= c.losses && logprobs <= c.logprobs && moved <= c.weight) {
				t.Errorf("losses differ by %.3g, log-probabilities by %.3g, weights by %.3g of their movement; want at most %g, %g and %g",
					losses, logprobs, moved, c.losses, c.logprobs, c.weight)
			}
		})
	}
}

// TestACheckpointMovesBetweenMeshes: what one mesh saved, another goes on with, and ends
// near the one device that never moved.
func TestACheckpointMovesBetweenMeshes(t *testing.T) {
	backend := cpuPlugin(t)
	alone := initialised(t, meshConfig("go", device.Mesh{}))
	start := weights(t, alone)
	want := teach(t, alone)
	want2 := teach(t, alone)
	store := memblob.New()
	first := initialised(t, meshConfig(backend, device.Mesh{Data: 4, Model: 1, FSDP: true}))
	teach(t, first)
	ref, err := first.Save(t.Context(), store, "run", 3)
	if err != nil {
		t.Fatal(err)
	}
	second := newTrainer(t, meshConfig(backend, device.Mesh{Data: 1, Model: 4}))
	if step, err := second.Restore(t.Context(), store, ref); err != nil || step != 3 {
		t.Fatalf("step %d, error %v", step, err)
	}
	sameState(t, "the restored state", snapshot(t, second), snapshot(t, first))
	losses, logprobs, moved := near(teach(t, second), want2, start)
	t.Logf("losses within %.2g, log-probabilities %.2g, weights %.2g", losses, logprobs, moved)
	if !(losses <= 10*meshLoss && logprobs <= 10*meshLogprob && moved <= 10*meshWeights) {
		t.Errorf("losses differ by %.3g, log-probabilities by %.3g, weights by %.3g of their movement", losses, logprobs, moved)
	}
	if norm(want2.state.Weights, want.state.Weights) == 0 {
		t.Error("the second lesson changed nothing: the test has no teeth")
	}
}

// TestALossThatIsNotFiniteOnAMesh leaves the state as it was, in the second update of a
// step as well, and the mesh goes on.
func TestALossThatIsNotFiniteOnAMesh(t *testing.T) {
	tr := initialised(t, meshConfig(cpuPlugin(t), device.Mesh{Data: 2, Model: 2, FSDP: true}))
	teach(t, tr)
	before := snapshot(t, tr)
	bad := samples(12, 24, 5)
	bad[7].Advantage = float32(math.Inf(1))
	_, err := tr.Update(t.Context(), rl.Batch{Step: 3, Samples: bad}, trainer.UpdateOptions{Optimizer: adam(), Position: constant(3), NumMinibatches: 2})
	if !errors.Is(err, trainer.ErrDiverged) {
		t.Fatalf("error %v, want %v", err, trainer.ErrDiverged)
	}
	sameState(t, "after the update that was refused", snapshot(t, tr), before)
	update(t, tr, 4, samples(12, 24, 6), 2)
}

// TestMeshesThatCannotBe are refused in one line each.
func TestMeshesThatCannotBe(t *testing.T) {
	backend := cpuPlugin(t)
	for _, c := range []struct {
		mesh device.Mesh
		want string
	}{
		{device.Mesh{Data: 4, Model: 2, FSDP: true}, "8 devices, the backend xla:cpu drives 4"},
		{device.Mesh{Data: 1, Model: 3}, "num_key_value_heads: 4 is not a multiple of the model axis 3"},
		{device.Mesh{Data: 3, Model: 1, FSDP: true}, "hidden_size: 16 is not a multiple of the data axis 3"},
	} {
		tr, err := trainer.New(meshConfig(backend, c.mesh))
		if err == nil {
			tr.Close()
			t.Errorf("%v: no error", c.mesh)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.mesh, err, c.want)
		}
	}
}
