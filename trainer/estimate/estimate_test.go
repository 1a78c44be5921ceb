package estimate_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"temper/trainer/device"
	"temper/trainer/estimate"
	"temper/trainer/model"
)

// TestNamedSizes holds the named dimensions to the published parameter counts
// (arXiv 2505.09388 and the model cards, in billions, non-embedding beside).
func TestNamedSizes(t *testing.T) {
	for _, c := range []struct {
		name         string
		all, without float64 // without embeddings and head
	}{{"0.6b", 0.6, 0.44}, {"1.7b", 1.7, 1.4}, {"4b", 4.0, 3.6}, {"8b", 8.2, 6.95}, {"14b", 14.8, 13.2}, {"32b", 32.8, 31.2}} {
		cfg := network(t, c.name)
		all := float64(cfg.NumParameters()) / 1e9
		tables := 2.0
		if cfg.TieWordEmbeddings {
			tables = 1
		}
		without := all - tables*float64(cfg.VocabSize*cfg.HiddenSize)/1e9
		if math.Abs(all-c.all) > 0.05 || math.Abs(without-c.without) > 0.05 {
			t.Errorf("%s: %.3f billion parameters, %.3f without embeddings, want %v and %v", c.name, all, without, c.all, c.without)
		}
	}
}

func TestModelFile(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"model_type":"qwen3","vocab_size":64,"hidden_size":8,"intermediate_size":16,"num_hidden_layers":1,"num_attention_heads":2,
		"num_key_value_heads":1,"head_dim":4,"max_position_embeddings":32,"rope_theta":1000000,"rms_norm_eps":1e-6,"tie_word_embeddings":true}`)
	for _, name := range []string{dir, filepath.Join(dir, "config.json")} {
		if cfg := network(t, name); cfg.VocabSize != 64 {
			t.Errorf("%s: %+v", name, cfg)
		}
	}
	write(`{"model_type":"qwen3","vocab_size":64}`)
	if _, err := estimate.Model(dir); err == nil || !strings.Contains(err.Error(), "hidden_size: missing") {
		t.Errorf("config.json without dimensions: %v", err)
	}
}

// TestState checks the bytes of weights, gradients and moments by hand: 16 a
// parameter on one GPU, an eighth of that on each of eight.
func TestState(t *testing.T) {
	n, gpu := devices(t, "8xMI300X")
	cfg := network(t, "14b")
	for _, mesh := range []device.Mesh{{Data: 8, Model: 1, FSDP: true}, {Data: 2, Model: 4, FSDP: true}, {Data: 1, Model: n}} {
		r, err := estimate.Estimate(estimate.Config{Model: cfg, Device: gpu, Mesh: mesh, Rows: 1, Length: 1024, Half: true, Remat: true})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, i := range r.Items {
			if i.Stage == estimate.Always || i.Stage == estimate.Pass || i.Stage == estimate.Update {
				got[i.Group] += i.Bytes
			}
		}
		each := float64(cfg.NumParameters()) / 8 // norms are whole on every device: a millionth more
		for group, bytes := range map[string]float64{"weights": 6, "gradients": 4, "optimizer": 8} {
			if ratio := float64(got[group]) / (bytes * each); math.Abs(ratio-1) > 1e-3 {
				t.Errorf("%v: %s are %d bytes, %.4f of %v a parameter", mesh, group, got[group], ratio, bytes)
			}
		}
	}
}

// TestFLOPs checks a pass of the 14B by hand: 13.99 billion parameters in
// products (all but one table), 40 layers of 40 heads of 128.
func TestFLOPs(t *testing.T) {
	cfg := network(t, "14b")
	f := estimate.Train(cfg, 1000, 4096, true)
	want := 1000 * (6*13.99e9 + 12*40*40*128*4096.0)
	if math.Abs(f.Model/want-1) > 1e-3 {
		t.Errorf("%g operations, want %g", f.Model, want)
	}
	if math.Abs(f.Hardware/f.Model-4.0/3) > 1e-9 {
		t.Errorf("recomputation makes %g of %g, want four thirds", f.Hardware, f.Model)
	}
	n, gpu := devices(t, "8xH100")
	took := f.Time(n, gpu, 0.5)
	if mfu := f.MFU(n, gpu, took); math.Abs(mfu-0.5) > 1e-3 || took <= 0 || took > time.Second {
		t.Errorf("%v at an MFU of 0.5 is one of %v", took, mfu)
	}
}

// TestMonotone: more work never takes less memory, recomputation and a larger
// model axis never more for their activations, and the items make the peak.
func TestMonotone(t *testing.T) {
	cfg := network(t, "1.7b")
	rapid.Check(t, func(t *rapid.T) {
		n, d, err := estimate.ParseDevices(rapid.SampledFrom([]string{"8xMI300X", "8xH200", "CPU"}).Draw(t, "devices"))
		if err != nil {
			t.Fatal(err)
		}
		c := estimate.Config{Model: cfg, Device: d, Mesh: device.Mesh{Data: n, Model: 1, FSDP: n > 1},
			Rows: rapid.IntRange(1, 8).Draw(t, "rows"), Length: rapid.IntRange(64, 8192).Draw(t, "length"),
			Half: rapid.Bool().Draw(t, "half"), Accumulate: rapid.Bool().Draw(t, "accumulate"), LogitsChunk: rapid.SampledFrom([]int{0, 4096}).Draw(t, "chunk")}
		peak := func(change func(*estimate.Config)) int64 {
			changed := c
			change(&changed)
			r, err := estimate.Estimate(changed)
			if err != nil {
				t.Fatal(err)
			}
			sums := map[estimate.Stage]int64{}
			for _, i := range r.Items {
				if i.Bytes < 0 {
					t.Fatalf("%+v is negative", i)
				}
				sums[i.Stage] += i.Bytes
			}
			if r.PeakAt != estimate.Update {
				sums[r.PeakAt] += sums[estimate.Pass]
			} else if d.Fused { // backward through the last layer
				sums[r.PeakAt] += sums[estimate.Layer]
			}
			if r.PeakAt == estimate.Layer && !d.Fused { // the CPU's pools keep what the other stage has held
				sums[r.PeakAt] += sums[estimate.Logits]
			} else if r.PeakAt == estimate.Logits && !d.Fused {
				sums[r.PeakAt] += sums[estimate.Layer]
			}
			if sums[estimate.Always]+sums[r.PeakAt] != r.Peak || r.Fits != (r.Peak <= r.Memory) {
				t.Fatalf("items %v do not make the peak %d of %d", sums, r.Peak, r.Memory)
			}
			return r.Peak
		}
		same := peak(func(*estimate.Config) {})
		if more := peak(func(c *estimate.Config) { c.Rows++ }); more < same || more == same && c.Length > 1024 {
			t.Fatalf("another row takes %d instead of %d", more, same)
		}
		if more := peak(func(c *estimate.Config) { c.Slots, c.Context = 1, 64 }); more <= same {
			t.Fatalf("an engine takes %d instead of %d", more, same)
		}
		if less := peak(func(c *estimate.Config) { c.Remat = true }); less > same {
			t.Fatalf("recomputation takes %d instead of %d", less, same)
		}
	})
}

func TestAdvice(t *testing.T) {
	n, gpu := devices(t, "2xA100-40")
	s, err := estimate.Plan(estimate.Request{NumDevices: n, MFU: 0.4,
		Config: estimate.Config{Model: network(t, "1.7b"), Device: gpu, Rows: 4, Length: 8192, Half: true}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Report.Fits || len(s.Advice) < 4 || !strings.Contains(strings.Join(s.Advice, "\n"), "--remat") {
		t.Errorf("fits %v, advice %q; want that it does not, and at least four changes", s.Report.Fits, s.Advice)
	}
}

func network(t *testing.T, name string) model.Config {
	t.Helper()
	cfg, err := estimate.Model(name)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func devices(t *testing.T, s string) (int, estimate.Device) {
	t.Helper()
	n, d, err := estimate.ParseDevices(s)
	if err != nil {
		t.Fatal(err)
	}
	return n, d
}
