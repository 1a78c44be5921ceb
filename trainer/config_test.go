package trainer_test

import (
	"testing"

	"temper/trainer"
	"temper/trainer/device"
)

// TestMaxGraphs pins what the comment of MaxGraphs says.
func TestMaxGraphs(t *testing.T) {
	cfg := tinyConfig()
	cfg.Model.MaxPositionEmbeddings, cfg.MicrobatchTokens = 12288, 12288
	for _, want := range []struct {
		backend       string
		plain, packed int
	}{{"xla:cuda", 3163, 475}, {"go", 819, 131}} {
		cfg.Backend, cfg.Pack = want.backend, false
		plain := cfg.MaxGraphs()
		cfg.Pack = true
		if packed := cfg.MaxGraphs(); plain != want.plain || packed != want.packed {
			t.Errorf("%s: at most %d graphs, packed %d; the comment says %d and %d", want.backend, plain, packed, want.plain, want.packed)
		}
	}
}

func TestMeshNeedsABackendOfSeveralDevices(t *testing.T) {
	cfg := tinyConfig()
	cfg.Mesh = device.Mesh{Data: 4, Model: 2, FSDP: true}
	if _, err := trainer.New(cfg); err == nil || err.Error() != "trainer: mesh data 4 x model 2, fsdp: the backend go drives one device; want an XLA backend, such as xla:cuda" {
		t.Errorf("on the Go backend: %v", err)
	}
}
