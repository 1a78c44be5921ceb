package rolloutbench_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/tools/bench/rolloutbench"
)

// step samples a small step and returns what it took and what it left.
func step(t *testing.T, f rolloutbench.Faults, tokens int) (rolloutbench.Result, map[string]string) {
	t.Helper()
	store := memblob.New()
	p := rolloutbench.Plan{
		Store: store, Problems: 12, Rollouts: 8, Tokens: tokens, Turns: 6, ToolChars: 60,
		TokenTime: 5 * time.Microsecond, Concurrent: 40, Faults: f,
	}
	r, err := p.Measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r, content(t, store)
}

// TestFaultsLoseNothing: engines that fail and lie, a sandbox that is away and a step
// that is taken from one worker after the other leave the bytes of a quiet step, for
// groups of both stored forms. What ended is not sampled again.
func TestFaultsLoseNothing(t *testing.T) {
	for name, tokens := range map[string]int{"lines": 500, "compact": 9000} {
		t.Run(name, func(t *testing.T) {
			quiet, want := step(t, rolloutbench.Faults{}, tokens)
			if quiet.Lost+quiet.Doubled > 0 || quiet.Sampled != quiet.Needed || quiet.Attempts != 1 {
				t.Fatalf("without faults: %+v", quiet)
			}
			if compact := float64(quiet.Stored) < 8*float64(quiet.Tokens); compact != (name == "compact") {
				t.Errorf("%d bytes for %d tokens", quiet.Stored, quiet.Tokens)
			}
			noisy, got := step(t, rolloutbench.Faults{Engine: 11, Lies: 17, Sandbox: 13, Cancels: 4, Calls: 120}, tokens)
			if noisy.Lost+noisy.Doubled > 0 || noisy.Attempts != 5 || noisy.Injected < 40 {
				t.Errorf("with faults: %+v", noisy)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("got -, want +\n%s", diff)
			}
			again := float64(noisy.Sampled-noisy.Needed) / float64(noisy.Needed)
			if most := 4.0 * 40 / 96; again > most { // of 4 deaths, each of at most 40 trajectories under way
				t.Errorf("%.0f %% of the tokens were sampled again, want at most %.0f %%", 100*again, 100*most)
			}
		})
	}
}

// content is what a step has left, by key.
func content(t *testing.T, store blob.Store) map[string]string {
	t.Helper()
	infos, err := store.List(t.Context(), "runs/rollouts/steps/")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for _, i := range infos {
		if artifact.Aside(i.Key) {
			continue
		}
		data, err := blob.ReadKey(t.Context(), store, i.Key)
		if err != nil {
			t.Fatal(err)
		}
		sums[i.Key] = blob.RefOf(i.Key, data).SHA256
	}
	return sums
}
