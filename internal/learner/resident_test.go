package learner_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob/memblob"
	"temper/internal/run/runtest"
)

// twoRuns are prepared runs in one store, with what a trainer has to do for each.
func twoRuns(t *testing.T) (store *memblob.Store, first, second []func(*runtest.Machine) error) {
	t.Helper()
	store = memblob.New()
	scripts := make([][]func(*runtest.Machine) error, 2)
	for i, set := range []map[string]string{nil, {"seed": "6"}} {
		h := runtest.Prepare(t, store, []string{"one", "two"}[i], set)
		h.StoreBatches(t, 1, 2, 3, 4)
		scripts[i] = h.Script(t, 1, 2, 3, 4)
	}
	return store, scripts[0], scripts[1]
}

// byTurns interleaves two scripts.
func byTurns(a, b []func(*runtest.Machine) error) (out []func(*runtest.Machine) error) {
	for i := range a {
		out = append(out, a[i], b[i])
	}
	return out
}

func restores(f *runtest.Fate) (n int) {
	for _, name := range f.Names {
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
	prepared := runtest.Dump(t, store)
	runtest.Play(t, store, &runtest.Fate{}, false, slices.Concat(first, second))
	want := runtest.Durable(t, store)
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
			store, f := runtest.Fill(t, prepared), &runtest.Fate{}
			m := runtest.Boot(store, f)
			m.MaxResident, m.MaxResidentBytes = c.runs, c.bytes
			runtest.CarryOut(t, m, byTurns(first, second))
			if kept := len(m.Learners) == 2 && restores(f) == 0; kept != c.kept {
				t.Errorf("%d learners, %d restores; kept %v, want %v", len(m.Learners), restores(f), kept, c.kept)
			}
			if diff := cmp.Diff(runtest.Durable(t, store), want); diff != "" {
				t.Errorf("got -, want as without turns +\n%s", diff)
			}
			for i, l := range m.Learners[:len(m.Learners)-2] {
				if !l.Closed {
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
	prepared := runtest.Dump(t, store)
	runtest.Play(t, store, &runtest.Fate{}, false, slices.Concat(first, second))
	want := runtest.Durable(t, store)

	store = runtest.Fill(t, prepared)
	f := &runtest.Fate{}
	m := runtest.Boot(store, f)
	m.MaxResident, m.MaxResidentBytes = 1, math.MaxInt64
	runtest.CarryOut(t, m, slices.Concat(first[:4], second[:1]))          // the first run waits after step 1
	runtest.CarryOut(t, runtest.Boot(store, &runtest.Fate{}), first[4:5]) // another trainer makes its step 2
	runtest.CarryOut(t, m, slices.Concat(first[5:], second[1:]))
	if !m.Learners[0].Closed || restores(f) != 1 {
		t.Errorf("closed %v, %d restores; want the state of the lost lease gone and that of step 2 restored", m.Learners[0].Closed, restores(f))
	}
	if diff := cmp.Diff(runtest.Durable(t, store), want); diff != "" {
		t.Errorf("got -, want as one trainer leaves it +\n%s", diff)
	}
}

// TestTwoRunsOnOneTrainer: runs that take turns get what each gets alone.
func TestTwoRunsOnOneTrainer(t *testing.T) {
	a := runtest.New(t, nil)
	b := runtest.Prepare(t, a.Store, "other", map[string]string{"seed": "9"})
	a.StoreBatches(t, 1, 2)
	b.StoreBatches(t, 1, 2)
	alone := runtest.Fill(t, runtest.Dump(t, a.Store))
	scripts := [][]func(*runtest.Machine) error{a.Script(t, 1, 2), b.Script(t, 1, 2)}
	var turns []func(*runtest.Machine) error
	for i := range scripts[0] {
		turns = append(turns, scripts[0][i], scripts[1][i])
	}
	m := runtest.Play(t, a.Store, &runtest.Fate{}, false, turns)
	for _, script := range scripts {
		runtest.Play(t, alone, &runtest.Fate{}, true, script)
	}
	if diff := cmp.Diff(runtest.Durable(t, a.Store), runtest.Durable(t, alone)); diff != "" {
		t.Errorf("interleaved: got -, want alone +\n%s", diff)
	}
	open := 0
	for _, l := range m.Learners {
		if !l.Closed {
			open++
		}
	}
	if open != 1 {
		t.Errorf("%d learners are open, want the one of the last run", open)
	}
}

// TestDamageOfAnotherRunHarmsNone: of a run beside, the manifest of a checkpoint is cut off.
func TestDamageOfAnotherRunHarmsNone(t *testing.T) {
	store, first, second := twoRuns(t)
	runtest.Play(t, store, &runtest.Fate{}, false, first)
	infos, err := store.List(t.Context(), "runs/one/checkpoints/step-")
	if err != nil || len(infos) == 0 {
		t.Fatal(infos, err)
	}
	runtest.Put(t, store, infos[0].Key, `{"format": 3`)
	runtest.CarryOut(t, runtest.Boot(store, &runtest.Fate{}), second)
}
