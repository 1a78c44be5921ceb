package activities_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/memblob"
)

// twoRuns are prepared runs in one store, with what a trainer has to do for each.
func twoRuns(t *testing.T) (store *memblob.Store, first, second []func(*machine) error) {
	t.Helper()
	store = memblob.New()
	scripts := make([][]func(*machine) error, 2)
	for i, set := range []map[string]string{nil, {"seed": "6"}} {
		h := prepare(t, store, []string{"one", "two"}[i], set)
		h.withBatches(t, 1, 2, 3, 4)
		scripts[i] = h.script(t, 1, 2, 3, 4)
	}
	return store, scripts[0], scripts[1]
}

// byTurns interleaves two scripts.
func byTurns(a, b []func(*machine) error) (out []func(*machine) error) {
	for i := range a {
		out = append(out, a[i], b[i])
	}
	return out
}

// carryOut carries a script out on a machine without faults.
func carryOut(t *testing.T, m *machine, script []func(*machine) error) {
	t.Helper()
	for i, activity := range script {
		if err := activity(m); err != nil {
			t.Fatalf("activity %d: %v", i, err)
		}
	}
}

func restores(f *fate) (n int) {
	for _, name := range f.names {
		if strings.HasPrefix(name, "before restore") {
			n++
		}
	}
	return n
}

// TestRunsByTurnsKeepTheirState: two runs on one trainer come to the bits of runs
// that have one each, restoring nothing where both have room.
func TestRunsByTurnsKeepTheirState(t *testing.T) {
	store, first, second := twoRuns(t)
	prepared := dump(t, store)
	play(t, store, &fate{}, false, slices.Concat(first, second))
	want := durable(t, store)
	for name, c := range map[string]struct {
		runs  int
		bytes int64
		kept  bool
	}{
		"room for both":     {1, math.MaxInt64, true},
		"none":              {0, math.MaxInt64, false},
		"too little memory": {1, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			store, f := fill(t, prepared), &fate{}
			m := boot(store, f)
			m.Learner.MaxResident, m.Learner.MaxResidentBytes = c.runs, c.bytes
			carryOut(t, m, byTurns(first, second))
			if kept := len(m.learners) == 2 && restores(f) == 0; kept != c.kept {
				t.Errorf("%d learners, %d restores; kept %v, want %v", len(m.learners), restores(f), kept, c.kept)
			}
			if diff := cmp.Diff(durable(t, store), want); diff != "" {
				t.Errorf("got -, want as without turns +\n%s", diff)
			}
			for i, l := range m.learners[:len(m.learners)-2] {
				if !l.closed {
					t.Errorf("learner %d was left behind", i)
				}
			}
		})
	}
}

// TestStateOfALostLeaseIsForgotten: another trainer goes on with a run while its
// state waits here. What comes back is what that one stored.
func TestStateOfALostLeaseIsForgotten(t *testing.T) {
	store, first, second := twoRuns(t)
	prepared := dump(t, store)
	play(t, store, &fate{}, false, slices.Concat(first, second))
	want := durable(t, store)

	store = fill(t, prepared)
	f := &fate{}
	m := boot(store, f)
	m.Learner.MaxResident, m.Learner.MaxResidentBytes = 1, math.MaxInt64
	carryOut(t, m, slices.Concat(first[:4], second[:1])) // the first run waits after step 1
	carryOut(t, boot(store, &fate{}), first[4:5])        // another trainer makes its step 2
	carryOut(t, m, slices.Concat(first[5:], second[1:]))
	if !m.learners[0].closed || restores(f) != 1 {
		t.Errorf("closed %v, %d restores; want the state of the lost lease gone and that of step 2 restored", m.learners[0].closed, restores(f))
	}
	if diff := cmp.Diff(durable(t, store), want); diff != "" {
		t.Errorf("got -, want as one trainer leaves it +\n%s", diff)
	}
}
