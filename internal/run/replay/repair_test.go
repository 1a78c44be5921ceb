package replay_test

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/replay"
	"temper/internal/run/runtest"
	"temper/trainer/checkpoint"
)

// events are the texts of the run's events of a kind.
func events(t *testing.T, store blob.Store, layout artifact.Layout, kind string) []string {
	t.Helper()
	var out []string
	for key, data := range runtest.Dump(t, store) {
		if path.Dir(key) == layout.Events().Dir() && artifact.EventKind(key) == kind {
			out = append(out, data)
		}
	}
	return out
}

// rest is a dump without the events.
func rest(dump map[string]string, layout artifact.Layout) map[string]string {
	out := maps.Clone(dump)
	maps.DeleteFunc(out, func(key, _ string) bool { return path.Dir(key) == layout.Events().Dir() })
	return out
}

// TestEveryObjectComesBack: whatever a step makes of other objects is made again when
// it is damaged or gone, with the bytes that it had, and an event says so. The store
// is otherwise as it was. What holds times is left, and named.
func TestEveryObjectComesBack(t *testing.T) {
	m := newMaker(t, map[string]string{"checkpoint.keep": "9"})
	m.makeSteps(t, 6)
	whole := runtest.Dump(t, m.Store)
	repaired := 0
	for key, data := range whole {
		if step, ok := artifact.StepOf(m.Layout, key); !(ok && step >= 3 && step <= 4) && !strings.Contains(key, "/policies/v000003") {
			continue
		}
		for _, gone := range []bool{true, false} {
			broken := maps.Clone(whole)
			broken[key] = "x" + data[1:]
			if gone {
				delete(broken, key)
			}
			store := runtest.Fill(t, broken)
			done, err := m.bench(t, store).Repair(t.Context(), "demo", []blob.Ref{blob.RefOf(key, []byte(data))}, false)
			if err != nil || len(done) != 1 {
				t.Fatalf("%s, gone %v: %+v (%v)", key, gone, done, err)
			}
			want := whole
			if !replay.CanRemake("demo", key) {
				want = broken
			}
			if after := rest(runtest.Dump(t, store), m.Layout); !maps.Equal(after, rest(want, m.Layout)) {
				t.Errorf("%s, gone %v: the store is not as it should be: %+v", key, gone, done)
			}
			if told := events(t, store, m.Layout, run.EventRepair); done[0].Done != replay.CanRemake("demo", key) || (len(told) == 1) != done[0].Done {
				t.Errorf("%s, gone %v: %+v, events %q", key, gone, done, told)
			}
			if done[0].Done {
				repaired++
			}
		}
	}
	if repaired < 20 {
		t.Errorf("%d objects came back", repaired)
	}
}

// TestShardsOfPoliciesComeBack: a shard that a policy names is made again, by a repair
// and by a run that goes on; one that only a checkpoint names is not.
func TestShardsOfPoliciesComeBack(t *testing.T) {
	m := newMaker(t, map[string]string{"checkpoint.keep": "9", "checkpoint.shard_policies": "1"})
	m.makeSteps(t, 4)
	whole := runtest.Dump(t, m.Store)
	shards, err := checkpoint.FolderShards(t.Context(), m.Store, m.Layout.Policy(3).Dir())
	if err != nil || len(shards) == 0 {
		t.Fatalf("policy 3 has %d shards, %v", len(shards), err)
	}
	for _, ref := range shards {
		for _, gone := range []bool{true, false} {
			broken := maps.Clone(whole)
			broken[ref.Key] = "x" + whole[ref.Key][1:]
			if gone {
				delete(broken, ref.Key)
			}
			store := runtest.Fill(t, broken)
			done, err := m.bench(t, store).Repair(t.Context(), "demo", []blob.Ref{ref}, false)
			if err != nil || len(done) != 1 || !done[0].Done {
				t.Fatalf("gone %v: %+v (%v)", gone, done, err)
			}
			if after := rest(runtest.Dump(t, store), m.Layout); !maps.Equal(after, rest(whole, m.Layout)) {
				t.Errorf("gone %v: the store is not as it was", gone)
			}
			store = runtest.Fill(t, broken)
			if err := m.bench(t, store).Mend(t.Context(), replay.MendInput{Run: m.Ref, Damaged: ref}); err != nil {
				t.Fatal(err)
			}
			if after := rest(runtest.Dump(t, store), m.Layout); !maps.Equal(after, rest(whole, m.Layout)) {
				t.Errorf("gone %v: after mending the store is not as it was", gone)
			}
		}
	}
	stray := blob.Ref{Key: "cas/00/" + strings.Repeat("0", 64) + ".safetensors", SHA256: strings.Repeat("0", 64)}
	done, err := m.bench(t, m.Store).Repair(t.Context(), "demo", []blob.Ref{stray}, false)
	if err != nil || len(done) != 1 || done[0].Done {
		t.Errorf("a shard of nobody: %+v (%v)", done, err)
	}
}

