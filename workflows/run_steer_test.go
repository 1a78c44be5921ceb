package workflows_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.temporal.io/sdk/testsuite"

	"temper/internal/fault"
	"temper/internal/run"
	"temper/workflows"
)

// command is a command as a person sends it.
func command(t *testing.T, text string) json.RawMessage {
	t.Helper()
	if !json.Valid([]byte(text)) {
		t.Fatalf("no JSON: %s", text)
	}
	return json.RawMessage(text)
}

// TestPauseNowInterruptsTheStep: the step in flight is cancelled, and made again
// after resume; who, why and since when are told.
func TestPauseNowInterruptsTheStep(t *testing.T) {
	for _, target := range []string{runWorkflow, stageWorkflow} {
		t.Run(target, func(t *testing.T) {
			w := newWorld(2)
			w.stuck = map[string]bool{"sample 2": true}
			s := newScenario(t, w)
			s.when("SampleGroups", 2, func() {
				s.update(target, workflows.CommandPause, command(t, `{"now": true, "reason": "lunch", "by": "ann@host"}`))
				s.env.RegisterDelayedCallback(func() {
					if w.count("train 2") != 0 || w.count("sample 2") != 1 {
						t.Errorf("calls while paused: %v", w.log())
					}
					stage := decodeStatus(t)(s.env.QueryWorkflowByID(stageWorkflow, workflows.QueryStatus))
					if stage.State != workflows.StatePaused || stage.By != "ann@host" || stage.Reason != "lunch" || stage.Since == nil {
						t.Errorf("status %+v, want paused for lunch by ann@host since then", stage)
					}
					w.stuck = nil
					s.update(runWorkflow, workflows.CommandResume)
				}, days)
			})
			if got := s.run().Policy.Version; got != 2 {
				t.Errorf("policy %d, want 2", got)
			}
			if w.count("select 2/2") != 2 || w.count("sample 2") != 2 || w.count("train 2") != 1 {
				t.Errorf("calls %v, want step 2 begun twice and trained once", w.log())
			}
		})
	}
}

func TestPauseNowInterruptsSFTAndEvaluation(t *testing.T) {
	for name, call := range map[string]string{"TrainSFT": "sft 0-25", "EvaluatePolicy": "eval stage 1 before with 0"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.stuck = map[string]bool{call: true}
			s := newScenario(t, w)
			s.when(name, 1, func() {
				s.update(runWorkflow, workflows.CommandPause, command(t, `{"now": true}`))
				s.env.RegisterDelayedCallback(func() {
					if got := statusOf(t, s.env).State; got != workflows.StatePaused {
						t.Errorf("state %s, want paused", got)
					}
					w.stuck = nil
					s.update(runWorkflow, workflows.CommandResume)
				}, days)
			})
			s.run()
			if got := w.count(call); got != 2 {
				t.Errorf("%s: %d attempts, want 2", call, got)
			}
		})
	}
}

func TestStopNowLeavesTheStep(t *testing.T) {
	w := newWorld(3)
	w.stuck = map[string]bool{"sample 2": true}
	s := newScenario(t, w)
	s.when("SampleGroups", 2, func() { s.update(runWorkflow, workflows.CommandStop, command(t, `{"now": true}`)) })
	if got := s.run(); !got.Stopped || got.Policy.Version != 1 {
		t.Errorf("result %+v, want stopped with policy 1", got)
	}
	if w.count("train 2") != 0 || len(w.finish) != 1 {
		t.Errorf("calls %v", w.log())
	}
}

// TestStopAfterTheStepCanBeHurried: a second stop may interrupt.
func TestStopAfterTheStepCanBeHurried(t *testing.T) {
	w := newWorld(3)
	w.stuck = map[string]bool{"sample 1": true}
	s := newScenario(t, w)
	s.when("SampleGroups", 1, func() {
		s.update(runWorkflow, workflows.CommandStop)
		s.env.RegisterDelayedCallback(func() { s.update(runWorkflow, workflows.CommandStop, command(t, `{"now": true}`)) }, 50*time.Millisecond)
	})
	if got := s.run(); !got.Stopped || got.Policy.Version != 0 {
		t.Errorf("result %+v, want stopped with policy 0", got)
	}
}

