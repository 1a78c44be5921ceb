//go:build xla

package trainer_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/device"
	"temper/trainer/packing"
	"temper/trainer/xla/graphcache"
	"temper/trainer/xla/xlatest"
)

// smallPaper is configs/rstar2-14b.yaml with contexts and passes of a 150th, and with small
// batches. Compiling is cheap enough there to use up the budget.
func smallPaper(t testing.TB, change func(*config.Run)) config.Run {
	t.Helper()
	cfg, err := config.LoadFile("../configs/rstar2-14b.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Model.MaxContext, cfg.RL.MicrobatchTokens, cfg.SFT.BatchSize = 96, 112, 6
	cfg.RL.ProblemsPerStep, cfg.RL.GroupSize = 2, 4
	cfg.Trainer.Graphs.CompileTime = time.Microsecond
	change(&cfg)
	return cfg
}

// fewGraphs is a trainer's configuration for a run, with a network that is small.
func fewGraphs(cfg config.Run, backend string, mesh device.Mesh) trainer.Config {
	c := meshConfig(backend, mesh)
	c.MicrobatchTokens, c.Loss, c.Work = cfg.RL.MicrobatchTokens, cfg.RL.Loss, packing.WorkOf(cfg)
	return c
}

// mixed draws trajectories of which half are short.
func mixed(n int, seed uint64) []rl.Sample {
	return slices.Concat(samples(n/2, 30, seed), samples(n-n/2, 96, seed+100))
}

// course is what a trainer does in these tests: a supervised update, and two steps on eight
// trajectories of other lengths each.
type course struct {
	losses []float64
	state  checkpoint.State
}

func takeCourse(t testing.TB, tr *trainer.Trainer, minibatches int) course {
	t.Helper()
	if err := tr.KeepReference(); err != nil {
		t.Fatal(err)
	}
	m, err := tr.SFTStep(t.Context(), mixed(6, 3), mildAdam(), constant(1))
	if err != nil {
		t.Fatal(err)
	}
	out := course{losses: []float64{m.Loss, m.GradNorm}}
	for step := 1; step <= 2; step++ {
		m, err := tr.Update(t.Context(), rl.Batch{Step: step, Samples: mixed(8, uint64(step))},
			trainer.UpdateOptions{Optimizer: mildAdam(), Position: constant(step), NumMinibatches: minibatches})
		if err != nil {
			t.Fatal(err)
		}
		out.losses = append(out.losses, m.Loss, m.GradNorm, m.Entropy)
	}
	out.state = snapshot(t, tr)
	return out
}

// TestXLAFewGraphs: a run compiles the programs of its plan, at most six, all of them before
// it needs them. One that starts again compiles none, and has the same bits, as one without a
// folder has. The numbers are those of the Go backend, which cuts other passes.
func TestXLAFewGraphs(t *testing.T) {
	backend := xlatest.Backend(t)
	devices := xlatest.Devices(t, backend)
	for name, c := range map[string]struct {
		change func(*config.Run)
		mesh   device.Mesh
		shared int // programs that two kinds of passes have in common
	}{
		"the paper": {change: func(*config.Run) {}},
		"two updates, a reference policy": {shared: 1, mesh: device.Mesh{Data: 2, Model: 2, FSDP: true}, change: func(r *config.Run) {
			r.RL.NumMinibatches, r.RL.Loss.KL.Coefficient = 2, 0.05
		}},
		"packed": {change: func(r *config.Run) { r.RL.Pack = true }},
	} {
		t.Run(name, func(t *testing.T) {
			if c.mesh.NumDevices() > devices {
				t.Skipf("%d devices", devices)
			}
			run := smallPaper(t, c.change)
			cfg := fewGraphs(run, backend, c.mesh)
			cfg.Pack = run.RL.Pack
			choice, ok := cfg.Choice()
			if !ok || choice.Graphs > 6 || len(choice.Policy)+len(choice.Supervised) < 2 {
				t.Fatalf("%+v", choice)
			}
			t.Setenv(graphcache.DirKey, filepath.Join(t.TempDir(), "graphs"))
			take := func(what string, compiled, loaded int) course {
				t.Helper()
				before, begin := device.Graphs(), time.Now()
				tr := initialised(t, cfg)
				out := takeCourse(t, tr, run.RL.NumMinibatches)
				n := device.Graphs().Since(before)
				if n.Compiled != compiled || n.Loaded != loaded || n.Refused != 0 {
					t.Errorf("%s: %+v, want %d compiled and %d loaded", what, n, compiled, loaded)
				}
				if got := tr.NumGraphs(); got != choice.Graphs+c.shared || cfg.MaxGraphs() != choice.Graphs {
					t.Errorf("%s: %d graphs, want %d", what, got, choice.Graphs+c.shared)
				}
				t.Logf("%s: %+v in %v, %+v", what, n, time.Since(begin), choice)
				return out
			}
			first := take("first", choice.Graphs, c.shared)
			again := take("again", 0, choice.Graphs+c.shared)
			sameState(t, "after a start with a folder of programs", again.state, first.state)
			plain := fewGraphs(run, "go", device.Mesh{})
			want := takeCourse(t, initialised(t, plain), run.RL.NumMinibatches)
			for i := range want.losses {
				if off := math.Abs(first.losses[i]-want.losses[i]) / max(1, math.Abs(want.losses[i])); !(off <= meshLoss) {
					t.Errorf("loss or norm %d: %v, the Go backend has %v", i, first.losses[i], want.losses[i])
				}
			}
			if c.mesh.Several() || run.RL.Pack {
				return // compiling once more takes longest there
			}
			t.Setenv(graphcache.DirKey, "off")
			sameState(t, "without a folder of programs", take("no folder", choice.Graphs+c.shared, 0).state, first.state)
		})
	}
}

// BenchmarkXLAGraphs makes one supervised update and two steps on eight trajectories each:
// with a shape for each length, with the shapes of a budget, and with these from disk.
func BenchmarkXLAGraphs(b *testing.B) {
	backend := xlatest.Backend(b)
	run := smallPaper(b, func(*config.Run) {})
	dir := filepath.Join(b.TempDir(), "graphs")
	for _, c := range []struct {
		name   string
		shapes bool
		dir    string
	}{{"all lengths", false, "off"}, {"budget", true, dir}, {"from disk", true, dir}} {
		b.Run(c.name, func(b *testing.B) {
			b.Setenv(graphcache.DirKey, c.dir)
			cfg := fewGraphs(run, backend, device.Mesh{})
			if !c.shapes {
				cfg.Work = packing.Work{}
			}
			for b.Loop() {
				before := device.Graphs()
				tr, err := trainer.New(cfg)
				if err != nil {
					b.Fatal(err)
				}
				if err := tr.Init(1); err != nil {
					b.Fatal(err)
				}
				takeCourse(b, tr, 1)
				n := device.Graphs().Since(before)
				b.ReportMetric(float64(tr.NumGraphs()), "graphs")
				b.ReportMetric((n.Compiling + n.Loading).Seconds(), "compiling-s")
				choice, _ := cfg.Choice()
				b.ReportMetric(100*choice.Padding, "%padding")
				tr.Close()
			}
		})
	}
}
