package chain_test

import (
	"slices"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/run/chain"
	"temper/internal/run/runtest"
)

// find is the finding of a key, the zero one for none.
func find(all []chain.Finding, key string) chain.Finding {
	for _, f := range all {
		if f.Key == key {
			return f
		}
	}
	return chain.Finding{}
}

// TestChainsThatDoNotHold: each row does harm to a whole run and names what must be
// found.
func TestChainsThatDoNotHold(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, true)
	l, all := h.Layout, runtest.Dump(t, h.Store)
	other := runtest.New(t, map[string]string{"seed": "6"})
	other.Whole(t, 3, true)
	others := runtest.Dump(t, other.Store)
	for _, c := range []struct {
		name    string
		change  map[string]string // "" deletes
		key     string
		problem chain.Problem
	}{
		{"a step is cut out", map[string]string{l.Manifest(2): ""}, l.Manifest(2), chain.Missing},
		{"the end is cut off", map[string]string{l.Closing(): "", l.Manifest(3): ""}, l.Closing(), chain.Missing},
		{"the end is cut off with the summary", map[string]string{l.Closing(): "", l.Manifest(3): "", l.Manifest(2): "", l.Summary(): ""}, l.Manifest(2), chain.Missing},
		{"the beginning is cut off", map[string]string{l.Opening(): "", l.Manifest(1): ""}, l.Manifest(1), chain.Missing},
		{"all manifests are gone", map[string]string{l.Opening(): "", l.Manifest(1): "", l.Manifest(2): "", l.Manifest(3): "", l.Closing(): ""}, l.Closing(), chain.Missing},
		{"two steps are exchanged", map[string]string{l.Manifest(2): all[l.Manifest(3)], l.Manifest(3): all[l.Manifest(2)]}, l.Manifest(2), chain.Misplaced},
		{"a step of another run", map[string]string{l.Manifest(2): others[l.Manifest(2)]}, l.Manifest(2), chain.Damaged},
		{"the end of another run", map[string]string{l.Closing(): others[l.Closing()], l.Summary(): others[l.Summary()]}, l.Manifest(3), chain.Damaged},
		{"a manifest is empty", map[string]string{l.Manifest(1): " "}, l.Manifest(1), chain.Damaged},
		{"a newer format", map[string]string{l.Manifest(1): strings.Replace(all[l.Manifest(1)], `"format": 1`, `"format": 2`, 1)}, l.Manifest(1), chain.Damaged},
		{"a batch is deleted", map[string]string{l.Batch(1): ""}, l.Batch(1), chain.Missing},
		{"a policy is another", map[string]string{l.Policy(1) + "/model.safetensors": others[l.Policy(1)+"/model.safetensors"]}, l.Policy(1) + "/model.safetensors", chain.Damaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.Store = runtest.Fill(t, all)
			for key, data := range c.change {
				if data != "" {
					runtest.Put(t, h.Store, key, data)
				} else if err := h.Store.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			got := verify(t, h.Store, chain.Options{All: true, CanRemake: func(key string) bool { return key == l.Batch(1) }})
			f := find(got.Damage, c.key)
			if f.Problem != c.problem || f.Text == "" || strings.Contains(f.String(), "\n") {
				t.Errorf("%q at %s, want %q; found %v", f.Problem, c.key, c.problem, got.Damage)
			}
			if f.CanRemake != (c.key == l.Batch(1)) {
				t.Errorf("%s can be made again: %v", c.key, f.CanRemake)
			}
		})
	}
}

// TestForgedManifest: who changes a step and its digest is found by the step after it,
// and who has noted the head finds out that all were made anew.
func TestForgedManifest(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, true)
	honest := verify(t, h.Store, chain.Options{})
	for _, head := range []string{honest.Head.Link, honest.Head.Seal[:8]} {
		if got := verify(t, h.Store, chain.Options{Head: head}); len(got.Damage) > 0 {
			t.Errorf("with its own head: %v", got.Damage)
		}
	}
	other := runtest.New(t, map[string]string{"seed": "6"})
	other.Whole(t, 3, true)
	if got := verify(t, other.Store, chain.Options{Head: honest.Head.Link}); find(got.Damage, h.Layout.Dir()).Problem != chain.Broken {
		t.Errorf("another run passes: %v", got.Damage)
	}
	var m chain.Manifest
	if err := blob.ReadJSON(t.Context(), h.Store, h.Layout.Manifest(2), &m); err != nil {
		t.Fatal(err)
	}
	m.MadeBy = []chain.Maker{{Role: "trainer", CPU: "another"}}
	m.Digest = chain.NoDigest
	var err error
	if m.Digest, err = chain.Digest(m); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.PutJSON(t.Context(), h.Store, h.Layout.Manifest(2), m, blob.Always); err != nil {
		t.Fatal(err)
	}
	got := verify(t, h.Store, chain.Options{})
	if len(got.Damage) != 1 || got.Damage[0].Key != h.Layout.Manifest(2) || got.Damage[0].Problem != chain.Damaged {
		t.Errorf("found %v, want the manifest of step 2 alone", got.Damage)
	}
}

