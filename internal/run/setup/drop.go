package setup

import (
	"fmt"
	"strings"

	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
)

// Reasons why preparation drops a row.
const (
	dropDuplicate = "the prompt of another problem"
	dropHeldOut   = "held out for evaluation"
	dropLong      = "too long"
	dropMisfit    = "does not fit the chat format"
)

// dropCount counts the rows of a set that are dropped for one reason.
type dropCount struct {
	run.Dropped
}

func newDropCount(set, reason string, of int) *dropCount {
	return &dropCount{run.Dropped{Set: set, Reason: reason, Of: of}}
}

func (t *dropCount) add(format string, args ...any) {
	if t.Rows++; t.Rows == 1 {
		t.First = fmt.Sprintf(format, args...)
	}
}

// dataFilter drops and counts the rows of the data that a run cannot use.
type dataFilter struct {
	cfg     config.Run
	dropped []run.Dropped
	// heldOut are all problems that no stage may train on.
	heldOut dataset.HeldOut
}

// record adds the count of dropped rows, and refuses more than data.max_dropped of a set.
func (s *dataFilter) record(t *dropCount) error {
	if t.Rows == 0 {
		return nil
	}
	if float64(t.Rows) > s.cfg.Data.MaxDropped*float64(t.Of) {
		return fault.Newf(fault.Dataset, "%d of %d rows are to be dropped, %s, above data.max_dropped (%g); the first: %s",
			t.Rows, t.Of, t.Reason, s.cfg.Data.MaxDropped, t.First)
	}
	s.dropped = append(s.dropped, t.Dropped)
	return nil
}

