package setup_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/run/setup"
	"temper/trainer/checkpoint"
)

// TestForkRepeatsItsParent: without a change, the fork's policies have the bits
// of the parent's, though its checkpoints begin where it does.
func TestForkRepeatsItsParent(t *testing.T) {
	for name, set := range map[string]map[string]string{"recipe": nil, "with a reference policy": {"rl.loss.kl.coefficient": "0.1"}} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{"checkpoint.keep": "9"}
			maps.Copy(all, set)
			h := runtest.New(t, all)
			h.StoreBatches(t, 1, 2, 4, 5)
			runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
			if _, err := h.Amend(t, config.Amendment{FromStep: 5, Set: map[string]string{"rl.optimizer.lr": "1e-5"}}); err != nil {
				t.Fatal(err)
			}
			runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 4, 5)[3:])

			child := h.Fork(t, "again", run.ForkFrom{RunID: "demo", Step: 2}, nil)
			child.StoreBatches(t, 4, 5)
			script := child.Script(t, 4, 5)[3:]
			m := runtest.Boot(h.Store, &runtest.Fate{})
			p, err := m.Publish(t.Context(), learner.PublishInput{Run: child.Ref, Step: 2})
			if err != nil || p.Version != 2 {
				t.Fatalf("policy %d: %v", p.Version, err)
			}
			for _, activity := range script {
				if err := activity(m); err != nil {
					t.Fatal(err)
				}
			}
			for _, version := range []int64{2, 4, 5} {
				mine, theirs := weightsOf(t, child, version), weightsOf(t, h, version)
				if mine != theirs {
					t.Errorf("policy %d differs from the parent's", version)
				}
			}
		})
	}
}

