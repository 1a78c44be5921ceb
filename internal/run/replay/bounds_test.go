package replay_test

import (
	"context"
	"path"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/inference"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/internal/run/replay"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/sandbox/sandboxtest"
)

// shifted is an engine whose log-probabilities are a little off, as those of kernels
// that add in another order.
type shifted struct {
	*runtest.Scripted
	by float32
}

func (s shifted) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	out, err := s.Scripted.Generate(ctx, req)
	out.Logprobs = append([]float32(nil), out.Logprobs...)
	for i := range out.Logprobs {
		out.Logprobs[i] += s.by
	}
	return out, err
}

// TestOtherKernelsAreHeldToBounds, and are named; the same kernels are held to bits.
func TestOtherKernelsAreHeldToBounds(t *testing.T) {
	m := newMaker(t, nil)
	m.madeBy = chain.Maker{Role: "rollout", Build: "a", Kernels: "variant=avx512 fma=true"}
	m.makeSteps(t, 1)
	for _, row := range []struct {
		kernels string
		by      float32
		want    replay.Verdict
	}{
		{"variant=avx512 fma=true", 0, replay.Equal},
		{"variant=avx512 fma=true", -1e-6, replay.Differs},
		{"variant=avx2 fma=true", 0, replay.Equal},
		{"variant=avx2 fma=true", -1e-6, replay.Close},
		{"variant=avx2 fma=true", -0.1, replay.Differs},
	} {
		b := m.bench(t, m.Store)
		b.Makers = func(config.Run) []chain.Maker {
			return []chain.Maker{{Role: "rollout", Build: "b", Kernels: row.kernels}, {Role: "trainer"}}
		}
		b.NewSampling = func(store blob.Store) *sampling.Service {
			engine := shifted{m.NewScripted(t), row.by}
			return sampling.New(sampling.Config{
				Store: store, Executor: &sandboxtest.Fake{Func: runtest.Python}, MaxConcurrent: 4, Now: runtest.Still,
				NewEngine: func(*run.Loaded) (sampling.Engine, error) { return engine, nil },
			})
		}
		r, err := b.Step(t.Context(), "demo", 1)
		if err != nil {
			t.Fatal(err)
		}
		if named := len(r.Kernels) == 1 && strings.Contains(r.Kernels[0], "variant=avx512, and here variant=avx2"); named != strings.Contains(row.kernels, "avx2") {
			t.Errorf("%+v: kernels %q", row, r.Kernels)
		}
		if len(r.Notes) == 0 || !strings.Contains(r.Notes[0], "build a") {
			t.Errorf("%+v: another build is not told: %q", row, r.Notes)
		}
		for _, o := range r.Objects {
			want := replay.Equal
			if path.Dir(o.Key) == m.Layout.Step(1).Groups() {
				want = row.want
			}
			within := strings.Contains(row.kernels, "avx2")
			if o.Verdict != want && (within || row.by == 0) {
				t.Errorf("%+v: %s is %s (%s), want %s", row, o.Key, o.Verdict, o.Note, want)
			}
		}
		if row.want == replay.Differs && len(r.Damaged()) == 0 {
			t.Errorf("%+v: nothing differs", row)
		}
	}
}
