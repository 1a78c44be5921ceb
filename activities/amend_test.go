package activities_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/run"
	"temper/trainer/checkpoint"
)

// amend changes the run from a step on; later activities get the new Ref.
func (h *house) amend(t testing.TB, a config.Amendment) (run.Amended, error) {
	t.Helper()
	out, err := h.control.AmendRun(t.Context(), activities.AmendRunInput{Run: h.run, Amendment: a})
	if err == nil {
		h.run.Config = out.Config
	}
	return out, err
}

// TestDeathAfterAnAmendmentChangesNothing: steps before it are made again as the
// configuration was then, also where the learner must be another one.
func TestDeathAfterAnAmendmentChangesNothing(t *testing.T) {
	h := newHouse(t, map[string]string{"checkpoint.every_steps": "9"})
	steps := []int{1, 2, 4, 5}
	h.withBatches(t, steps...)
	script := h.script(t, 1, 2)
	if _, err := h.amend(t, config.Amendment{FromStep: 4, Set: map[string]string{"rl.optimizer.lr": "1e-5", "rl.loss.clip_high": "0.3"}}); err != nil {
		t.Fatal(err)
	}
	script = append(script, h.script(t, 4, 5)[3:]...)
	content := dump(t, h.store)
	undisturbed := fate{}
	if m := play(t, h.store, &undisturbed, false, script); len(m.learners) != 2 {
		t.Errorf("%d learners, want another one for other graphs", len(m.learners))
	}
	want := durable(t, h.store)
	for at := 1; at <= undisturbed.count; at++ {
		if !writes(undisturbed.names[at-1]) {
			continue
		}
		f := fate{at: at}
		store := fill(t, content)
		play(t, store, &f, true, script)
		if got := durable(t, store); !maps.Equal(got, want) {
			t.Fatalf("death %s: got -, want +\n%s", f.names[at-1], cmp.Diff(got, want))
		}
	}
}

// TestAmendmentIsWritten beside the first configuration, and found by its run.
func TestAmendmentIsWritten(t *testing.T) {
	h := newHouse(t, nil)
	first := h.run.Config
	out, err := h.amend(t, config.Amendment{FromStep: 2, Set: map[string]string{"stages[0].until.steps": "6"}, Reason: "slow", By: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := (&activities.Control{Store: h.store}).AmendRun(t.Context(), activities.AmendRunInput{
		Run: run.Ref{RunID: "demo", Config: first}, Amendment: config.Amendment{FromStep: 2, Set: map[string]string{"stages[0].until.steps": "6"}, Reason: "slow", By: "ann"},
	}); err != nil || again.Config != out.Config {
		t.Errorf("a retry gives %+v (%v), want %+v", again.Config, err, out.Config)
	}
	if _, err := h.amend(t, config.Amendment{FromStep: 3, Repeat: "first"}); err != nil {
		t.Fatal(err)
	}
	plan, ok, err := run.StoredPlan(t.Context(), h.store, "demo")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	want := []run.Stage{
		{Index: 1, Name: "first", FirstStep: 1, Steps: 6},
		{Index: 2, Name: "second", FirstStep: 7, Steps: 2, Filter: true},
		{Index: 3, Name: "first.2", FirstStep: 9, Steps: 6, Of: 1},
	}
	if diff := cmp.Diff(want, plan.Stages); diff != "" || plan.Config == first {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if _, err := blob.ReadRef(t.Context(), h.store, first); err != nil {
		t.Errorf("the first configuration is gone: %v", err)
	}
}

func TestAmendmentsThatCannotBe(t *testing.T) {
	for name, tt := range map[string]struct {
		a    config.Amendment
		want []string
	}{
		"unsafe and unknown": {config.Amendment{FromStep: 2, Set: map[string]string{"seed": "9", "rl.lr": "1"}}, []string{"seed: cannot be changed", "temper run fork", "rl.lr: unknown key"}},
		"behind the end":     {config.Amendment{FromStep: 99, Set: map[string]string{"rl.optimizer.lr": "1e-5"}}, []string{"from_step: is 99, but the run has 6 steps"}},
		"stage that is over": {config.Amendment{FromStep: 6, Set: map[string]string{"stages[0].until.steps": "9"}}, []string{"stages[0].until.steps: is of stage first, which is over", "repeat_stage"}},
		"stage cut short":    {config.Amendment{FromStep: 4, Set: map[string]string{"stages[0].until.steps": "2"}}, []string{"stages[0].until.steps: is 2, which ends stage first before step 4", "skip_stage"}},
		"no room":            {config.Amendment{FromStep: 2, Set: map[string]string{"stages[0].max_response_tokens": "399"}}, []string{"stages[0].max_response_tokens", "model.max_context"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, nil)
			before := dump(t, h.store)
			_, err := h.amend(t, tt.a)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nwants %q", err, want)
				}
			}
			if after := dump(t, h.store); !maps.Equal(before, after) {
				t.Error("a refused amendment wrote something")
			}
		})
	}
}

