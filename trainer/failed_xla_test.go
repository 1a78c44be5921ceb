//go:build xla

package trainer

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/xla/xlatest"
)

func fragile(backend string, mesh device.Mesh, vocabulary int) Config {
	return Config{Backend: backend, Mesh: mesh, MicrobatchTokens: 1 << 30, Temperature: 1, Model: model.Config{
		VocabSize: vocabulary, HiddenSize: 8, IntermediateSize: 8, NumHiddenLayers: 1, NumAttentionHeads: 4, NumKeyValueHeads: 4, HeadDim: 8,
		MaxPositionEmbeddings: 1024, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1}}
}

// TestXLADeviceFailsInStep takes the piece of a weight from one device of a mesh, as a
// device does that is lost: the step fails as one of the device, not as a mistake of the
// user's, and the state of before goes on in another trainer, on another mesh.
func TestXLADeviceFailsInStep(t *testing.T) {
	backend := xlatest.Backend(t)
	meshes := xlatest.Meshes(t, backend)
	if len(meshes) == 0 {
		t.Skip("one device")
	}
	tr, err := New(fragile(backend, meshes[0], 16))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Init(1); err != nil {
		t.Fatal(err)
	}
	samples := []rl.Sample{{Tokens: []int32{1, 2, 3}, LossMask: []bool{false, true, true}}}
	step := func(tr *Trainer) error {
		_, err := tr.SFTStep(t.Context(), samples, config.Optimizer{LR: 1, Schedule: "constant"}, Position{Step: 1})
		return err
	}
	if err := step(tr); err != nil {
		t.Fatal(err)
	}
	state, err := tr.Snapshot(checkpoint.State{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := tr.state.Store().GetVariable(model.VariablePath("model.embed_tokens.weight")).DistributedValue()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Shards()[len(v.Shards())-1].FinalizeAll(); err != nil {
		t.Fatal(err)
	}
	err = step(tr)
	var failure interface{ DeviceFailed() bool }
	if !errors.As(err, &failure) || !failure.DeviceFailed() || fault.Of(err) != "" {
		t.Fatalf("error %v of kind %q, want a failure of the device, worth another attempt", err, fault.Of(err))
	}
	other, err := New(fragile(backend, meshes[len(meshes)-1], 16))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.RestoreState(state); err != nil {
		t.Fatal(err)
	}
	if err := step(other); err != nil {
		t.Errorf("restored: %v", err)
	}
}

// TestXLAOutOfMemory makes a step of some 30 TB: it is refused as too large, with what to
// change, and the state goes on with a smaller one.
func TestXLAOutOfMemory(t *testing.T) {
	const vocabulary, rows, tokens = 1 << 23, 1 << 10, 1 << 10
	tr, err := New(fragile(xlatest.Backend(t), device.Mesh{}, vocabulary))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Init(1); err != nil {
		t.Fatal(err)
	}
	long := rl.Sample{Tokens: make([]int32, tokens), LossMask: make([]bool, tokens)}
	for i := range long.LossMask {
		long.LossMask[i] = i > 0
	}
	samples := make([]rl.Sample, rows)
	for i := range samples {
		samples[i] = long
	}
	score := func(n int) error { _, err := tr.Logprobs(t.Context(), samples[:n]); return err }
	err = score(rows)
	if !errors.Is(err, ErrTooLarge) || fault.Of(err) != fault.TooLarge || !strings.Contains(err.Error(), "temper plan") {
		t.Fatalf("error %v of kind %q, want %v with advice", err, fault.Of(err), ErrTooLarge)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error of several lines: %v", err)
	}
	adam := config.Optimizer{LR: 1, Schedule: "constant"}
	if _, err := tr.SFTStep(t.Context(), samples, adam, Position{Step: 1}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an update: error %v, want %v", err, ErrTooLarge)
	}
	short := []rl.Sample{{Tokens: []int32{1, 2, 3}, LossMask: []bool{false, true, true}}}
	if _, err := tr.SFTStep(t.Context(), short, adam, Position{Step: 1}); err != nil {
		t.Errorf("after it: %v", err)
	}
}
