package trainer

import (
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"

	"temper/trainer/device"
	"temper/trainer/qwen3"
)

// spreadOver is what a trainer has on a mesh, without a device.
func spreadOver(t *testing.T, m device.Mesh) (*Trainer, *spread) {
	t.Helper()
	cfg := trapConfig()
	cfg.Model.VocabSize, cfg.Model.NumAttentionHeads, cfg.Model.NumKeyValueHeads = 32, 4, 2
	tr := trapTrainer(t, cfg)
	trapStep(t, tr, story(2, 12)) // the moments come with the first update
	weights, err := device.Shardings(cfg.Model, m)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := m.Device()
	if err != nil {
		t.Fatal(err)
	}
	return tr, &spread{mesh: m, devices: devices, weights: weights}
}

// TestInputsOfEveryPassAreDealt: rows over the data axis, gradients like their
// weights, numbers to everyone; GoMLX cuts tensors of the real shapes that way.
func TestInputsOfEveryPassAreDealt(t *testing.T) {
	m := device.Mesh{Data: 2, Model: 2, FSDP: true}
	tr, s := spreadOver(t, m)
	trained := tr.tuning.trained
	check := func(p program, i int, dims, want []int) {
		t.Helper()
		got, err := s.sharding(p, i, dims, trained)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Shard, want) {
			t.Errorf("%s, input %d of %v: shards of %v, want %v", p, i, dims, got.Shard, want)
		}
		spec, err := got.Spec(s.devices)
		if err != nil {
			t.Fatal(err)
		}
		dealt, err := dtensor.ShardTensor(spec, tensors.FromShape(shapes.Make(dtypes.Float32, dims...)))
		if err != nil {
			t.Fatal(err)
		}
		if shape := dealt.ShardShape().Dimensions; len(dealt.Shards()) != 4 || !slices.Equal(shape, want) {
			t.Errorf("%s, input %d: GoMLX makes %d shards of %v, want 4 of %v", p, i, len(dealt.Shards()), shape, want)
		}
	}
	update := program{objectiveGRPO, passUpdate}
	check(update, inTokens, []int{6, 16}, []int{3, 16})
	check(update, inTokens, []int{3, 6, 16}, []int{3, 3, 16})
	check(update, inAdvantages, []int{6, 1}, []int{3, 1})
	check(update, inDenominator, nil, nil)
	check(update, inExtras, []int{int(numHyper)}, []int{int(numHyper)})
	check(program{pass: passApply}, 0, []int{int(numHyper)}, []int{int(numHyper)})
	for i, spec := range trained {
		at := slices.IndexFunc(s.weights, func(w device.Sharding) bool { return w.Name == spec.Name })
		check(program{pass: passAdd}, i, spec.Shape, s.weights[at].Shard)
		check(program{pass: passAdd}, len(trained)+i, spec.Shape, s.weights[at].Shard)
		check(program{pass: passApply}, 1+i, spec.Shape, s.weights[at].Shard)
	}
}

// TestWeightsAndMomentsArePlaced, each once: a variable that has its place keeps it.
func TestWeightsAndMomentsArePlaced(t *testing.T) {
	tr, s := spreadOver(t, device.Mesh{Data: 2, Model: 2, FSDP: true})
	for range 2 {
		if err := s.place(tr.store); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range s.weights {
		for _, path := range []string{qwen3.VariablePath(w.Name), firstMomentPath(w.Name), secondMomentPath(w.Name)} {
			v := tr.store.GetVariable(path)
			if got := v.ShardingSpec().ShardShape(v.Shape()).Dimensions; !slices.Equal(got, w.Shard) {
				t.Errorf("%s is dealt in %v, want %v", path, got, w.Shard)
			}
		}
	}
}

func TestRowsAreMultiplesOfTheDataAxis(t *testing.T) {
	s := &spread{mesh: device.Mesh{Data: 4, Model: 1}}
	for _, mb := range s.rows(microbatches(rowsOf(9, 20, 31, 64, 65, 80, 90), 256)) {
		if mb.rows%4 != 0 {
			t.Errorf("a pass of %d rows", mb.rows)
		}
	}
}

func TestMeshesThatCannotBe(t *testing.T) {
	cfg := trapConfig()
	cfg.Mesh = device.Mesh{Data: 4, Model: 2, FSDP: true}
	if _, err := New(cfg); err == nil || err.Error() != "trainer: mesh data 4 x model 2, fsdp: the backend go drives one device; want an XLA backend, such as xla:cuda" {
		t.Errorf("on the Go backend: %v", err)
	}
	tr := trapTrainer(t, trapConfig())
	cfg.Backend = "xla:cuda"
	if _, err := newSpread(cfg, tr.backend); err == nil || !strings.Contains(err.Error(), "8 devices, the backend xla:cuda drives 1") {
		t.Errorf("too few devices: %v", err)
	}
}
