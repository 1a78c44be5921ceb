package learner_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/run/runtest"
)

// withTrajectories stores two groups for each step, as sampling did.
func storeTrajectories(t *testing.T, h *runtest.Run, steps ...int) {
	t.Helper()
	for _, step := range steps {
		for _, problem := range []string{"p1", "p2"} {
			runtest.Put(t, h.Store, h.Layout.Step(step).Group(problem), fmt.Sprintf("{\"step\": %d}\n", step))
		}
	}
}

// stepsWithTrajectories counts the groups of each step.
func groupsByStep(t *testing.T, h *runtest.Run, store blob.Store) map[int]int {
	t.Helper()
	out := map[int]int{}
	for key := range runtest.Dump(t, store) {
		var step int
		if _, err := fmt.Sscanf(strings.TrimPrefix(key, h.Layout.Steps()), "/%06d/trajectories/", &step); err == nil {
			out[step]++
		}
	}
	return out
}

func newSampled(t *testing.T, keep string) *runtest.Run {
	t.Helper()
	h := runtest.New(t, map[string]string{"checkpoint.keep_trajectories": keep})
	h.StoreBatches(t, sixSteps...)
	storeTrajectories(t, h, sixSteps...)
	return h
}

// TestTrajectoriesThatStay: those of the newest steps, and all that the newest
// checkpoint does not contain.
func TestTrajectoriesThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		keep  string
		steps int
		want  map[int]int
	}{
		"all":                    {"0", 6, map[int]int{1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2}},
		"of two steps":           {"2", 6, map[int]int{5: 2, 6: 2}},
		"more than there are":    {"9", 6, map[int]int{1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2}},
		"not in the checkpoint":  {"1", 3, map[int]int{2: 2, 3: 2, 4: 2, 5: 2, 6: 2}}, // saved after 2
		"without any checkpoint": {"1", 1, map[int]int{1: 2, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSampled(t, c.keep)
			runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, sixSteps[:c.steps]...))
			if diff := cmp.Diff(groupsByStep(t, h, h.Store), c.want); diff != "" {
				t.Errorf("groups by step: got -, want +\n%s", diff)
			}
		})
	}
}

// TestDeathAmongDeletesOfTrajectories: what one deletion leaves the next one takes,
// and nothing else changes, the trained policies least of all.
func TestDeathAmongDeletesOfTrajectories(t *testing.T) {
	h := newSampled(t, "1")
	content := runtest.Dump(t, h.Store)
	script := h.Script(t, sixSteps...)
	undisturbed := runtest.Fate{}
	calm := runtest.Fill(t, content)
	runtest.Play(t, calm, &undisturbed, false, script)
	want, deaths := runtest.Durable(t, calm), 0
	for at, moment := range undisturbed.Names {
		if !strings.Contains(moment, "/trajectories/") {
			continue
		}
		for _, restart := range []bool{true, false} {
			store := runtest.Fill(t, content)
			runtest.Play(t, store, &runtest.Fate{At: at + 1}, restart, script)
			deaths++
			if got := runtest.Durable(t, store); !maps.Equal(got, want) {
				t.Fatalf("death %s, new process %v: got -, want +\n%s", moment, restart, cmp.Diff(got, want))
			}
		}
	}
	if deaths != 2*5*2 {
		t.Errorf("%d deaths, want one before each of ten deletes, with and without the process", deaths)
	}
}

// TestPruningLooksAtFewFolders: a save of a long run lists the names of its steps and
// the steps whose trajectories it deletes, and never all that lies below the steps.
func TestPruningLooksAtFewFolders(t *testing.T) {
	h := newSampled(t, "2")
	listed := listings{Store: h.Store, steps: h.Layout.Steps(), folders: map[string]int{}}
	runtest.Play(t, &listed, &runtest.Fate{}, false, h.Script(t, sixSteps...))
	if diff := cmp.Diff(groupsByStep(t, h, h.Store), map[int]int{5: 2, 6: 2}); diff != "" {
		t.Errorf("groups by step: got -, want +\n%s", diff)
	}
	if len(listed.prefixes) > 0 {
		t.Errorf("listed all below %q", listed.prefixes)
	}
	// The saves after steps 4 and 6 begin at steps 2 and 4 and end at one without any. A
	// step is listed to see whether it has some, and to delete them.
	for step, want := range map[int]int{1: 2, 2: 3, 3: 2, 4: 2, 5: 0, 6: 0} {
		if got := listed.folders[h.Layout.Step(step).Groups()]; got != want {
			t.Errorf("the trajectories of step %d were listed %d times, want %d", step, got, want)
		}
	}
}

// listings is a store that remembers which folders of steps were listed.
type listings struct {
	blob.Store
	steps    string
	prefixes []string
	folders  map[string]int
}

func (l *listings) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if strings.HasPrefix(prefix, l.steps) {
		l.prefixes = append(l.prefixes, prefix)
	}
	return l.Store.List(ctx, prefix)
}

func (l *listings) ListFolder(ctx context.Context, folder string) ([]blob.Info, []string, error) {
	l.folders[folder]++
	return l.Store.ListFolder(ctx, folder)
}
