//go:build xla

package decodeloop

import (
	"testing"

	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/xla/xlatest"
)

// TestXLACacheInPlace: every program that changes the cache updates it where it is.
func TestXLACacheInPlace(t *testing.T) {
	b, err := device.Open(xlatest.Backend(t))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(b, Config{Model: model.Config{
		VocabSize: 90, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 1, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 8,
		MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.3,
	}, Slots: 4, Blocks: 100, MaxContext: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, s := range []size{{prefill, 4, 16, 80}, {decode, 4, 8, 80}, {decodeLogits, 4, 1, 80}, {kind: copying, rows: copyRows}} {
		g, err := d.compile(s)
		if err != nil {
			t.Fatal(err)
		}
		m, ok, err := device.MemoryOf(g)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		want, answers := d.cache.Shape().ByteSize(), int64(4*s.rows*(2*s.chunk+90)+64)
		if m.Aliased != want || m.Results-m.Aliased > answers {
			t.Errorf("%+v: %+v, want the %d bytes of the cache in place and at most %d beside", s, m, want, answers)
		}
	}
}