// TestCheckpointOnOrder: asking twice makes one.
func TestCheckpointOnOrder(t *testing.T) {
	h := newHouse(t, map[string]string{"checkpoint.keep": "9"})
	h.withBatches(t, 1)
	f := fate{}
	m := play(t, h.store, &f, false, h.script(t, 1))
	for range 2 {
		if err := m.SaveCheckpoint(t.Context(), activities.SaveCheckpointInput{Run: h.run, Step: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if steps := h.checkpoints(t); !cmp.Equal(steps, []int{2, 4, 5}) {
		t.Errorf("checkpoints of cursors %v, want 2, 4 and 5", steps)
	}
}

// TestForkRepeatsItsParent: without a change, the fork's policies have the bits
// of the parent's, though its checkpoints begin where it does.
func TestForkRepeatsItsParent(t *testing.T) {
	for name, set := range map[string]map[string]string{"recipe": nil, "with a reference policy": {"rl.loss.kl.coefficient": "0.1"}} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{"checkpoint.keep": "9"}
			maps.Copy(all, set)
			h := newHouse(t, all)
			h.withBatches(t, 1, 2, 4, 5)
			play(t, h.store, &fate{}, false, h.script(t, 1, 2))
			if _, err := h.amend(t, config.Amendment{FromStep: 5, Set: map[string]string{"rl.optimizer.lr": "1e-5"}}); err != nil {
				t.Fatal(err)
			}
			play(t, h.store, &fate{}, false, h.script(t, 4, 5)[3:])

			child := h.fork(t, "again", run.ForkFrom{RunID: "demo", Step: 2}, nil)
			child.withBatches(t, 4, 5)
			script := child.script(t, 4, 5)[3:]
			m := boot(h.store, &fate{})
			p, err := m.PublishPolicy(t.Context(), activities.PublishInput{Run: child.run, Step: 2})
			if err != nil || p.Version != 2 {
				t.Fatalf("policy %d: %v", p.Version, err)
			}
			for _, activity := range script {
				if err := activity(m); err != nil {
					t.Fatal(err)
				}
			}
			for _, version := range []int64{2, 4, 5} {
				mine, theirs := child.weights(t, version), h.weights(t, version)
				if mine != theirs {
					t.Errorf("policy %d differs from the parent's", version)
				}
			}
		})
	}
}