func weightsOf(t testing.TB, h *runtest.Run, version int64) string {
	t.Helper()
	data, err := blob.ReadKey(t.Context(), h.Store, h.Layout.Policy(version).Dir()+"/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestForkWithoutAmendments takes the configuration that the run was opened with, also
// for steps that were made under an amendment; an inherited one is named unless it
// is set anew.
func TestForkWithoutAmendments(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep": "9"})
	h.StoreBatches(t, 1, 2)
	for _, a := range []config.Amendment{
		{FromStep: 1, Set: map[string]string{"rl.optimizer.lr": "0.1"}, Reason: "faster", By: "ann"},
		{FromStep: 4, Set: map[string]string{"rl.optimizer.max_grad_norm": "3"}},
	} {
		if _, err := h.Amend(t, a); err != nil {
			t.Fatal(err)
		}
	}
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	from := run.ForkFrom{RunID: "demo", Step: 2}
	lr := func(t *testing.T, in run.Input) (now, later float64, inherited []string) {
		t.Helper()
		in.RunID = "child"
		found, err := setup.CheckFork(t.Context(), h.Store, in, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range found.Inherited {
			inherited = append(inherited, a.Order())
		}
		return found.Config.At(3).RL.Optimizer.LR, found.Config.At(4).RL.Optimizer.MaxGradNorm, inherited
	}
	clip := h.Config.RL.Optimizer.MaxGradNorm
	for name, tt := range map[string]struct {
		in        run.Input
		lr, clip  float64
		inherited []string
	}{
		"inherited": {run.Input{Fork: &from}, 0.1, 3, []string{
			"from step 1: rl.optimizer.lr=0.1: faster (by ann)", "from step 4: rl.optimizer.max_grad_norm=3"}},
		"set anew": {run.Input{Fork: &from, Set: run.Settings{"rl.optimizer.lr": "0.01"}}, 0.01, 3, []string{"from step 4: rl.optimizer.max_grad_norm=3"}},
		"without":  {run.Input{Fork: &run.ForkFrom{RunID: "demo", Step: 2, WithoutAmendments: true}}, h.Config.RL.Optimizer.LR, clip, nil},
	} {
		gotLR, gotClip, inherited := lr(t, tt.in)
		if gotLR != tt.lr || gotClip != tt.clip || !cmp.Equal(inherited, tt.inherited) {
			t.Errorf("%s: lr %g, clip %g, inherits %q; want %g, %g, %q", name, gotLR, gotClip, inherited, tt.lr, tt.clip, tt.inherited)
		}
	}
	child := h.Fork(t, "clean", run.ForkFrom{RunID: "demo", Step: 2, WithoutAmendments: true}, nil)
	cfg, err := run.ReadConfig(t.Context(), h.Store, child.Ref)
	if err != nil || len(cfg.Amendments) > 0 || cfg.RL.Optimizer.LR != h.Config.RL.Optimizer.LR {
		t.Errorf("the opened fork has lr %g and amendments %v (%v)", cfg.RL.Optimizer.LR, cfg.Amendments, err)
	}
}

// TestForkTakesTheDataOver: the ledger deals the same problems, and a stage with
// other data gets its own.
func TestForkTakesTheDataOver(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep": "9"})
	h.StoreBatches(t, 1, 2)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	child := h.Fork(t, "again", run.ForkFrom{RunID: "demo", From: run.FromLast}, map[string]string{"stages[1].data.levels": "[2]"})
	if f := child.Plan.Fork; f == nil || f.Step != 2 || !cmp.Equal(f.Made, []int{2, 0}) {
		t.Fatalf("plan %+v, want a fork of step 2 after two steps of the first stage", f)
	}
	if got, want := child.Selected(t, 1, 3), h.Selected(t, 1, 3); !cmp.Equal(got, want) {
		t.Errorf("step 3 has %v, want the parent's %v", got, want)
	}
	a, b := child.Problems(t, child.Layout.Stage(2).Train()), h.Problems(t, h.Layout.Stage(2).Train())
	if cmp.Equal(a, b) {
		t.Error("the second stage has the parent's problems, want those of its own levels")
	}
}

func TestForksThatCannotBe(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep": "9"})
	runtest.Prepare(t, h.Store, "fresh", nil)
	h.StoreBatches(t, 1, 2)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	runtest.Play(t, h.Store, &runtest.Fate{}, false, runtest.Prepare(t, h.Store, "young", nil).Script(t))
	for name, tt := range map[string]struct {
		in   run.Input
		want []string
	}{
		"missing step":      {run.Input{Fork: &run.ForkFrom{RunID: "demo", Step: 1}}, []string{"no checkpoint of step 1: name one of 0, 2"}},
		"nobody":            {run.Input{Fork: &run.ForkFrom{RunID: "nobody"}}, []string{`no run "nobody"`}},
		"no checkpoint":     {run.Input{Fork: &run.ForkFrom{RunID: "fresh", From: run.FromLast}}, []string{"run fresh has no checkpoint after SFT yet"}},
		"nothing is best":   {run.Input{Fork: &run.ForkFrom{RunID: "young", From: run.FromBest}}, []string{"none is known to be best", "last"}},
		"odd choice":        {run.Input{Fork: &run.ForkFrom{RunID: "demo", From: "first"}}, []string{`from is "first"`}},
		"other model":       {run.Input{Fork: &run.ForkFrom{RunID: "demo"}, Set: run.Settings{"model.num_layers": "2"}}, []string{"model: differs", "shape"}},
		"other tokenizer":   {run.Input{Fork: &run.ForkFrom{RunID: "demo"}, Set: run.Settings{"tokenizer.num_merges": "2"}}, []string{"tokenizer: differs"}},
		"unknown key":       {run.Input{Fork: &run.ForkFrom{RunID: "demo"}, Set: run.Settings{"rl.lr": "2"}}, []string{"rl.lr: unknown key"}},
		"stage that is cut": {run.Input{Fork: &run.ForkFrom{RunID: "demo", Step: 2}, Set: run.Settings{"stages[0].name": "else"}}, []string{"stages[0]: differs"}},
		"nothing left":      {run.Input{Fork: &run.ForkFrom{RunID: "demo", Step: 2}, Set: run.Settings{"stages[0].until.steps": "1", "stages[1].until.steps": "1"}}, []string{"nothing is left to do"}},
		"odd priority":      {run.Input{Priority: 6, Fork: &run.ForkFrom{RunID: "demo"}}, []string{"priority: is 6"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := runtest.Dump(t, h.Store)
			tt.in.RunID = "child"
			_, err := runtest.Open(t, h.Store, tt.in)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nwants %q", err, want)
				}
			}
			if !maps.Equal(before, runtest.Dump(t, h.Store)) {
				t.Error("a refused fork wrote something")
			}
		})
	}
}

// TestForkDoesNotBeginAnew: without its checkpoint a fork fails, and says so.
func TestForkDoesNotBeginAnew(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep": "9"})
	h.StoreBatches(t, 1, 2)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	child := h.Fork(t, "again", run.ForkFrom{RunID: "demo", Step: 2}, nil)
	for key := range runtest.Dump(t, h.Store) {
		if strings.HasPrefix(key, child.Layout.Checkpoints()) {
			if err := h.Store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := runtest.Boot(h.Store, &runtest.Fate{}).Publish(t.Context(), learner.PublishInput{Run: child.Ref, Step: 2})
	if err == nil || !strings.Contains(err.Error(), "no readable checkpoint is left of this fork of run demo, step 2") {
		t.Errorf("error %v", err)
	}
}

// TestRestartHoldsItsCheckpoint: the checkpoint that a restart has chosen stays
// while the run goes on to its end, and is let go when the other run has its own.
// A pin that somebody has put there is left alone.
func TestRestartHoldsItsCheckpoint(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		h := runtest.New(t, map[string]string{"checkpoint.keep": "1", "checkpoint.every_steps": "1"})
		h.StoreBatches(t, 1, 2, 4, 5)
		runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
		if pinned {
			if err := checkpoint.Pin(t.Context(), h.Store, h.Layout.Checkpoints(), 6, "mine"); err != nil {
				t.Fatal(err)
			}
		}
		in := run.Input{RunID: "again", Fork: &run.ForkFrom{RunID: "demo", Step: 2}}
		for range 2 {
			if found, err := setup.CheckFork(t.Context(), h.Store, in, true); err != nil || found.Step != 2 {
				t.Fatal(found, err)
			}
		}
		runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 4, 5)[3:])
		if steps := h.Checkpoints(t); !slices.Contains(steps, 6) {
			t.Fatalf("checkpoints of cursors %v, want 6 to be held", steps)
		}
		child := h.Fork(t, "again", *in.Fork, nil)
		if steps := child.Checkpoints(t); !slices.Contains(steps, 6) {
			t.Errorf("the other run has the checkpoints of cursors %v, want 6", steps)
		}
		pins, err := checkpoint.Pins(t.Context(), h.Store, h.Layout.Checkpoints())
		if _, still := pins[6]; err != nil || still != pinned {
			t.Errorf("pins %v (%v) after the other run began, pinned by hand: %v", pins, err, pinned)
		}
	}
}