func TestCheckpointOnOrder(t *testing.T) {
	for _, target := range []string{runWorkflow, stageWorkflow} {
		t.Run(target, func(t *testing.T) {
			w := newWorld(5)
			s := newScenario(t, w)
			var got *answer
			s.when("TrainStep", 1, func() {
				got = s.update(target, workflows.CommandCheckpoint, command(t, `{"reason": "before the risk"}`))
			})
			s.run()
			if w.count("save 1") != 1 || w.count("save") != 1 {
				t.Errorf("calls %v, want one checkpoint, after step 1", w.log())
			}
			if got.failed != nil || !strings.Contains(fmt.Sprint(got.text), "after the current step") {
				t.Errorf("answer %+v", got)
			}
		})
	}
}

// TestCheckpointWhilePaused: a run that stands still saves at once.
func TestCheckpointWhilePaused(t *testing.T) {
	w := newWorld(3)
	s := newScenario(t, w)
	s.when("TrainStep", 1, func() {
		s.update(runWorkflow, workflows.CommandPause)
		s.env.RegisterDelayedCallback(func() { s.update(runWorkflow, workflows.CommandCheckpoint) }, days)
		s.env.RegisterDelayedCallback(func() {
			if w.count("save 1") != 1 || w.count("select 2") != 0 {
				t.Errorf("calls while paused %v, want a checkpoint of step 1", w.log())
			}
			s.update(runWorkflow, workflows.CommandResume)
		}, 2*days)
	})
	s.run()
}

