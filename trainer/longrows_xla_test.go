//go:build xla

package trainer_test

import (
	"testing"

	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/xla/xlatest"
)

// teachLong is a lesson on rows of more than two blocks of attention, beside shorter ones.
func teachLong(t testing.TB, tr *trainer.Trainer) lesson {
	t.Helper()
	lengths := []int{1150, 1100, 400, 380, 360, 1060}
	long := samples(len(lengths), 2400, 5)
	for i, n := range lengths {
		s := &long[i]
		s.Tokens, s.LossMask, s.RolloutLogprobs = s.Tokens[:n], s.LossMask[:n], s.RolloutLogprobs[:n]
	}
	var out lesson
	m, err := tr.SFTStep(t.Context(), long, mildAdam(), constant(1))
	if err != nil {
		t.Fatal(err)
	}
	out.losses = append(out.losses, m.Loss, m.GradNorm)
	m, err = tr.Update(t.Context(), rl.Batch{Step: 1, Samples: long}, trainer.UpdateOptions{Optimizer: mildAdam(), Position: constant(1), NumMinibatches: 1})
	if err != nil {
		t.Fatal(err)
	}
	out.losses = append(out.losses, m.Loss, m.GradNorm, m.Entropy)
	if out.logprobs, err = tr.Logprobs(t.Context(), long[1:3]); err != nil {
		t.Fatal(err)
	}
	out.state = snapshot(t, tr)
	return out
}

// TestXLALongRows: attention in loops over blocks trains as the backend go does, on one
// device and on a mesh, with packed rows, and with layers computed again.
func TestXLALongRows(t *testing.T) {
	config := func(backend string, mesh device.Mesh) trainer.Config {
		cfg := meshConfig(backend, mesh)
		cfg.Model.MaxPositionEmbeddings, cfg.MicrobatchTokens, cfg.LaneTokens, cfg.Loss.KL.Coefficient = 1200, 2400, 2400, 0
		return cfg
	}
	if model.LongCompiledRow > 1060 {
		t.Fatalf("attention in loops begins at %d tokens: the rows of this test are shorter", model.LongCompiledRow)
	}
	backend := xlatest.Backend(t)
	devices := xlatest.Devices(t, backend)
	tr := initialised(t, config("go", device.Mesh{}))
	start := weights(t, tr)
	want := teachLong(t, tr)
	for name, c := range map[string]struct {
		mesh   device.Mesh
		change func(*trainer.Config)
	}{
		"one device":    {device.Mesh{}, func(*trainer.Config) {}},
		"2 x 2, packed": {device.Mesh{Data: 2, Model: 2, FSDP: true}, func(c *trainer.Config) { c.Pack = true }},
		"1 x 4, remat":  {device.Mesh{Data: 1, Model: 4}, func(c *trainer.Config) { c.Remat = true }},
	} {
		t.Run(name, func(t *testing.T) {
			if c.mesh.NumDevices() > devices {
				t.Skipf("%d devices", devices)
			}
			cfg := config(backend, c.mesh)
			c.change(&cfg)
			got := teachLong(t, initialised(t, cfg))
			losses, logprobs, moved := near(got, want, start)
			t.Logf("losses within %.2g, log-probabilities %.2g, weights %.2g of their movement", losses, logprobs, moved)
			expect(t, got, want, start, meshLoss, meshLogprob, meshWeights)
		})
	}
}