// TestMuchDamageAtOnce: trajectories, samples, batches and policies of several steps
// are made in the order in which each needs the others.
func TestMuchDamageAtOnce(t *testing.T) {
	m := newMaker(t, map[string]string{"checkpoint.keep": "9"})
	m.makeSteps(t, 6)
	whole := runtest.Dump(t, m.Store)
	broken := maps.Clone(whole)
	var refs []blob.Ref
	for key, data := range whole {
		if replay.CanRemake("demo", key) {
			refs = append(refs, blob.RefOf(key, []byte(data)))
			broken[key] = "x"
		}
	}
	store := runtest.Fill(t, broken)
	tried, err := m.bench(t, store).Repair(t.Context(), "demo", refs, true)
	if err != nil || !maps.Equal(runtest.Dump(t, store), broken) {
		t.Errorf("a dry run changed the store (%v)", err)
	}
	if slices.ContainsFunc(tried, func(r replay.Repaired) bool { return r.Done || !strings.HasPrefix(r.How, "can be ") }) || len(tried) != len(refs) {
		t.Errorf("a dry run of %d objects: %+v", len(refs), tried)
	}
	done, err := m.bench(t, store).Repair(t.Context(), "demo", refs, false)
	if err != nil || slices.ContainsFunc(done, func(r replay.Repaired) bool { return !r.Done }) {
		t.Errorf("repaired %+v (%v)", done, err)
	}
	if !maps.Equal(rest(runtest.Dump(t, store), m.Layout), rest(whole, m.Layout)) {
		t.Error("the store is not as it was")
	}
}

// TestOtherBytesAreNotPutBack: what comes out with other bytes than those recorded is
// left as it is.
func TestOtherBytesAreNotPutBack(t *testing.T) {
	m := newMaker(t, nil)
	m.makeSteps(t, 1)
	key := m.Layout.Step(1).Group(m.Selected(t, 1, 1)[0])
	runtest.Put(t, m.Store, key, "garbage")
	before := runtest.Dump(t, m.Store)
	done, err := m.bench(t, m.Store).Repair(t.Context(), "demo", []blob.Ref{{Key: key, SHA256: "beef"}}, false)
	if err != nil || len(done) != 1 || done[0].Done || !strings.Contains(done[0].How, "beef") || !maps.Equal(runtest.Dump(t, m.Store), before) {
		t.Errorf("repaired %+v (%v)", done, err)
	}
}

// racing is a store in which somebody else repairs first.
type racing struct {
	blob.Store
	first func()
}

func (r racing) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	r.first()
	return r.Store.Swap(ctx, key, old, data)
}

// TestRepairOverwritesNoOther: an object that changes meanwhile is left to whoever
// changed it.
func TestRepairOverwritesNoOther(t *testing.T) {
	m := newMaker(t, nil)
	m.makeSteps(t, 1)
	key := m.Layout.Step(1).Group(m.Selected(t, 1, 1)[0])
	data, err := blob.ReadKey(t.Context(), m.Store, key)
	if err != nil {
		t.Fatal(err)
	}
	runtest.Put(t, m.Store, key, "garbage")
	store := racing{m.Store, func() { runtest.Put(t, m.Store, key, "other garbage") }}
	_, err = m.bench(t, store).Repair(t.Context(), "demo", []blob.Ref{blob.RefOf(key, data)}, false)
	if err == nil || !strings.Contains(err.Error(), "repeat it") || runtest.Dump(t, m.Store)[key] != "other garbage" {
		t.Errorf("error %v", err)
	}
	_, err = m.bench(t, m.Store).Repair(t.Context(), "other", nil, false)
	runtest.WantFault(t, err, fault.InvalidConfig, `no run "other"`)
}
