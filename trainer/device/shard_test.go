package device_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"
	ml "github.com/gomlx/gomlx/ml/model"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/trainer/device"
	"temper/trainer/model"
)

// small has dimensions that are all different, so that a swapped axis shows.
func small() model.Config {
	return model.Config{
		VocabSize: 48, HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 2, NumAttentionHeads: 8, NumKeyValueHeads: 4,
		HeadDim: 4, MaxPositionEmbeddings: 64, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.02,
	}
}

func TestShardings(t *testing.T) {
	got, err := device.Shardings(small(), device.Mesh{Data: 2, Model: 4, FSDP: true})
	if err != nil {
		t.Fatal(err)
	}
	d, m := device.AxisData, device.AxisModel
	want := []device.Sharding{
		{Name: "model.embed_tokens.weight", Axes: []string{m, d}, Shape: []int{48, 16}, Shard: []int{12, 8}},
		{Name: "model.layers.0.input_layernorm.weight", Axes: []string{""}, Shape: []int{16}, Shard: []int{16}},
		{Name: "model.layers.0.self_attn.q_proj.weight", Axes: []string{m, d}, Shape: []int{32, 16}, Shard: []int{8, 8}},
		{Name: "model.layers.0.self_attn.k_proj.weight", Axes: []string{m, d}, Shape: []int{16, 16}, Shard: []int{4, 8}},
		{Name: "model.layers.0.self_attn.v_proj.weight", Axes: []string{m, d}, Shape: []int{16, 16}, Shard: []int{4, 8}},
		{Name: "model.layers.0.self_attn.o_proj.weight", Axes: []string{d, m}, Shape: []int{16, 32}, Shard: []int{8, 8}},
		{Name: "model.layers.0.self_attn.q_norm.weight", Axes: []string{""}, Shape: []int{4}, Shard: []int{4}},
		{Name: "model.layers.0.self_attn.k_norm.weight", Axes: []string{""}, Shape: []int{4}, Shard: []int{4}},
		{Name: "model.layers.0.post_attention_layernorm.weight", Axes: []string{""}, Shape: []int{16}, Shard: []int{16}},
		{Name: "model.layers.0.mlp.gate_proj.weight", Axes: []string{m, d}, Shape: []int{24, 16}, Shard: []int{6, 8}},
		{Name: "model.layers.0.mlp.up_proj.weight", Axes: []string{m, d}, Shape: []int{24, 16}, Shard: []int{6, 8}},
		{Name: "model.layers.0.mlp.down_proj.weight", Axes: []string{d, m}, Shape: []int{16, 24}, Shard: []int{8, 6}},
	}
	if diff := cmp.Diff(got[:len(want)], want); diff != "" {
		t.Errorf("shardings (-got +want):\n%s", diff)
	}
	if last := got[len(got)-1]; last.Name != "lm_head.weight" || !slices.Equal(last.Shard, []int{12, 8}) {
		t.Errorf("head: %+v, want [12 8] of lm_head.weight", last)
	}
}

func TestShardingsRefuse(t *testing.T) {
	_, err := device.Shardings(small(), device.Mesh{Data: 3, Model: 5, FSDP: true})
	want := "num_key_value_heads: 4 is not a multiple of the model axis 5\n" +
		"num_attention_heads: 8 is not a multiple of the model axis 5\n" +
		"intermediate_size: 24 is not a multiple of the model axis 5\n" +
		"vocab_size: 48 is not a multiple of the model axis 5\n" +
		"hidden_size: 16 is not a multiple of the data axis 3"
	if err == nil || err.Error() != want {
		t.Errorf("error:\n%v\nwant:\n%s", err, want)
	}
	if _, err := device.Shardings(small(), device.Mesh{Data: 3, Model: 4}); err != nil {
		t.Errorf("without fsdp the data axis need not divide the hidden size: %v", err)
	}
	if _, err := device.Shardings(small(), device.Mesh{Data: 0, Model: 4}); err == nil || !strings.Contains(err.Error(), "data 0") {
		t.Errorf("mesh without devices: %v", err)
	}
	if _, err := device.BatchSharding(device.Mesh{Data: 4, Model: 1}, 6, 10); err == nil || err.Error() != "batch of 6 rows: not a multiple of the data axis 4" {
		t.Errorf("batch: %v", err)
	}
}

// TestShardsMakeTheTensor deals every weight over random meshes by GoMLX's own
// code: the shards have the announced shape and put the weight together again.
func TestShardsMakeTheTensor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := device.Mesh{
			Data:  rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "data"),
			Model: rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "model"),
			FSDP:  rapid.Bool().Draw(t, "fsdp"),
		}
		mesh, err := m.Device()
		if err != nil {
			t.Fatal(err)
		}
		all, err := device.Shardings(small(), m)
		if err != nil {
			t.Fatal(err)
		}
		s := rapid.SampledFrom(all).Draw(t, "tensor")
		spec, err := s.Spec(mesh)
		if err != nil {
			t.Fatal(err)
		}
		if got := spec.ShardShape(shapes.Make(dtypes.Float32, s.Shape...)).Dimensions; !slices.Equal(got, s.Shard) {
			t.Fatalf("%s on %v: GoMLX's shard %v, ours %v", s.Name, m, got, s.Shard)
		}
		data := make([]float32, shapes.Make(dtypes.Float32, s.Shape...).Size())
		for i := range data {
			data[i] = float32(i)
		}
		whole := tensors.FromFlatDataAndDimensions(data, s.Shape...)
		dealt, err := dtensor.ShardTensor(spec, whole)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(dealt.Shards()); n != m.NumDevices() {
			t.Fatalf("%d shards on %d devices", n, m.NumDevices())
		}
		merged, err := dealt.Merge()
		if err != nil {
			t.Fatal(err)
		}
		if !merged.Equal(whole) {
			t.Fatalf("%s on %v: the shards make another tensor", s.Name, m)
		}
	})
}

func TestPlace(t *testing.T) {
	store, cfg, m := ml.NewStore(), small(), device.Mesh{Data: 2, Model: 4, FSDP: true}
	if err := model.Init(nil, store, cfg, 1); err != nil {
		t.Fatal(err)
	}
	all, err := device.Shardings(cfg, m)
	if err != nil {
		t.Fatal(err)
	}
	mesh, err := m.Device()
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Place(store, all, mesh, model.VariablePath); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		v := store.GetVariable(model.VariablePath(s.Name))
		if got := v.ShardingSpec().ShardShape(v.Shape()).Dimensions; !slices.Equal(got, s.Shard) {
			t.Errorf("%s: the variable is dealt in %v, want %v", s.Name, got, s.Shard)
		}
	}
	absent := func(name string) string { return "/absent/" + name }
	if err := device.Place(store, all, mesh, absent); err == nil || !strings.Contains(err.Error(), "no variable /absent/model.embed_tokens.weight") {
		t.Errorf("store without the variables: %v", err)
	}
}
