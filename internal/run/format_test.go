package run_test

import (
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/run"
)

// TestRunsOfOtherBuildsAreRefused by name, with the way out, by whatever reads the plan.
func TestRunsOfOtherBuildsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ plan, want string }{
		"earlier": {`{"run_id": "demo", "seed": 3}`, "run demo was stored by a build before v0.1.0, which temper v0.1.0 does not read: read it with that build"},
		"later":   {`{"run_id": "demo", "format": 7, "version": "v3.1.0"}`, "run demo is stored in format 7 by temper v3.1.0, and temper v0.1.0 reads format 1: read it with temper v3.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			store := memblob.New()
			if _, err := blob.PutBytes(t.Context(), store, "runs/demo/plan.json", []byte(c.plan), blob.Always); err != nil {
				t.Fatal(err)
			}
			_, _, stored := run.StoredPlan(t.Context(), store, "demo")
			_, reopened := run.Reopen(t.Context(), store, "demo")
			_, loaded := run.Load(t.Context(), store, run.Ref{RunID: "demo"})
			_, _, listed := run.EntryOfPlan(t.Context(), store, "demo")
			for what, err := range map[string]error{"StoredPlan": stored, "Reopen": reopened, "Load": loaded, "EntryOfPlan": listed} {
				if err == nil || !strings.HasPrefix(err.Error(), c.want) || fault.Of(err) != fault.InvalidConfig {
					t.Errorf("%s: error %v, want %q", what, err, c.want)
				}
			}
		})
	}
}
