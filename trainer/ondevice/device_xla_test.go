//go:build xla

package ondevice_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"temper/internal/rl"
	"temper/trainer/device"
	"temper/trainer/ondevice"
	"temper/trainer/qwen3"
	"temper/trainer/tensor"
)

var oneM = qwen3.Config{
	VocabSize: 1024, HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 4, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 32,
	MaxPositionEmbeddings: 512, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
}

func TestXLASpeed(t *testing.T) {
	b, err := device.Open("xla:cpu")
	if err != nil {
		t.Fatal(err)
	}
	n := 16
	if v := os.Getenv("N"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	ahead := 16
	if v := os.Getenv("A"); v != "" {
		ahead, _ = strconv.Atoi(v)
	}
	d, err := ondevice.New(b, ondevice.Config{Model: oneM, Slots: n, Blocks: n * 11, MaxContext: 160, Ahead: ahead})
	if err != nil {
		t.Fatal(err)
	}
	weights, _ := qwen3.InitialTensors(oneM, 1)
	if err := d.Load(tensor.StoredByName(weights)); err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		var chunks []ondevice.Chunk
		slots := make([]ondevice.Slot, n)
		for i := range n {
			draw := rl.Rand(rl.Seed(1, "prompt", uint64(i)))
			prompt := make([]int32, 24)
			for p := range prompt {
				prompt[p] = int32(draw.IntN(1024))
			}
			var blocks []int32
			for j := range 11 {
				blocks = append(blocks, int32(i*11+j))
			}
			chunks = append(chunks, ondevice.Chunk{Tokens: prompt[:23], Blocks: blocks[:2]})
			slots[i] = ondevice.Slot{Token: prompt[23], Position: 23, Blocks: blocks, Seed: uint64(i), Scale: 1, Limit: ahead}
		}
		before := d.Counts()
		begin := time.Now()
		if err := d.Prefill(chunks); err != nil {
			t.Fatal(err)
		}
		pre := time.Since(begin)
		begin = time.Now()
		made := 0
		for made < 128 {
			out, err := d.Decode(slots)
			if err != nil {
				t.Fatal(err)
			}
			for i := range slots {
				slots[i].Token, slots[i].Position = out[i].Tokens[len(out[i].Tokens)-1], slots[i].Position+len(out[i].Tokens)
			}
			made += len(out[0].Tokens)
			if round == 0 && made <= 32 {
				t.Log(out[0].Tokens, out[0].Logprobs[:3])
			}
		}
		took := time.Since(begin)
		after := d.Counts()
		t.Logf("prefill %v decode %v = %.0f tokens/s, %.3f ms a step; device share %.3f; compiled %d in %v", pre, took, float64(n*made)/took.Seconds(), took.Seconds()*1e3/float64(made),
			(after.Device-before.Device).Seconds()/(took+pre).Seconds(), after.Programs, after.Compiling)
	}
}
