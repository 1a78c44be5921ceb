package chain_test

import (
	"slices"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/internal/run/runtest"
)

func verify(t testing.TB, store blob.Store, o chain.Options) chain.Report {
	t.Helper()
	got, err := chain.Verify(t.Context(), store, "demo", o)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestWholeRunIsGood and each of its objects is held by the chain, except for those
// that change: of a run from random weights, one from a checkpoint, and a fork of each.
func TestWholeRunIsGood(t *testing.T) {
	for name, h := range map[string]*runtest.Run{
		"random weights":  runtest.New(t, nil),
		"from checkpoint": runtest.PrepareConfig(t, memblob.New(), "demo", runtest.CheckpointRecipe, map[string]string{"model.path": runtest.WriteModel(t, runtest.StartModel(), nil)}),
	} {
		t.Run(name, func(t *testing.T) {
			h.Whole(t, 6, true)
			wantGood(t, h, 1, 6)
			child := h.Fork(t, "child", run.ForkFrom{RunID: "demo", Step: 4}, nil)
			child.Continue(t, 5, 6)
			wantGood(t, child, 5, 6)
		})
	}
}

func wantGood(t *testing.T, h *runtest.Run, first, last int) {
	t.Helper()
	id := h.Layout.RunID
	got, err := chain.Verify(t.Context(), h.Store, id, chain.Options{All: true})
	if err != nil {
		t.Fatal(err)
	}
	if got.Steps != last-first+1 || got.First != first || got.Last != last || !got.Ended || got.Manifests != got.Steps+2 || len(got.Damage) > 0 || len(got.Remarks) > 0 {
		t.Errorf("run %s: got %+v", id, got)
	}
	chain, err := chain.Load(t.Context(), h.Store, id)
	if err != nil {
		t.Fatal(err)
	}
	held, err := chain.Objects(t.Context(), h.Store)
	if err != nil {
		t.Fatal(err)
	}
	for key := range runtest.Dump(t, h.Store) {
		_, ok := held[key]
		if !ok && !h.Layout.Chain().Contains(key) && !slices.Contains([]string{h.Layout.Head(), h.Layout.Summary()}, key) && strings.HasPrefix(key, h.Layout.Dir()+"/") {
			t.Errorf("nothing holds %s", key)
		}
	}
	if parent := chain.Entries[0].Manifest.Fork; parent.IsZero() != (id == "demo") {
		t.Errorf("the opening of %s names %+v of its parent", id, parent)
	}
}

// TestEveryFlipIsFound: some bytes of each object of a run are changed, one at a time,
// and the object is named.
func TestEveryFlipIsFound(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep_policies": "2"})
	h.Whole(t, 3, true)
	all := runtest.Dump(t, h.Store)
	flips := 0
	for key, data := range all {
		if strings.HasPrefix(key, "cas/") && !strings.HasSuffix(key, ".safetensors") {
			continue // of a collection of garbage
		}
		step := 1 + len(data)/3
		for at := len(key) % step; at < len(data); at += step {
			changed := []byte(data)
			changed[at] ^= 1 << (at % 8)
			runtest.Put(t, h.Store, key, string(changed))
			got := verify(t, h.Store, chain.Options{All: true})
			named := func(f chain.Finding) bool { return f.Key == key }
			if !slices.ContainsFunc(got.Damage, named) && !slices.ContainsFunc(got.Remarks, named) {
				t.Fatalf("%s, byte %d: not named by %v %v", key, at, got.Damage, got.Remarks)
			}
			flips++
		}
		runtest.Put(t, h.Store, key, data)
	}
	if flips < 150 {
		t.Errorf("%d flips in %d objects, want more", flips, len(all))
	}
}

// TestEveryByteOfAManifest counts, also white space.
func TestEveryByteOfAManifest(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, true)
	for _, key := range []string{h.Layout.Chain().Opening(), h.Layout.Step(1).Manifest(), h.Layout.Chain().Closing()} {
		data := runtest.Dump(t, h.Store)[key]
		for at := range data {
			changed := []byte(data)
			changed[at] ^= byte(1 + at%255)
			runtest.Put(t, h.Store, key, string(changed))
			c, err := chain.Load(t.Context(), h.Store, "demo")
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(c.Entries, func(e chain.Entry) bool { return e.Ref.Key == key })
			if c.Entries[i].Damage == nil {
				t.Fatalf("%s, byte %d: %q passes for %q", key, at, changed[at], data[at])
			}
		}
		runtest.Put(t, h.Store, key, data)
	}
}
