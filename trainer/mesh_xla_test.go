//go:build xla

package trainer_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/xla/xlatest"
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

// meshConfig has dimensions that all of these meshes divide, and passes of one shape:
// compiling is what these tests take long for.
func meshConfig(backend string, mesh device.Mesh) trainer.Config {
	return trainer.Config{
		Backend: backend, Mesh: mesh,
		Model: model.Config{
			VocabSize: 40, HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 1, NumAttentionHeads: 8, NumKeyValueHeads: 4,
			HeadDim: 8, MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1,
		},
		Seed: 7, MicrobatchTokens: 96, LaneTokens: 96, Temperature: 0.8,
		Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28, KL: config.KL{Coefficient: 0.05}},
	}
}

// lesson is what a trainer does in these tests: it keeps its policy as the reference,
// learns from examples, and makes two steps of two updates of several passes each.
type lesson struct {
	losses   []float64
	logprobs [][]float32
	state    checkpoint.State
}

// equals draws n trajectories of one length.
func equals(n int, seed uint64) []rl.Sample {
	out := samples(n, 40, seed)
	for i := range out {
		s := &out[i]
		s.Tokens, s.LossMask, s.RolloutLogprobs = s.Tokens[:21], s.LossMask[:21], s.RolloutLogprobs[:21]
	}
	return out
}

// mildAdam does not divide by numbers that are almost zero.
func mildAdam() config.Optimizer {
	o := adam()
	o.Eps = 1e-4
	return o
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
	m, err := tr.SFTStep(t.Context(), equals(6, 3), mildAdam(), constant(1))
	must(err)
	out.losses = append(out.losses, m.Loss, m.GradNorm)
	for step := 1; step <= 2; step++ {
		m, err := tr.Update(t.Context(), rl.Batch{Step: step, Samples: equals(12, uint64(step))},
			trainer.UpdateOptions{Optimizer: mildAdam(), Position: constant(step), NumMinibatches: 2})
		must(err)
		out.losses = append(out.losses, m.Loss, m.GradNorm, m.Entropy, m.RefK3)
	}
	out.logprobs, err = tr.Logprobs(t.Context(), equals(6, 9))
	must(err)
	out.state = snapshot(t, tr)
	return out
}

