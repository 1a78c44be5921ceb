//go:build xla

package passes

import (
	"math"
	"testing"

	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/model"
	"temper/trainer/xla/flash"
	"temper/trainer/xla/xlatest"
)

// outlineModel is large enough that matrices decide its memory.
func outlineModel() model.Config {
	return model.Config{
		VocabSize: 1024, HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 4, NumAttentionHeads: 4, NumKeyValueHeads: 4, HeadDim: 32,
		MaxPositionEmbeddings: 4096, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02,
	}
}

// plannedDevice is what a plan has to know about the device of a backend.
func plannedDevice(backend string) estimate.Device {
	d := estimate.Device{Fused: true}
	if xlatest.OnGPU(backend) {
		d.Block = flash.MaxBlockGPU
	}
	return d
}

// TestXLAUpdatesInPlace: new weights and moments take the memory of the old ones, all of
// it, on one device and on meshes, and the plan is near what the compiler says; see
// docs/decisions/0013-xla-devices-and-meshes.md.
func TestXLAUpdatesInPlace(t *testing.T) {
	backend := xlatest.Backend(t)
	device.OrderByMemory(backend)
	devices := xlatest.Devices(t, backend)
	for _, mesh := range []device.Mesh{{Data: 1, Model: 1}, {Data: 1, Model: 4}, {Data: 2, Model: 2, FSDP: true}, {Data: 4, Model: 1, FSDP: true}} {
		if mesh.NumDevices() > devices {
			continue
		}
		m, err := CompileUpdate(Outline{Backend: backend, Model: outlineModel(), Mesh: mesh, Rows: 8, Length: 256})
		if err != nil {
			t.Fatal(err)
		}
		shards, err := device.Shardings(outlineModel(), mesh)
		if err != nil {
			t.Fatal(err)
		}
		state := int64(0)
		for _, s := range shards {
			n := int64(12) // a weight and its moments
			for _, d := range s.Shard {
				n *= int64(d)
			}
			state += n
		}
		if m.Aliased != state || m.Results-m.Aliased > 4<<10 { // the measures, and the table of results
			t.Errorf("%v: %d bytes in place of %d results, want the %d of weights and moments", mesh, m.Aliased, m.Results, state)
		}
		r, err := estimate.Estimate(estimate.Config{Model: outlineModel(), Device: plannedDevice(backend), Mesh: mesh, Rows: 8, Length: 256})
		if err != nil {
			t.Fatal(err)
		}
		off := float64(r.Program())/float64(m.Peak()) - 1
		t.Logf("%v: %+v, planned %d, %+.1f %%", mesh, m, r.Program(), 100*off)
		if math.Abs(off) > 0.1 {
			t.Errorf("%v: the plan says %d bytes, the compiler %d", mesh, r.Program(), m.Peak())
		}
	}
}