// TestRunThatGoesOn is good up to its newest manifest. What is younger is no damage.
func TestRunThatGoesOn(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, false)
	young := []string{h.Layout.Event(5000, "pause", "x"), h.Layout.Group(4, "p")}
	for _, key := range young {
		runtest.Put(t, h.Store, key, "{}")
	}
	runtest.Put(t, h.Store, h.Layout.StepLog(4), "{}") // its manifest is being written
	got := verify(t, h.Store, chain.Options{All: true})
	if got.Ended || got.Last != 3 || len(got.Damage) > 0 {
		t.Errorf("got %+v", got)
	}
	for _, key := range young {
		if find(got.Remarks, key).Problem != chain.Later {
			t.Errorf("%s is not said to be younger: %v", key, got.Remarks)
		}
	}
}

// TestRetentionIsNoLoss: what the run itself deleted is counted as such, and the chain
// holds. The same deletion by somebody else is a loss.
func TestRetentionIsNoLoss(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep_policies": "2", "checkpoint.keep_trajectories": "1"})
	h.Whole(t, 6, true)
	got := verify(t, h.Store, chain.Options{All: true})
	if got.Deleted == 0 || len(got.Damage) > 0 {
		t.Errorf("%d deleted, damage %v", got.Deleted, got.Damage)
	}
	infos, err := h.Store.List(t.Context(), h.Layout.Groups(6)+"/")
	if err != nil || len(infos) == 0 {
		t.Fatalf("no trajectories of the last step (%v)", err)
	}
	for _, key := range []string{infos[0].Key, h.Layout.PolicyRef(6), h.Layout.Policy(6) + "/policy.json"} {
		if err := h.Store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if f := find(verify(t, h.Store, chain.Options{All: true}).Damage, key); f.Problem != chain.Missing {
			t.Errorf("%s: %q, want missing", key, f.Problem)
		}
	}
	notes, err := h.Store.List(t.Context(), h.Layout.RetiredNotes()+"/")
	if err != nil || len(notes) == 0 {
		t.Fatalf("no notes (%v)", err)
	}
	before := len(verify(t, h.Store, chain.Options{All: true}).Damage)
	for _, note := range notes {
		if err := h.Store.Delete(t.Context(), note.Key); err != nil {
			t.Fatal(err)
		}
	}
	after := verify(t, h.Store, chain.Options{All: true})
	if len(after.Damage) < before+got.Deleted || find(after.Damage, notes[0].Key).Problem != chain.Missing {
		t.Errorf("without its notes %d are lost, want %d more than %d", len(after.Damage), got.Deleted, before)
	}
}

// TestStepsWithoutManifests are damage, but for the newest of a run that goes on.
func TestStepsWithoutManifests(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 3, false)
	if err := h.Store.Delete(t.Context(), h.Layout.Manifest(3)); err != nil {
		t.Fatal(err)
	}
	if got := verify(t, h.Store, chain.Options{}); got.Last != 2 || len(got.Damage) > 0 {
		t.Errorf("without the newest manifest: %+v", got)
	}
	if err := h.Store.Delete(t.Context(), h.Layout.Manifest(1)); err != nil {
		t.Fatal(err)
	}
	got := verify(t, h.Store, chain.Options{})
	if find(got.Damage, h.Layout.Manifest(1)).Problem != chain.Missing {
		t.Errorf("without the first manifest: %+v", got)
	}
}

// TestLinkIsOfTheConfigurationAlone: two runs at other times and with a break have
// equal links and other seals; with another seed the links differ from the first on.
func TestLinkIsOfTheConfigurationAlone(t *testing.T) {
	links := func(set map[string]string, broken bool) []string {
		h := runtest.New(t, set)
		if broken {
			h.Whole(t, 2, false)
			runtest.Put(t, h.Store, h.Layout.Event(77, "pause", "a break"), "{}")
			h.Continue(t, 3, 6)
		} else {
			h.Whole(t, 6, true)
		}
		chain, err := chain.Load(t.Context(), h.Store, "demo")
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range chain.Entries {
			out = append(out, e.Manifest.Link)
		}
		return out
	}
	want := links(nil, false)
	if got := links(nil, true); !slices.Equal(got, want) {
		t.Errorf("links %q, want %q", got, want)
	}
	got := links(map[string]string{"seed": "6"}, false)
	for i := range want {
		if got[i] == want[i] {
			t.Errorf("manifest %d of another seed has the same link", i)
		}
	}
}
