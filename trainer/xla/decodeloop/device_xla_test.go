//go:build xla

package decodeloop_test

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"temper/internal/rl"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
	"temper/trainer/xla/decodeloop"
	"temper/trainer/xla/xlatest"
)

// counting is a backend that counts every transfer, whoever asks for it. It has a name of its own,
// so that nobody looks for XLA's parts in it.
type counting struct {
	compute.Backend
	up, down, upBytes, downBytes int64
}

type countingBuilder struct {
	compute.Builder
	of *counting
}

type countingProgram struct {
	compute.Executable
	of *counting
}

type countingBuffer struct {
	compute.Buffer
	of *counting
}

func (c *counting) Name() string { return "counting" }

func (c *counting) BufferFromFlatData(n compute.DeviceNum, flat any, s shapes.Shape) (compute.Buffer, error) {
	c.up, c.upBytes = c.up+1, c.upBytes+s.ByteSize()
	b, err := c.Backend.BufferFromFlatData(n, flat, s)
	return countingBuffer{b, c}, err
}

func (c *counting) Builder(name string) compute.Builder {
	return countingBuilder{c.Backend.Builder(name), c}
}

func (b countingBuilder) Compile() (compute.Executable, error) {
	e, err := b.Builder.Compile()
	return countingProgram{e, b.of}, err
}

func (p countingProgram) Execute(in []compute.Buffer, donate []bool, n compute.DeviceNum) ([]compute.Buffer, error) {
	inner := make([]compute.Buffer, len(in))
	for i := range in {
		inner[i] = in[i].(countingBuffer).Buffer
	}
	out, err := p.Executable.Execute(inner, donate, n)
	for i := range out {
		out[i] = countingBuffer{out[i], p.of}
	}
	return out, err
}

func (b countingBuffer) Backend() compute.Backend { return b.of }

func (b countingBuffer) ToFlatData(flat any) error {
	s, err := b.Shape()
	if err != nil {
		return err
	}
	b.of.down, b.of.downBytes = b.of.down+1, b.of.downBytes+s.ByteSize()
	return b.Buffer.ToFlatData(flat)
}

func open(t *testing.T) *counting {
	t.Helper()
	b, err := device.Open(xlatest.Backend(t))
	if err != nil {
		t.Fatal(err)
	}
	return &counting{Backend: b}
}

func small() model.Config {
	return model.Config{
		VocabSize: 90, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 8,
		MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.3,
	}
}

// TestXLATransfersOfDecoding: one array goes to the device and one comes back for each call that decodes,
// and the device's own count is that of the backend. Nothing of the cache crosses.
func TestXLATransfersOfDecoding(t *testing.T) {
	b := open(t)
	const slots, ahead = 4, 8
	d, err := decodeloop.New(b, decodeloop.Config{Model: small(), Slots: slots, Blocks: 20, MaxContext: 80, Ahead: ahead})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	weights, err := model.InitialTensors(small(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Load(tensor.StoredByName(weights)); err != nil {
		t.Fatal(err)
	}
	before := *b

	var chunks []decodeloop.Chunk
	var batch []decodeloop.Slot
	for i := range int32(slots) {
		prompt := []int32{i, 5, 9, 40 + i, 7, 8, 80}
		blocks := []int32{5 * i, 5*i + 1, 5*i + 2, 5*i + 3, 5*i + 4}
		chunks = append(chunks, decodeloop.Chunk{Tokens: prompt[:6], Blocks: blocks})
		batch = append(batch, decodeloop.Slot{Token: prompt[6], Position: 6, Blocks: blocks, Seed: uint64(i), Scale: 1, Limit: ahead})
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
	if c.Up != b.up-before.up || c.Down != b.down-before.down || c.UpBytes != b.upBytes-before.upBytes || c.DownBytes != b.downBytes-before.downBytes {
		t.Errorf("the device counts %+v, the backend %d and %d transfers of %d and %d bytes", c,
			b.up-before.up, b.down-before.down, b.upBytes-before.upBytes, b.downBytes-before.downBytes)
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
	d, err := decodeloop.New(b, decodeloop.Config{Model: cfg, Slots: 1, Blocks: 6, MaxContext: 96, Ahead: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	weights, err := model.InitialTensors(cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Load(tensor.StoredByName(weights)); err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{0, 1, 1 << 31, 1 << 63, 0xfedcba9876543210} {
		made, err := d.Decode([]decodeloop.Slot{{Token: 3, Blocks: []int32{0, 1, 2, 3, 4, 5}, Seed: seed, Scale: 1, Limit: 16}})
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