// TestForkInheritsSkips: orders to end stages are read from the parent's log and,
// for a fork of a fork, from its plan; a configuration of its own has none.
func TestForkInheritsSkips(t *testing.T) {
	h := runtest.New(t, map[string]string{"checkpoint.keep": "9"})
	h.StoreBatches(t, 1, 2)
	runtest.Play(t, h.Store, &runtest.Fate{}, false, h.Script(t, 1, 2))
	want := []run.Skip{{Stage: 1, After: 3, Why: "solved"}, {Stage: 2, Why: "not needed"}}
	for i, skip := range want {
		e := run.Event{Run: h.Ref, Time: time.Unix(int64(i), 0), Kind: run.EventSkip, Text: skip.Why, Skip: &skip}
		if err := run.LogEvent(t.Context(), h.Store, e); err != nil {
			t.Fatal(err)
		}
	}
	from := run.ForkFrom{RunID: "demo", Step: 2}
	child := h.Fork(t, "again", from, nil)
	grandchild := child.Fork(t, "third", run.ForkFrom{RunID: "again", Step: 2}, nil)
	for _, r := range []*runtest.Run{child, grandchild} {
		if diff := cmp.Diff(want, r.Plan.Fork.Skips); diff != "" {
			t.Errorf("skips of run %s (-want +got):\n%s", r.Plan.RunID, diff)
		}
	}
	cfg, err := blob.ReadRef(t.Context(), h.Store, h.Ref.Config)
	if err != nil {
		t.Fatal(err)
	}
	own, err := runtest.Open(t, h.Store, run.Input{RunID: "own", Fork: &from, Config: runtest.Text(t, string(cfg))})
	if err != nil || len(own.Fork.Skips) != 0 {
		t.Errorf("skips %v (%v) under a configuration of its own, want none", own.Fork.Skips, err)
	}
}
