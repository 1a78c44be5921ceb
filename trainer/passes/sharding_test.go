package passes

import (
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"

	"temper/trainer/device"
	"temper/trainer/model/graphs"
	"temper/trainer/optimizer"
	"temper/trainer/passes/inputs"
)

// shardedOver is what a mesh makes of a state with moments, without a device.
func shardedOver(t *testing.T, m device.Mesh) (*optimizer.State, *sharding) {
	t.Helper()
	cfg := tinyConfig()
	cfg.Network.VocabSize, cfg.Network.NumAttentionHeads, cfg.Network.NumKeyValueHeads = 32, 4, 2
	p := open(t, cfg, adam())
	s, err := shardingOver(cfg.Network, m)
	if err != nil {
		t.Fatal(err)
	}
	return p.state, s
}

// TestInputsOfEveryPassAreDealt: rows over the data axis, gradients like their
// weights, numbers to everyone; GoMLX cuts tensors of the real shapes that way.
func TestInputsOfEveryPassAreDealt(t *testing.T) {
	m := device.Mesh{Data: 2, Model: 2, FSDP: true}
	st, s := shardedOver(t, m)
	trained := st.Tuning().Trained
	check := func(p Program, i int, dims, want []int) {
		t.Helper()
		got, err := s.ofInput(p, i, dims, trained)
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
	update := Program{Policy, Update}
	check(update, inputs.Tokens, []int{6, 16}, []int{3, 16})
	check(update, inputs.Tokens, []int{3, 6, 16}, []int{3, 3, 16})
	check(update, inputs.Advantages, []int{6, 1}, []int{3, 1})
	check(update, inputs.Denominator, nil, nil)
	check(update, inputs.NumFixed, []int{optimizer.NumNumbers}, []int{optimizer.NumNumbers})
	check(Program{Kind: Apply}, 0, []int{optimizer.NumNumbers}, []int{optimizer.NumNumbers})
	for i, spec := range trained {
		at := slices.IndexFunc(s.weights, func(w device.Sharding) bool { return w.Name == spec.Name })
		check(Program{Kind: Add}, i, spec.Shape, s.weights[at].Shard)
		check(Program{Kind: Add}, len(trained)+i, spec.Shape, s.weights[at].Shard)
		check(Program{Kind: Apply}, 1+i, spec.Shape, s.weights[at].Shard)
	}
}

// TestWeightsAndMomentsArePlaced, each once: a variable that has its place keeps it.
func TestWeightsAndMomentsArePlaced(t *testing.T) {
	st, s := shardedOver(t, device.Mesh{Data: 2, Model: 2, FSDP: true})
	for range 2 {
		if err := s.placeVariables(st.Store()); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range s.weights {
		for _, path := range []string{graphs.VariablePath(w.Name), optimizer.FirstMomentPath(w.Name), optimizer.SecondMomentPath(w.Name)} {
			v := st.Store().GetVariable(path)
			if got := v.ShardingSpec().ShardShape(v.Shape()).Dimensions; !slices.Equal(got, w.Shard) {
				t.Errorf("%s is dealt in %v, want %v", path, got, w.Shard)
			}
		}
	}
}

func TestMeshNeedsItsDevices(t *testing.T) {
	cfg := tinyConfig()
	cfg.Mesh = device.Mesh{Data: 4, Model: 2, FSDP: true}
	p := open(t, tinyConfig(), adam())
	cfg.Backend = "xla:cuda"
	if _, err := newSharding(cfg, p.backend); err == nil || !strings.Contains(err.Error(), "8 devices, the backend xla:cuda drives 1") {
		t.Errorf("too few devices: %v", err)
	}
}
