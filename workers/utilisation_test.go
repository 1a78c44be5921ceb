package workers

import (
	"os"
	"path/filepath"
	"testing"

	"temper/internal/config"
	"temper/internal/run"
	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/model"
)

// TestWorkIsKnownOfNamedDevicesAlone: the peak is that of the data sheet for the name that the
// driver says, times the devices of the mesh.
func TestWorkIsKnownOfNamedDevicesAlone(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for name, peak := range map[string]float64{"NVIDIA H100 80GB HBM3": 2 * 989.5e12, "GeForce GTX 1080": 0, "": 0} {
		script := "#!/bin/sh\n[ -n '" + name + "' ] || exit 1\necho '" + name + "'\n"
		if err := os.WriteFile(filepath.Join(bin, "nvidia-smi"), []byte(script), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		work := workOf(t.Context(), "xla:cuda", device.Mesh{Data: 2, Model: 1})
		if (work != nil) != (peak > 0) {
			t.Errorf("%q: work is known: %v", name, work != nil)
		}
		if work == nil {
			continue
		}
		r := &run.Loaded{Model: model.Config{HiddenSize: 64, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 16, IntermediateSize: 192, VocabSize: 300}}
		got := work(r, 1000, 10)
		if want := estimate.Train(r.Model, 1000, 100, false).Model; got.Peak != peak || got.FLOPs != want || want <= 0 {
			t.Errorf("%q: %+v, want %g of %g", name, got, want, peak)
		}
		r.Config.Trainer.LoRA = config.LoRA{Rank: 8}
		if got := work(r, 1000, 10); got != nil {
			t.Errorf("adapters: %+v", got)
		}
	}
	if workOf(t.Context(), "go", device.Mesh{}) != nil {
		t.Error("the peak of the Go backend is stated nowhere")
	}
}
