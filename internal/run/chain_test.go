package run_test

import (
	"errors"
	"testing"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/internal/run/runtest"
)

// TestDeathAmongManifestsHeals: a control worker that dies before or after any write of
// a step's record, of the closing or of the summary is followed by one that repeats the
// call. The chain is whole and has the same links.
func TestDeathAmongManifestsHeals(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, false)
	before := runtest.Dump(t, h.Store)
	for _, key := range []string{h.Layout.Chain().Opening(), h.Layout.Step(1).Manifest(), h.Layout.Step(1).Log(), h.Layout.Step(1).Watch()} {
		delete(before, key)
	}
	in := stepNumbers(h, 1)
	in.Train.Policy = run.Policy{Version: 1, Ref: blob.RefOf(h.Layout.Policy(1).Dir()+"/policy.json", []byte(before[h.Layout.Policy(1).Dir()+"/policy.json"]))}
	end := run.FinishInput{Run: h.Ref, Started: begin(), Ended: begin(), Policy: in.Train.Policy}
	calls := func(store blob.Store, c *run.Chain) error {
		if _, err := run.LogStep(t.Context(), store, h.Config, in); err != nil {
			return err
		}
		if err := c.AddStep(t.Context(), store, in); err != nil {
			return err
		}
		_, err := run.Finish(t.Context(), store, end, c, 0)
		return err
	}
	var want string
	for at, done := 0, false; !done; at++ {
		h.Store = runtest.Fill(t, before)
		fate := &runtest.Fate{At: at}
		err := calls(runtest.Mortal{Store: h.Store, Fate: fate}, &run.Chain{})
		done = at > 0 && !fate.Dead
		if fate.Dead != errors.Is(err, runtest.ErrDied) || !fate.Dead && err != nil {
			t.Fatalf("death at %d of %v: %v", at, fate.Names, err)
		}
		if err := calls(h.Store, &run.Chain{}); err != nil {
			t.Fatalf("after the death at %d of %v: %v", at, fate.Names, err)
		}
		got, err := chain.Verify(t.Context(), h.Store, "demo", chain.Options{All: true})
		if err != nil || len(got.Damage) > 0 || !got.Ended || got.Manifests != 3 {
			t.Fatalf("after the death at %d of %v (%v): %+v", at, fate.Names, err, got)
		}
		if want == "" {
			want = got.Head.Link
		}
		if got.Head.Link != want {
			t.Errorf("after the death at %d of %v the link is %s, want %s", at, fate.Names, got.Head.Link, want)
		}
	}
}

// TestAmendmentCountsFromItsStep: it changes the links from its step on, whenever it was
// ordered and by whom.
func TestAmendmentCountsFromItsStep(t *testing.T) {
	links := func(orders ...config.Amendment) []string {
		h := runtest.New(t, nil)
		h.Whole(t, 3, false)
		before := runtest.Dump(t, h.Store)
		h.Store = runtest.Fill(t, before)
		var writer run.Chain
		for _, o := range orders {
			if _, err := h.Amend(t, o); err != nil {
				t.Fatal(err)
			}
		}
		for n := 1; n <= 3; n++ {
			if err := h.Store.Delete(t.Context(), h.Layout.Step(n).Manifest()); err != nil {
				t.Fatal(err)
			}
			if err := writer.AddStep(t.Context(), h.Store, stepNumbers(h, n)); err != nil {
				t.Fatal(err)
			}
		}
		c, err := chain.Load(t.Context(), h.Store, "demo")
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, e := range c.Entries {
			out = append(out, e.Manifest.Link)
		}
		return out
	}
	rate := config.Amendment{FromStep: 2, Set: map[string]string{"rl.optimizer.lr": "0.1"}, By: "ann"}
	byBob := rate
	byBob.By = "bob"
	plain, amended, other := links(), links(rate), links(byBob)
	if plain[1] != amended[1] || plain[2] == amended[2] || plain[3] == amended[3] {
		t.Errorf("links %q with the amendment, %q without: want them to differ from step 2 on", amended, plain)
	}
	for i := range amended {
		if amended[i] != other[i] {
			t.Errorf("the link of manifest %d depends on who gave the order", i)
		}
	}
}