func (h *house) weights(t testing.TB, version int64) string {
	t.Helper()
	data, err := blob.ReadKey(t.Context(), h.store, h.layout.Policy(version)+"/model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// fork opens and prepares a fork of the run.
func (h *house) fork(t testing.TB, runID string, from run.ForkFrom, set map[string]string) *house {
	t.Helper()
	child := &house{store: h.store, layout: artifact.Layout{RunID: runID}, control: h.control, cfg: h.cfg}
	var err error
	if child.plan, err = openRun(t, h.control, run.Input{RunID: runID, Fork: &from, Set: set}); err != nil {
		t.Fatal(err)
	}
	child.run = run.Ref{RunID: runID, Config: child.plan.Config}
	if _, err := h.control.PrepareData(t.Context(), activities.PrepareDataInput{Run: child.run}); err != nil {
		t.Fatal(err)
	}
	return child
}

// TestForkWithoutAmendments takes the configuration that the run was opened with, also
// for steps that were made under an amendment; an inherited one is named unless it
// is set anew.
func TestForkWithoutAmendments(t *testing.T) {
	h := newHouse(t, map[string]string{"checkpoint.keep": "9"})
	h.withBatches(t, 1, 2)
	for _, a := range []config.Amendment{
		{FromStep: 1, Set: map[string]string{"rl.optimizer.lr": "0.1"}, Reason: "faster", By: "ann"},
		{FromStep: 4, Set: map[string]string{"rl.optimizer.max_grad_norm": "3"}},
	} {
		if _, err := h.amend(t, a); err != nil {
			t.Fatal(err)
		}
	}
	play(t, h.store, &fate{}, false, h.script(t, 1, 2))
	from := run.ForkFrom{RunID: "demo", Step: 2}
	lr := func(t *testing.T, in run.Input) (now, later float64, inherited []string) {
		t.Helper()
		in.RunID = "child"
		out, err := h.control.CheckFork(t.Context(), activities.CheckForkInput{Input: in})
		if err != nil {
			t.Fatal(err)
		}
		found, err := run.ResolveFork(t.Context(), h.store, in)
		if err != nil {
			t.Fatal(err)
		}
		return found.Config.At(3).RL.Optimizer.LR, found.Config.At(4).RL.Optimizer.MaxGradNorm, out.Inherited
	}
	clip := h.cfg.RL.Optimizer.MaxGradNorm
	for name, tt := range map[string]struct {
		in        run.Input
		lr, clip  float64
		inherited []string
	}{
		"inherited": {run.Input{Fork: &from}, 0.1, 3, []string{
			"from step 1: rl.optimizer.lr=0.1: faster (by ann)", "from step 4: rl.optimizer.max_grad_norm=3"}},
		"set anew": {run.Input{Fork: &from, Set: run.Settings{"rl.optimizer.lr": "0.01"}}, 0.01, 3, []string{"from step 4: rl.optimizer.max_grad_norm=3"}},
		"without":  {run.Input{Fork: &run.ForkFrom{RunID: "demo", Step: 2, WithoutAmendments: true}}, h.cfg.RL.Optimizer.LR, clip, nil},
	} {
		gotLR, gotClip, inherited := lr(t, tt.in)
		if gotLR != tt.lr || gotClip != tt.clip || !cmp.Equal(inherited, tt.inherited) {
			t.Errorf("%s: lr %g, clip %g, inherits %q; want %g, %g, %q", name, gotLR, gotClip, inherited, tt.lr, tt.clip, tt.inherited)
		}
	}
	child := h.fork(t, "clean", run.ForkFrom{RunID: "demo", Step: 2, WithoutAmendments: true}, nil)
	cfg, err := run.ReadConfig(t.Context(), h.store, child.run)
	if err != nil || len(cfg.Amendments) > 0 || cfg.RL.Optimizer.LR != h.cfg.RL.Optimizer.LR {
		t.Errorf("the opened fork has lr %g and amendments %v (%v)", cfg.RL.Optimizer.LR, cfg.Amendments, err)
	}
}

// TestAmendmentThatIsProbablyAMistake is made, with a warning.
func TestAmendmentThatIsProbablyAMistake(t *testing.T) {
	h := newHouse(t, nil)
	out, err := h.amend(t, config.Amendment{FromStep: 2, Set: map[string]string{"rl.optimizer.lr": "0.9"}})
	if err != nil || len(out.Warnings) != 1 || !strings.Contains(out.Warnings[0], "rl.optimizer.lr: moves from") {
		t.Errorf("warnings %q (%v), want one of the learning rate", out.Warnings, err)
	}
	if out, err = h.amend(t, config.Amendment{FromStep: 3, Set: map[string]string{"rl.optimizer.lr": "0.5"}}); err != nil || len(out.Warnings) > 0 {
		t.Errorf("warnings %q (%v) of a change from 0.9 to 0.5, want none", out.Warnings, err)
	}
}

// TestForkTakesTheDataOver: the ledger deals the same problems, and a stage with
// other data gets its own.
func TestForkTakesTheDataOver(t *testing.T) {
	h := newHouse(t, map[string]string{"checkpoint.keep": "9"})
	h.withBatches(t, 1, 2)
	play(t, h.store, &fate{}, false, h.script(t, 1, 2))
	child := h.fork(t, "again", run.ForkFrom{RunID: "demo", From: run.FromLast}, map[string]string{"stages[1].data.levels": "[2]"})
	if f := child.plan.Fork; f == nil || f.Step != 2 || !cmp.Equal(f.Made, []int{2, 0}) {
		t.Fatalf("plan %+v, want a fork of step 2 after two steps of the first stage", f)
	}
	if got, want := child.selected(t, 1, 3), h.selected(t, 1, 3); !cmp.Equal(got, want) {
		t.Errorf("step 3 has %v, want the parent's %v", got, want)
	}
	a, b := child.problems(t, child.layout.TrainProblems(2)), h.problems(t, h.layout.TrainProblems(2))
	if cmp.Equal(a, b) {
		t.Error("the second stage has the parent's problems, want those of its own levels")
	}
}

func TestForksThatCannotBe(t *testing.T) {
	h := newHouse(t, map[string]string{"checkpoint.keep": "9"})
	prepare(t, h.store, "fresh", nil)
	h.withBatches(t, 1, 2)
	play(t, h.store, &fate{}, false, h.script(t, 1, 2))
	play(t, h.store, &fate{}, false, prepare(t, h.store, "young", nil).script(t))
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
			before := dump(t, h.store)
			tt.in.RunID = "child"
			_, err := openRun(t, h.control, tt.in)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nwants %q", err, want)
				}
			}
			if !maps.Equal(before, dump(t, h.store)) {
				t.Error("a refused fork wrote something")
			}
		})
	}
}