func TestSkipOfTheCurrentAndOfALaterStage(t *testing.T) {
	w := newWorld(3, 2, 1)
	s := newScenario(t, w)
	s.when("TrainStep", 1, func() {
		s.update(runWorkflow, workflows.CommandSkipStage, command(t, `{"reason": "solved"}`))
		s.update(runWorkflow, workflows.CommandSkipStage, command(t, `{"stage": "hop2", "reason": "not needed", "by": "ann"}`))
	})
	if got := s.run(); got.Stopped || got.Policy.Version != 6 {
		t.Errorf("result %+v, want policy 6 of the third stage", got)
	}
	want := []string{
		"stage: stage 1 (hop1) begins: 3 steps", "skip: stage hop2 will be skipped: not needed (by ann)",
		"skip: stage hop1: skipped before step 2: solved", "skip: stage 1 (hop1) ends before step 2 in forks of this run, too",
		"skip: stage 2 (hop2): skipped: not needed (by ann)", "stage: stage 3 (hop3) begins: 1 steps",
	}
	slices.Sort(want) // two commands are carried out side by side
	slices.Sort(w.events)
	if diff := cmp.Diff(want, w.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	skips := []run.Skip{
		{Stage: 1, After: 1, Why: "skipped before step 2: solved"}, {Stage: 2, Why: "skipped: not needed (by ann)"},
	}
	slices.SortFunc(w.skips, func(a, b run.Skip) int { return a.Stage - b.Stage })
	if diff := cmp.Diff(skips, w.skips); diff != "" {
		t.Errorf("recorded for forks (-want +got):\n%s", diff)
	}
	if notes := statusOf(t, s.env).Stages; notes[1].Note != "skipped: not needed (by ann)" {
		t.Errorf("stages %+v, want the reason in the second", notes)
	}
}

// TestRepeatedStageGoesOnInItsLedger: a stage that was cut short after one of
// its steps is run again with its second.
func TestRepeatedStageGoesOnInItsLedger(t *testing.T) {
	w := newWorld(2, 1)
	s := newScenario(t, w)
	s.when("TrainStep", 1, func() {
		s.update(runWorkflow, workflows.CommandSkipStage)
		s.update(runWorkflow, workflows.CommandRepeatStage, command(t, `{"stage": "hop1"}`))
	})
	if got := s.run().Policy.Version; got != 5 {
		t.Errorf("policy %d, want 5", got)
	}
	var selected []string
	for _, call := range w.log() {
		if strings.HasPrefix(call, "select ") {
			selected = append(selected, call)
		}
	}
	if diff := cmp.Diff([]string{"select 1/1", "select 3/1", "select 4/2", "select 5/3"}, selected); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if w.count("eval stage 1 after with 5") != 1 || len(w.finish[0].Stages) != 3 {
		t.Errorf("calls %v, want the repeated stage evaluated on the problems of the first", w.log())
	}
}

// TestRepeatOfTheLastStage arrives while the run measures its last policy.
func TestRepeatOfTheLastStage(t *testing.T) {
	w := newWorld(1)
	s := newScenario(t, w)
	s.when("EvaluatePolicy", 2, func() { s.update(runWorkflow, workflows.CommandRepeatStage) })
	if got := s.run().Policy.Version; got != 2 {
		t.Errorf("policy %d, want 2", got)
	}
}

// TestAmendmentHoldsFromTheNextStep: the step in flight keeps its configuration.
func TestAmendmentHoldsFromTheNextStep(t *testing.T) {
	w := newWorld(3)
	s := newScenario(t, w)
	var got *answer
	s.when("TrainStep", 1, func() {
		got = s.update(runWorkflow, workflows.CommandAmend, command(t, `{"set": {"steps": 2, "rl.roc.enabled": false}, "reason": "enough", "by": "ann"}`))
	})
	if v := s.run().Policy.Version; v != 2 {
		t.Errorf("policy %d, want 2: the stage was made shorter", v)
	}
	if len(w.amends) != 1 || w.amends[0].Amendment.FromStep != 2 || w.amends[0].Amendment.Set["rl.roc.enabled"] != "false" ||
		w.amends[0].Amendment.By != "ann" || w.amends[0].Amendment.At == "" {
		t.Errorf("amendments %+v, want one from step 2", w.amends)
	}
	if w.configs["select 1"] != "" || w.configs["select 2"] != "config-1" {
		t.Errorf("configurations by step %v, want the amended one from step 2 on", w.configs)
	}
	if got.refused != nil || got.failed != nil || !strings.Contains(fmt.Sprint(got.text), "from step 2: rl.roc.enabled=false, steps=2") {
		t.Errorf("answer %+v", got)
	}
	if s := statusOf(t, s.env); len(s.Amendments) != 1 || !strings.Contains(s.Amendments[0], "enough (by ann)") {
		t.Errorf("status tells amendments %v", s.Amendments)
	}
}

// TestAmendmentSparesAnInterruptedStep: some of its groups are sampled and kept, so that a
// change that held for it would be true of the others alone.
func TestAmendmentSparesAnInterruptedStep(t *testing.T) {
	w := newWorld(4)
	w.stuck = map[string]bool{"sample 2": true}
	s := newScenario(t, w)
	var refused *answer
	s.when("SampleGroups", 2, func() {
		s.update(runWorkflow, workflows.CommandPause, command(t, `{"now": true}`))
		s.env.RegisterDelayedCallback(func() {
			w.mu.Lock()
			w.stuck = nil
			w.mu.Unlock()
			refused = s.update(runWorkflow, workflows.CommandAmend, command(t, `{"set": {"rollout.temperature": 0.5}, "from_step": 2}`))
			s.update(runWorkflow, workflows.CommandAmend, command(t, `{"set": {"rollout.temperature": 0.5}}`))
			s.env.RegisterDelayedCallback(func() { s.update(runWorkflow, workflows.CommandResume) }, time.Minute)
		}, days)
	})
	s.run()
	if len(w.amends) != 1 || w.amends[0].Amendment.FromStep != 3 || w.count("sample 2") != 2 {
		t.Errorf("amendments %+v of calls %v, want one from step 3", w.amends, w.log())
	}
	if refused.failed == nil || !strings.Contains(refused.failed.Error(), "step 2 has begun: amend from step 3 on") {
		t.Errorf("answer %+v, want a refusal of step 2", refused)
	}
}

func TestAmendmentBeforeTheFirstStage(t *testing.T) {
	w := newWorld(2)
	s := newScenario(t, w)
	s.when("TrainSFT", 1, func() { s.update(runWorkflow, workflows.CommandAmend, command(t, `{"set": {"steps": "1"}}`)) })
	if v := s.run().Policy.Version; v != 1 || w.configs["select 1"] != "config-1" {
		t.Errorf("policy %d under %v, want 1 under the amended configuration", v, w.configs)
	}
}

// TestRefusedAmendmentChangesNothing: the update fails with the activity's words.
func TestRefusedAmendmentChangesNothing(t *testing.T) {
	w := newWorld(2)
	w.faults["amend from 2"] = []error{finalError(string(fault.InvalidConfig), "seed: cannot be changed on the way")}
	s := newScenario(t, w)
	var got *answer
	s.when("TrainStep", 1, func() { got = s.update(runWorkflow, workflows.CommandAmend, command(t, `{"set": {"seed": 2}}`)) })
	s.run()
	if got.failed == nil || !strings.Contains(got.failed.Error(), "seed: cannot be changed") {
		t.Errorf("answer %+v, want the refusal", got)
	}
	if w.configs["select 2"] != "" || len(statusOf(t, s.env).Amendments) != 0 {
		t.Errorf("a refused amendment shows: %v", w.configs)
	}
}

// TestRestartStartsTheOtherRun: this run ends with its summary, the other one
// goes on from the checkpoint under the changed configuration.
func TestRestartStartsTheOtherRun(t *testing.T) {
	w := newWorld(40)
	s := newScenario(t, w)
	var got *answer
	s.when("TrainStep", 2, func() {
		w.plan.Fork = &run.ForkPlan{RunID: "demo", Step: 2} // for the other run
		got = s.update(runWorkflow, workflows.CommandRestart,
			command(t, `{"from": "best", "set": {"rl.optimizer.lr": 1e-5}, "run_id": "again", "reason": "collapse"}`))
	})
	if res := s.run(); !res.Stopped || res.Restarted != "again" || res.Policy.Version == 40 {
		t.Errorf("result %+v, want stopped before its end and restarted as again", res)
	}
	if got.failed != nil || fmt.Sprint(got.text) != "the run ends, and run again goes on from step 2" {
		t.Errorf("answer %+v", got)
	}
	if w.opened["again"].Fork == nil || w.opened["again"].Fork.Step != 2 || w.opened["again"].Set["rl.optimizer.lr"] != "1e-5" {
		t.Errorf("opened %+v, want a fork of step 2 with another learning rate", w.opened)
	}
}

// TestRestartWithAndWithoutAmendments says what is taken over, and takes nothing when
// so told.
func TestRestartWithAndWithoutAmendments(t *testing.T) {
	for arg, want := range map[string]string{
		`{"run_id": "again"}`:                              "the run ends, and run again goes on from step 2 with its amendments: from step 1: rl.optimizer.lr=0.1 (by ann)",
		`{"run_id": "again", "without_amendments": true}`:  "the run ends, and run again goes on from step 2",
		`{"run_id": "again", "without_amendments": false}`: "the run ends, and run again goes on from step 2 with its amendments: from step 1: rl.optimizer.lr=0.1 (by ann)",
	} {
		w := newWorld(40)
		w.inherited = []string{"from step 1: rl.optimizer.lr=0.1 (by ann)"}
		s := newScenario(t, w)
		var got *answer
		s.when("TrainStep", 2, func() {
			w.plan.Fork = &run.ForkPlan{RunID: "demo", Step: 2} // for the other run
			got = s.update(runWorkflow, workflows.CommandRestart, command(t, arg))
		})
		s.run()
		if got.failed != nil || fmt.Sprint(got.text) != want {
			t.Errorf("%s: answer %+v, want %q", arg, got, want)
		}
		if f := w.opened["again"].Fork; f == nil || f.WithoutAmendments != strings.Contains(arg, "true") {
			t.Errorf("%s: opened %+v", arg, f)
		}
	}
}

// TestMisusedCommands are refused before anything happens, with what to do.
func TestMisusedCommands(t *testing.T) {
	w := newWorld(2, 1)
	s := newScenario(t, w)
	answers := map[string]*answer{}
	tests := []struct{ name, arg, want string }{
		{workflows.CommandPause, `{"resaon": "x"}`, `pause takes no "resaon": it takes by, now, reason`},
		{workflows.CommandResume, `{"now": true}`, `resume takes no "now"`},
		{workflows.CommandSkipStage, `{"stage": "hop9"}`, `no stage "hop9": the run has hop1, hop2`},
		{workflows.CommandRepeatStage, `{"stage": "hop9"}`, `no stage "hop9": the run has hop1, hop2`},
		{workflows.CommandAmend, `{}`, `amend needs "set"`},
		{workflows.CommandAmend, `{"set": {"a": 1}, "from_step": -1}`, `step -1 is made`},
		{workflows.CommandRestart, `{"from": "worst"}`, `"from" is "worst", want "best", "last" or the number of a step`},
	}
	s.when("TrainStep", 1, func() {
		for _, tt := range tests {
			answers[tt.name+tt.arg] = s.update(runWorkflow, tt.name, command(t, tt.arg))
		}
	})
	s.run()
	for _, tt := range tests {
		if a := answers[tt.name+tt.arg]; a.refused == nil || !strings.Contains(a.refused.Error(), tt.want) {
			t.Errorf("%s %s: %+v, want refused with %q", tt.name, tt.arg, a, tt.want)
		}
	}
}

func TestSkipOfAStageThatIsOver(t *testing.T) {
	w := newWorld(1, 1)
	s := newScenario(t, w)
	var got *answer
	s.when("TrainStep", 2, func() { got = s.update(runWorkflow, workflows.CommandSkipStage, command(t, `{"stage": "hop1"}`)) })
	s.run()
	if got.refused == nil || !strings.Contains(got.refused.Error(), "stage hop1 is over: run it again by repeat_stage") {
		t.Errorf("answer %+v", got)
	}
}

// TestForkBeginsBehindItsCheckpoint: no SFT, no evaluation of what the parent
// measured, the stage from its middle on.
func TestForkBeginsBehindItsCheckpoint(t *testing.T) {
	w := newWorld(3, 2, 1)
	before := run.Evaluation{Label: "before", Accuracy: 0.125}
	w.plan.Fork = &run.ForkPlan{RunID: "parent", Step: 4, Made: []int{3, 1, 0}, Reports: []run.StageReport{
		{Before: before, After: run.Evaluation{Label: "after", PolicyVersion: 3}}, {Before: before}, {Before: before},
	}}
	w.plan.Priority = 2
	s := newScenario(t, w)
	s.run()
	want := []string{
		"open", "prepare", "publish 4",
		"select 5/2", "sample 5 with 4: p1,p2,p3", "batch 5", "train 5", "log 5", "eval stage 2 after with 5",
		"select 6/1", "sample 6 with 5: p1,p2,p3", "batch 6", "train 6", "log 6", "eval stage 3 after with 6",
		"eval stage 1 final with 6", "eval stage 2 final with 6", "finish",
	}
	if diff := cmp.Diff(want, w.log()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	in := w.finish[0]
	if in.Fork == nil || in.Fork.RunID != "parent" || in.Fork.Step != 4 || in.Stages[2].Before.Accuracy != 0.125 {
		t.Errorf("finish %+v, want the fork and the parent's measurements", in)
	}
	if got := statusOf(t, s.env); got.Fork == nil || got.Fork.Step != 4 || got.Stages[0].Note != "made by run parent" {
		t.Errorf("status %+v", got)
	}
}

// TestForkSkipsWhatItsParentSkipped: a stage that the parent was told to end
// ends at the same step, one that had ended by the fork's step is not begun, one
// that was to be left out is left out.
func TestForkSkipsWhatItsParentSkipped(t *testing.T) {
	after := run.Evaluation{Label: "after", PolicyVersion: 1}
	for name, tt := range map[string]struct {
		skips []run.Skip
		want  []string
	}{
		"in the middle": {
			[]run.Skip{{Stage: 1, After: 2, Why: "solved"}},
			[]string{"select 2/2", "eval stage 1 after with 2", "select 4/1", "select 5/2", "eval stage 2 after with 5", "eval stage 1 final with 5"},
		},
		"at the fork": {
			[]run.Skip{{Stage: 1, After: 1, Why: "solved"}},
			[]string{"select 4/1", "select 5/2", "eval stage 2 after with 5", "eval stage 1 final with 5"},
		},
		"a later one": {
			[]run.Skip{{Stage: 2, Why: "not needed"}},
			[]string{"select 2/2", "select 3/3", "eval stage 1 after with 3", "eval stage 2 after with 3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3, 2)
			w.plan.Fork = &run.ForkPlan{
				RunID: "parent", Step: 1, Made: []int{1, 0}, Skips: tt.skips, Reports: []run.StageReport{{After: after}, {}},
			}
			s := newScenario(t, w)
			s.run()
			var got []string
			for _, call := range w.log() {
				if strings.HasPrefix(call, "select ") || strings.HasPrefix(call, "eval ") {
					got = append(got, call)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if note := statusOf(t, s.env).Stages[tt.skips[0].Stage-1].Note; note != tt.skips[0].Why+", as in run parent" {
				t.Errorf("note %q", note)
			}
		})
	}
}

// TestOrdersCrossContinueAsNew: what arrives in the last step of an execution is
// carried out by the next.
func TestOrdersCrossContinueAsNew(t *testing.T) {
	w := newWorld(3)
	execution := 0
	_, n := runStage(t, w, stageInput(w, 1), func(env *testsuite.TestWorkflowEnvironment) {
		s := &scenario{t: t, w: w, env: env}
		if execution++; execution == 1 {
			s.when("TrainStep", 1, func() { env.SignalWorkflow(workflows.CommandCheckpoint, nil) })
		}
	})
	if n != 3 || w.count("save 1") != 1 {
		t.Errorf("%d executions, calls %v; want a checkpoint of step 1 in the second", n, w.log())
	}
}
