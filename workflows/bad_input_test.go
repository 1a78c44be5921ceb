package workflows_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"temper/internal/run"
	"temper/workflows"
)

// TestSignalsOfStrangersAreIgnored sends a run and its stage what only the two send to
// each other. Nothing comes of it but events that say so.
func TestSignalsOfStrangersAreIgnored(t *testing.T) {
	for name, send := range map[string]func(s *scenario){
		"order": func(s *scenario) {
			s.signalStage("order", `{"name": "amend"}`)
			s.signalStage("order", `{"id": 1, "name": "amend", "amendment": {"amendment": {"set": {"a": "b"}}}}`)
			s.signalStage("order", `{"id": 1, "name": "skip_stage", "command": {"now": true}}`)
			s.signalStage("order", `{"id": "one"}`)
		},
		"gate": func(s *scenario) {
			s.signalStage("gate", `{"paused": true}`)
			s.signalStage("gate", `{"stopping": true}`)
		},
		"receipt":    func(s *scenario) { s.signalRun("receipt", `{"id": 1, "amended": {"stages": [{"of": 99}]}}`) },
		"stage_gate": func(s *scenario) { s.signalRun("stage_gate", `{"paused": true}`); s.signalRun("stage_gate", `7`) },
		"pause":      func(s *scenario) { s.signalRun("pause", `{"reason": 5, "now": true}`) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2, 1)
			s := newScenario(t, w)
			s.when("TrainStep", 1, func() { send(s) })
			s.run()
			if len(w.amends) > 0 || len(w.skips) > 0 || len(w.trains) != 3 {
				t.Errorf("amendments %v, skips %v, %d steps", w.amends, w.skips, len(w.trains))
			}
			if !slices.ContainsFunc(w.events, func(e string) bool { return strings.HasPrefix(e, "ignored: signal "+name+": ") }) {
				t.Errorf("events %q, want one that says what was ignored", w.events)
			}
		})
	}
}

func (s *scenario) signalStage(name, text string) {
	if err := s.env.SignalWorkflowByID(workflows.StageWorkflowID("demo", 1, "hop1"), name, json.RawMessage(text)); err != nil {
		s.t.Error(err)
	}
}

func (s *scenario) signalRun(name, text string) { s.env.SignalWorkflow(name, json.RawMessage(text)) }

// TestMalformedSignalLeavesNothing: what the decoder has read of one signal is not in
// the next one.
func TestMalformedSignalLeavesNothing(t *testing.T) {
	w := newWorld(2)
	s := newScenario(t, w)
	s.when("TrainStep", 1, func() {
		s.signalRun("stop", `{"now": true, "reason": "none", "by": 5}`)
		s.signalRun("stop", `{"by": "ann"}`)
	})
	s.run()
	if len(w.trains) != 1 || !slices.Contains(w.events, "stop: the run was stopped (by ann)") {
		t.Errorf("%d steps, events %q", len(w.trains), w.events)
	}
}

// TestStageChecksOrders: an order without a number or with nothing to do changes nothing.
func TestStageChecksOrders(t *testing.T) {
	w := newWorld(2)
	env := newEnv(t, w)
	s := &scenario{t: t, w: w, env: env}
	s.when("TrainStep", 1, func() {
		s.signalRun("order", `{"name": "amend"}`) // has no number
		s.signalRun("order", `{"id": 1, "name": "amend"}`)
		s.signalRun("order", `{"id": 2, "name": "skip_stage", "command": {"reason": "solved"}}`)
	})
	env.ExecuteWorkflow(workflows.StageAlone, stageInput(w, 10))
	var out workflows.StageResult
	if err := env.GetWorkflowResult(&out); err != nil || out.Step != 1 || out.Cut != run.EventSkip {
		t.Errorf("the stage ends with %+v, %v; want the skip that was ordered", out, err)
	}
	if len(w.amends) > 0 {
		t.Errorf("amended %v", w.amends)
	}
}

// TestRefusalsAreShort: a refusal quotes what was sent, and fits into a message.
func TestRefusalsAreShort(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	for what, text := range map[string]string{
		"an unknown key": `{"` + long + `": 1}`, "a reason": `{"reason": "` + long + `"}`, "a number": `{"now": ` + strings.Repeat("9", 1<<20) + `}`,
		"no object": `"` + long + `"`, "another form": `{"reason": 5}`,
	} {
		w := newWorld(1)
		s := newScenario(t, w)
		var got *answer
		s.when("TrainStep", 1, func() { got = s.update(runWorkflow, workflows.CommandPause, json.RawMessage(text)) })
		s.run()
		if got == nil || got.refused == nil || len(got.refused.Error()) > 600 || strings.Contains(got.refused.Error(), "Go ") {
			t.Errorf("%s is answered with %.700v", what, got)
		}
	}
}

// FuzzCommand: whatever is sent as a command is taken or refused in a few words.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{`{}`, `null`, `5`, `{"reason":5}`, `{"set":{"a":1e400}}`, `{"from":[1],"run_id":"/"}`, `{"set":{"a":{}},"from_step":-1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var c workflows.Command
		if err := json.Unmarshal(data, &c); err != nil {
			return // no JSON at all
		}
		for _, text := range workflows.Refusals(c) {
			if len(text) > 600 {
				t.Errorf("refused by %d bytes: %.100s ...", len(text), text)
			}
		}
		sent, err := json.Marshal(c)
		if err != nil {
			t.Fatalf("what was read cannot be sent on: %v", err)
		}
		var again workflows.Command
		if err := json.Unmarshal(sent, &again); err != nil {
			t.Fatalf("%s cannot be read again: %v", sent, err)
		}
	})
}

// FuzzReceipt: no answer of a stage breaks its run.
func FuzzReceipt(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"id":1}`, `{"id":1,"amended":{"config":{"key":"k"},"stages":[{"index":1,"first_step":1,"steps":2},{"index":2,"of":1,"first_step":3,"steps":2}]}}`,
		`{"id":1,"amended":{"config":{"key":"k"},"stages":[{"index":1,"of":99}]}}`, `{"id":-1,"amended":{"stages":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(_ *testing.T, data []byte) { workflows.TakeReceipt(newWorld(2, 1).plan, data) })
}