// text describes the rows dropped from a set; "" for none.
func (s *dataFilter) text(set string) string {
	var parts []string
	for _, d := range s.dropped {
		if d.Set == set {
			parts = append(parts, fmt.Sprintf("%d of %d were dropped (%s)", d.Rows, d.Of, d.Reason))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// holdOut adds the problems that a set holds out.
func (s *dataFilter) holdOut(set string, problems []rl.Problem) {
	for _, problem := range problems {
		s.heldOut.Add(fmt.Sprintf("problem %.60q, held out of %s", problem.ID, set), problem)
	}
}

// dropDuplicates drops problems with the prompt of an earlier one.
func (s *dataFilter) dropDuplicates(set string, problems []rl.Problem) ([]rl.Problem, error) {
	first := map[dataset.Key]string{}
	t := newDropCount(set, dropDuplicate, len(problems))
	kept := problems[:0:0]
	for _, problem := range problems {
		key := dataset.ProblemKey(problem)
		if id, twice := first[key]; twice {
			t.add("problem %.60q is %.60q", problem.ID, id)
			continue
		}
		first[key] = problem.ID
		kept = append(kept, problem)
	}
	return kept, s.record(t)
}

// dropHeldOut drops problems on which a policy is evaluated, in any stage.
func (s *dataFilter) dropHeldOut(set string, problems []rl.Problem) ([]rl.Problem, error) {
	t := newDropCount(set, dropHeldOut, len(problems))
	kept := problems[:0:0]
	for _, problem := range problems {
		if name, held := s.heldOut.Find(problem); held {
			t.add("problem %.60q is %s", problem.ID, name)
			continue
		}
		kept = append(kept, problem)
	}
	return kept, underSet(set, s.record(t))
}

// underSet adds the name of the set to an error.
func underSet(set string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", set, err)
}

// dropLongPrompts drops problems whose prompt leaves no room for the stage's response, and
// returns the longest of the others with its response, in tokens. Many long ones are a
// fault of the configuration.
func (s *dataFilter) dropLongPrompts(set string, problems []rl.Problem, format *chat.Format, stage config.Stage) (kept []rl.Problem, longest int, err error) {
	t := newDropCount(set, dropLong, len(problems))
	var first rl.Problem
	var firstNeed int
	for _, problem := range problems {
		need, err := lengthOf(format, problem, stage)
		if err != nil {
			return nil, 0, err
		}
		if need > s.cfg.Model.MaxContext {
			if t.add("problem %.60q needs %d tokens with its response", problem.ID, need); t.Rows == 1 {
				first, firstNeed = problem, need
			}
			continue
		}
		longest = max(longest, need)
		kept = append(kept, problem)
	}
	if s.record(t) != nil {
		return nil, 0, noRoom(s.cfg, first, firstNeed, fmt.Sprintf("; of %s, %d of %d need more, above data.max_dropped (%g)", set, t.Rows, t.Of, s.cfg.Data.MaxDropped))
	}
	return kept, longest, nil
}

// lengthOf is the length of a problem's prompt with the longest response of the stage.
func lengthOf(format *chat.Format, problem rl.Problem, stage config.Stage) (int, error) {
	prompt, err := format.Begin(problem.Prompt)
	if err != nil {
		return 0, fault.Newf(fault.Dataset, "problem %s: %w", problem.ID, err)
	}
	return prompt.PromptTokens() + stage.MaxResponseTokens, nil
}

func noRoom(cfg config.Run, problem rl.Problem, need int, more string) error {
	return config.Problems{{Path: "model.max_context", Msg: fmt.Sprintf(
		"is %d, but the prompt of problem %s with max_response_tokens needs %d%s", cfg.Model.MaxContext, problem.ID, need, more)}}
}

// checkLengths refuses prompts that leave no room for the stage's response.
func checkLengths(format *chat.Format, problems []rl.Problem, cfg config.Run, stage config.Stage) error {
	for _, problem := range problems {
		need, err := lengthOf(format, problem, stage)
		if err != nil {
			return err
		}
		if need > cfg.Model.MaxContext {
			return noRoom(cfg, problem, need, "")
		}
	}
	return nil
}

// fromFiles reports whether the dialogues of a run are no generator's.
func fromFiles(cfg config.Run) bool { return cfg.SFT.Data.Path != "" || len(cfg.Data.Mix) > 0 }

// adaptDialogues writes generated dialogues in the words of the run's format. Those of a
// file are fitted to it as far as that changes no meaning; one that cannot be is dropped.
func (s *dataFilter) adaptDialogues(format *chat.Format, dialogues []chat.Dialogue) ([]chat.Dialogue, error) {
	if !fromFiles(s.cfg) {
		for i, d := range dialogues {
			dialogues[i] = format.Adapt(d)
		}
		return dialogues, nil
	}
	t := newDropCount("sft.data", dropMisfit, len(dialogues))
	kept := dialogues[:0:0]
	for i, d := range dialogues {
		fitted, _ := format.Fit(d)
		if _, err := format.Render(fitted); err != nil {
			t.add("dialogue %d: %s", i+1, strings.Join(strings.Fields(err.Error()), " "))
			continue
		}
		kept = append(kept, fitted)
	}
	return kept, underSet(t.Set, s.record(t))
}

// dropLong drops dialogues that do not fit the context: cut short, they would teach the
// policy to stop in the middle. Those of a generator must fit.
func (s *dataFilter) dropLong(format *chat.Format, dialogues []chat.Dialogue) ([]chat.Dialogue, error) {
	if format == nil || !fromFiles(s.cfg) {
		return dialogues, nil
	}
	t := newDropCount("sft.data", dropLong, len(dialogues))
	kept := dialogues[:0:0]
	for i, d := range dialogues {
		rendered, err := format.Render(d)
		if err != nil {
			return nil, fault.Newf(fault.Dataset, "sft.data: dialogue %d: %w", i+1, err)
		}
		if n := len(rendered.Tokens()); n > s.cfg.Model.MaxContext {
			t.add("dialogue %d has %d tokens, above model.max_context (%d)", i+1, n, s.cfg.Model.MaxContext)
			continue
		}
		kept = append(kept, d)
	}
	return kept, underSet(t.Set, s.record(t))
}