// TestForkDoesNotBeginAnew: without its checkpoint a fork fails, and says so.
func TestForkDoesNotBeginAnew(t *testing.T) {
	h := newHouse(t, map[string]string{"checkpoint.keep": "9"})
	h.withBatches(t, 1, 2)
	play(t, h.store, &fate{}, false, h.script(t, 1, 2))
	child := h.fork(t, "again", run.ForkFrom{RunID: "demo", Step: 2}, nil)
	for key := range dump(t, h.store) {
		if strings.HasPrefix(key, child.layout.Checkpoints()) {
			if err := h.store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := boot(h.store, &fate{}).PublishPolicy(t.Context(), activities.PublishInput{Run: child.run, Step: 2})
	if err == nil || !strings.Contains(err.Error(), "no readable checkpoint is left of this fork of run demo, step 2") {
		t.Errorf("error %v", err)
	}
}

// TestRestartHoldsItsCheckpoint: the checkpoint that a restart has chosen stays
// while the run goes on to its end, and is let go when the other run has its own.
// A pin that somebody has put there is left alone.
func TestRestartHoldsItsCheckpoint(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		h := newHouse(t, map[string]string{"checkpoint.keep": "1", "checkpoint.every_steps": "1"})
		h.withBatches(t, 1, 2, 4, 5)
		play(t, h.store, &fate{}, false, h.script(t, 1, 2))
		if pinned {
			if err := checkpoint.Pin(t.Context(), h.store, h.layout.Checkpoints(), 6, "mine"); err != nil {
				t.Fatal(err)
			}
		}
		in := run.Input{RunID: "again", Fork: &run.ForkFrom{RunID: "demo", Step: 2}}
		for range 2 {
			if out, err := h.control.CheckFork(t.Context(), activities.CheckForkInput{Input: in, Hold: true}); err != nil || out.Step != 2 {
				t.Fatal(out, err)
			}
		}
		play(t, h.store, &fate{}, false, h.script(t, 4, 5)[3:])
		if steps := h.checkpoints(t); !slices.Contains(steps, 6) {
			t.Fatalf("checkpoints of cursors %v, want 6 to be held", steps)
		}
		child := h.fork(t, "again", *in.Fork, nil)
		if steps := child.checkpoints(t); !slices.Contains(steps, 6) {
			t.Errorf("the other run has the checkpoints of cursors %v, want 6", steps)
		}
		pins, err := checkpoint.Pins(t.Context(), h.store, h.layout.Checkpoints())
		if _, still := pins[6]; err != nil || still != pinned {
			t.Errorf("pins %v (%v) after the other run began, pinned by hand: %v", pins, err, pinned)
		}
	}
}

// TestForkInheritsSkips: orders to end stages are read from the parent's log and,
// for a fork of a fork, from its plan; a configuration of its own has none.
func TestForkInheritsSkips(t *testing.T) {
	h := newHouse(t, map[string]string{"checkpoint.keep": "9"})
	h.withBatches(t, 1, 2)
	play(t, h.store, &fate{}, false, h.script(t, 1, 2))
	want := []run.Skip{{Stage: 1, After: 3, Why: "solved"}, {Stage: 2, Why: "not needed"}}
	for i, skip := range want {
		e := run.Event{Run: h.run, Time: time.Unix(int64(i), 0), Kind: run.EventSkip, Text: skip.Why, Skip: &skip}
		if err := h.control.LogEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	from := run.ForkFrom{RunID: "demo", Step: 2}
	child := h.fork(t, "again", from, nil)
	grandchild := child.fork(t, "third", run.ForkFrom{RunID: "again", Step: 2}, nil)
	for _, r := range []*house{child, grandchild} {
		if diff := cmp.Diff(want, r.plan.Fork.Skips); diff != "" {
			t.Errorf("skips of run %s (-want +got):\n%s", r.plan.RunID, diff)
		}
	}
	cfg, err := blob.ReadRef(t.Context(), h.store, h.run.Config)
	if err != nil {
		t.Fatal(err)
	}
	own, err := openRun(t, h.control, run.Input{RunID: "own", Fork: &from, Config: asString(t, string(cfg))})
	if err != nil || len(own.Fork.Skips) != 0 {
		t.Errorf("skips %v (%v) under a configuration of its own, want none", own.Fork.Skips, err)
	}
}

// checkpoints lists the cursors that have one.
func (h *house) checkpoints(t testing.TB) []int {
	t.Helper()
	saved, err := checkpoint.List(t.Context(), h.store, h.layout.Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, e := range saved {
		out = append(out, e.Step)
	}
	return out
}
