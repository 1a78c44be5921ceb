//go:build xla

package ondevice_test

import (
	"os"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"temper/internal/rl"
	"temper/trainer/device"
	"temper/trainer/ondevice"
	"temper/trainer/plugin"
	"temper/trainer/qwen3"
	"temper/trainer/tensor"
)

// backend counts every transfer to the device, whoever asks for it.
type backend struct {
	compute.Backend
	up, bytes int64
}

func (b *backend) BufferFromFlatData(n compute.DeviceNum, flat any, s shapes.Shape) (compute.Buffer, error) {
	b.up, b.bytes = b.up+1, b.bytes+s.ByteSize()
	return b.Backend.BufferFromFlatData(n, flat, s)
}

func open(t *testing.T) *backend {
	t.Helper()
	if _, err := plugin.Find("cpu"); err != nil {
		if os.Getenv("TEMPER_REQUIRE_XLA") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v (2026-11-26: temper backend install cpu)", err)
	}
	b, err := device.Open("xla:cpu")
	if err != nil {
		t.Fatal(err)
	}
	return &backend{Backend: b}
}

func small() qwen3.Config {
	return qwen3.Config{
		VocabSize: 90, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 8,
		MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.3,
	}
}

// TestXLATransfersOfDecoding: one array goes to the device and one comes back for each call that decodes,
// and the device's own count is that of the backend. Nothing of the cache crosses: a result is
// on the host only when somebody reads it, and that is what the device counts.
func TestXLATransfersOfDecoding(t *testing.T) {
	b := open(t)
	const slots, ahead = 4, 8
	d, err := ondevice.New(b, ondevice.Config{Model: small(), Slots: slots, Blocks: 20, MaxContext: 80, Ahead: ahead})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	weights, err := qwen3.InitialTensors(small(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Load(tensor.StoredByName(weights)); err != nil {
		t.Fatal(err)
	}
	up, bytes := b.up, b.bytes

	var chunks []ondevice.Chunk
	var batch []ondevice.Slot
	for i := range int32(slots) {
		prompt := []int32{i, 5, 9, 40 + i, 7, 8, 80}
		blocks := []int32{5 * i, 5*i + 1, 5*i + 2, 5*i + 3, 5*i + 4}
		chunks = append(chunks, ondevice.Chunk{Tokens: prompt[:6], Blocks: blocks})
		batch = append(batch, ondevice.Slot{Token: prompt[6], Position: 6, Blocks: blocks, Seed: uint64(i), Scale: 1, Limit: ahead})
	}
	if err := d.Prefill(chunks); err != nil {
		t.Fatal(err)
	}
	const calls = 8
	tokens := 0
	for range calls {
		made, err := d.Decode(batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			tokens += len(made[i].Tokens)
			batch[i].Token, batch[i].Position = made[i].Tokens[ahead-1], batch[i].Position+ahead
		}
	}
	c := d.Counts()
	if c.Up != b.up-up || c.UpBytes != b.bytes-bytes {
		t.Errorf("the device counts %+v, the backend %d transfers of %d bytes to it", c, b.up-up, b.bytes-bytes)
	}
	if want := int64(2 * 4 * calls * slots * ahead); c.DownBytes != want {
		t.Errorf("%d bytes came back, want the %d of tokens and log-probabilities", c.DownBytes, want)
	}
	if tokens != calls*slots*ahead || c.Up != calls+1 || c.Down != calls {
		t.Errorf("%d tokens by %d transfers to the device and %d back, want %d by %d and %d", tokens, c.Up, c.Down, calls*slots*ahead, calls+1, calls)
	}
	t.Logf("a token: %.4f transfers, %.0f bytes", float64(c.Up+c.Down)/float64(tokens), float64(c.UpBytes+c.DownBytes)/float64(tokens))
	if c.Programs > d.Buckets().Programs() {
		t.Errorf("%d programs, at most %d are promised", c.Programs, d.Buckets().Programs())
	}
}

// TestXLADrawsOfTheGraph: a distribution that is nearly uniform shows each bit of the draws. The device
// selects the token that rl.Uniform selects.
func TestXLADrawsOfTheGraph(t *testing.T) {
	b := open(t)
	cfg := small()
	cfg.InitializerRange = 1e-7
	d, err := ondevice.New(b, ondevice.Config{Model: cfg, Slots: 1, Blocks: 6, MaxContext: 96, Ahead: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	weights, err := qwen3.InitialTensors(cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Load(tensor.StoredByName(weights)); err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{0, 1, 1 << 31, 1 << 63, 0xfedcba9876543210} {
		made, err := d.Decode([]ondevice.Slot{{Token: 3, Blocks: []int32{0, 1, 2, 3, 4, 5}, Seed: seed, Scale: 1, Limit: 16}})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]int32, 16)
		for i := range want {
			want[i] = int32(rl.Uniform(seed, i+1) * float32(cfg.VocabSize)) //nolint:gosec // below the vocabulary
		}
		if !slices.Equal(made[0].Tokens, want) {
			t.Errorf("seed %x: %v, want %v", seed, made[0].Tokens, want)
		}
	}
}