// near compares two lessons and returns the largest differences: of a loss, of a
// log-probability, and of the weights as a part of their movement.
func near(a, b lesson, start []model.Tensor) (losses, logprobs, weights float64) {
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
func norm(a, b []model.Tensor) float64 {
	sum := 0.0
	for i := range a {
		for j := range a[i].Data {
			d := float64(a[i].Data[j]) - float64(b[i].Data[j])
			sum += d * d
		}
	}
	return math.Sqrt(sum)
}

// expect compares a lesson with that of the Go backend.
func expect(t *testing.T, got, want lesson, start []model.Tensor, losses, logprobs, weights float64) {
	t.Helper()
	l, p, w := near(got, want, start)
	t.Logf("losses within %.2g, log-probabilities %.2g, weights %.2g of their movement", l, p, w)
	if !(l <= losses && p <= logprobs && w <= weights) {
		t.Errorf("losses differ by %.3g, log-probabilities by %.3g, weights by %.3g of their movement; want at most %g, %g and %g", l, p, w, losses, logprobs, weights)
	}
}

// TestXLAMeshesLearnAsOneDevice, and each of them twice the same: a second lesson from the
// same start ends in the same bits. What one mesh has saved, the next one goes on with.
func TestXLAMeshesLearnAsOneDevice(t *testing.T) {
	backend := xlatest.Backend(t)
	alone := initialised(t, meshConfig("go", device.Mesh{}))
	start := weights(t, alone)
	want := teach(t, alone)
	further := teach(t, alone)
	if norm(further.state.Weights, want.state.Weights) == 0 {
		t.Fatal("the second lesson changes nothing: the test has no teeth")
	}
	store := memblob.New()
	var saved blob.Ref
	var savedState checkpoint.State
	for i, mesh := range append([]device.Mesh{{}}, xlatest.Meshes(t, backend)...) {
		t.Run(mesh.String(), func(t *testing.T) {
			tr := initialised(t, meshConfig(backend, mesh))
			begin := snapshot(t, tr)
			got := teach(t, tr)
			expect(t, got, want, start, meshLoss, meshLogprob, meshWeights)
			if err := tr.RestoreState(begin); err != nil {
				t.Fatal(err)
			}
			again := teach(t, tr)
			sameState(t, "the same lesson again", again.state, got.state)
			if diff := cmp.Diff(again.losses, got.losses); diff != "" {
				t.Errorf("losses of the same lesson again (-got +want):\n%s", diff)
			}
			checkPublished(t, tr, again.state)
			if i > 0 {
				if step, err := tr.Restore(t.Context(), store, saved); err != nil || step != i {
					t.Fatalf("step %d, error %v", step, err)
				}
				sameState(t, "the state that another mesh saved", snapshot(t, tr), savedState)
				expect(t, teach(t, tr), further, start, 10*meshLoss, 10*meshLogprob, 10*meshWeights)
				checkRefusedUpdate(t, tr)
			}
			if err := tr.RestoreState(got.state); err != nil {
				t.Fatal(err)
			}
			ref, err := tr.Save(t.Context(), store, fmt.Sprintf("run%d", i), i+1)
			if err != nil {
				t.Fatal(err)
			}
			saved, savedState = ref, got.state
			t.Logf("%d graphs", tr.NumGraphs())
		})
	}
}

// checkPublished compares a published policy with the state of its trainer.
func checkPublished(t *testing.T, tr *trainer.Trainer, s checkpoint.State) {
	t.Helper()
	store := memblob.New()
	ref, err := tr.Publish(t.Context(), store, "policies/1", checkpoint.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	published, err := checkpoint.LoadWeights(t.Context(), store, ref)
	if err != nil {
		t.Fatal(err)
	}
	find := model.ByName(published.Weights)
	for _, w := range s.Weights {
		if p, _ := find(w.Name); !slices.Equal(p.Data, w.Data) {
			t.Errorf("published %s differs", w.Name)
		}
	}
}

// checkRefusedUpdate: a loss that is not finite leaves the state as it was, in the second
// update of a step as well.
func checkRefusedUpdate(t *testing.T, tr *trainer.Trainer) {
	t.Helper()
	before := snapshot(t, tr)
	bad := equals(12, 5)
	bad[7].Advantage = math.MaxFloat32
	_, err := tr.Update(t.Context(), rl.Batch{Step: 9, Samples: bad}, trainer.UpdateOptions{Optimizer: mildAdam(), Position: constant(9), NumMinibatches: 2})
	if !errors.Is(err, trainer.ErrDiverged) {
		t.Fatalf("error %v, want %v", err, trainer.ErrDiverged)
	}
	sameState(t, "after the update that was refused", snapshot(t, tr), before)
}

// TestXLAOptionsOnAMesh: packed rows, layers computed again and the vocabulary in pieces
// change nothing but rounding, bfloat16 stays near.
func TestXLAOptionsOnAMesh(t *testing.T) {
	backend := xlatest.Backend(t)
	tr := initialised(t, meshConfig("go", device.Mesh{}))
	start := weights(t, tr)
	want := teach(t, tr)
	meshes := xlatest.Meshes(t, backend)
	for name, c := range map[string]struct {
		change                   func(*trainer.Config)
		losses, logprobs, weight float64
		without                  int // the mesh on which it is not tried: compiling takes its time
	}{
		"packed":           {func(c *trainer.Config) { c.Pack = true }, meshLoss, meshLogprob, meshWeights, 1},
		"remat and pieces": {func(c *trainer.Config) { c.Remat, c.Loss.MaxLogits = true, 1024 }, meshLoss, meshLogprob, meshWeights, 0},
		// The CPU plugin has no product of bfloat16 where a device has one key and value head.
		"bf16": {func(c *trainer.Config) { c.Compute = "bfloat16" }, bf16Loss, bf16Logprobs, bf16Weights, 1},
	} {
		for i, mesh := range meshes {
			if i == c.without {
				continue
			}
			t.Run(name+" on "+mesh.String(), func(t *testing.T) {
				cfg := meshConfig(backend, mesh)
				c.change(&cfg)
				expect(t, teach(t, initialised(t, cfg)), want, start, c.losses, c.logprobs, c.weight)
			})
		}
	}
}

// TestXLAMeshesThatCannotBe are refused in one line each.
func TestXLAMeshesThatCannotBe(t *testing.T) {
	backend := xlatest.Backend(t)
	n := xlatest.Devices(t, backend)
	for mesh, want := range map[device.Mesh]string{
		{Data: 2 * n, Model: 1, FSDP: true}: fmt.Sprintf("%d devices, the backend %s drives %d", 2*n, backend, n),
		{Data: 1, Model: 3}:                 "num_key_value_heads: 4 is not a multiple of the model axis 3",
		{Data: 3, Model: 1, FSDP: true}:     "hidden_size: 16 is not a multiple of the data axis 3",
	} {
		if mesh.NumDevices() == 3 && n < 3 {
			continue // refused for its devices
		}
		tr, err := trainer.New(meshConfig(backend, mesh))
		if err == nil {
			tr.Close()
			t.Errorf("%v: no error", mesh)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", mesh, err, want)
		}
	}
}

// TestXLAPoisonOnOneDevice: a weight that is not finite lies on one device of the mesh. The
// update is refused on all of them, with every bit of the state as it was.
func TestXLAPoisonOnOneDevice(t *testing.T) {
	backend := xlatest.Backend(t)
	for _, mesh := range xlatest.Meshes(t, backend) {
		t.Run(mesh.String(), func(t *testing.T) {
			tr := initialised(t, meshConfig(backend, mesh))
			if err := tr.KeepReference(); err != nil {
				t.Fatal(err)
			}
			s := snapshot(t, tr)
			for i := range s.Weights {
				if strings.HasSuffix(s.Weights[i].Name, "layers.0.mlp.gate_proj.weight") {
					data := s.Weights[i].Data
					data[len(data)-1] = float32(math.NaN()) // the last column and row: the last device
				}
			}
			if err := tr.RestoreState(s); err != nil {
				t.Fatal(err)
			}
			for _, minibatches := range []int{1, 2} {
				_, err := tr.Update(t.Context(), rl.Batch{Step: 1, Samples: equals(12, 1)},
					trainer.UpdateOptions{Optimizer: mildAdam(), Position: constant(1), NumMinibatches: minibatches})
				if !errors.Is(err, trainer.ErrDiverged) {
					t.Fatalf("%d updates: error %v, want %v", minibatches, err, trainer.ErrDiverged)
				}
				after := snapshot(t, tr)
				for i, w := range after.Weights {
					for j, x := range w.Data {
						if math.Float32bits(x) != math.Float32bits(s.Weights[i].Data[j]) {
							t.Fatalf("%d updates: %s changes at %d: %v, was %v", minibatches, w.Name, j, x, s.Weights[i].Data[j])
						}
					}
				}
			}
		})
	}
}
