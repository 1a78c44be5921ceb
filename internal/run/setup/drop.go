package setup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/dataset"
	"temper/internal/dataset/clean"
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

// tally counts the rows of a set that are dropped for one reason.
type tally struct {
	run.Dropped
}

func newTally(set, reason string, of int) *tally {
	return &tally{run.Dropped{Set: set, Reason: reason, Of: of}}
}

func (t *tally) add(format string, args ...any) {
	if t.Rows++; t.Rows == 1 {
		t.First = fmt.Sprintf(format, args...)
	}
}

// book notes what was dropped, and refuses more than data.max_dropped of a set.
func (p *preparation) book(t *tally) error {
	if t.Rows == 0 {
		return nil
	}
	if float64(t.Rows) > p.cfg.Data.MaxDropped*float64(t.Of) {
		return fault.Newf(fault.Dataset, "%d of %d rows are to be dropped, %s, above data.max_dropped (%g); the first: %s",
			t.Rows, t.Of, t.Reason, p.cfg.Data.MaxDropped, t.First)
	}
	p.out.Dropped = append(p.out.Dropped, t.Dropped)
	return nil
}

// droppedText says what was dropped of a set; "" for nothing.
func (p *preparation) droppedText(set string) string {
	var parts []string
	for _, d := range p.out.Dropped {
		if d.Set == set {
			parts = append(parts, fmt.Sprintf("%d of %d were dropped (%s)", d.Rows, d.Of, d.Reason))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// stageSet are the problems of a stage as its source has them, or why there are none.
type stageSet struct {
	train, heldOut []rl.Problem
	err            error
}

// gather reads the problems of all stages, so that what one of them holds out is known to
// all of them.
func (p *preparation) gather(ctx context.Context) {
	p.sets = map[string]stageSet{}
	for i, s := range p.cfg.Stages {
		key := dataKey(i + 1)
		p.sets[key] = p.readSet(ctx, key, s)
	}
}

func (p *preparation) readSet(ctx context.Context, key string, s config.Stage) stageSet {
	var out stageSet
	out.train, out.heldOut, out.err = p.readProblems(ctx, key, s.Data)
	for _, problem := range out.heldOut {
		p.heldOut.Add(fmt.Sprintf("problem %.60q, held out of %s", problem.ID, key), problem)
	}
	return out
}

// dropDuplicates drops problems that ask what an earlier one asks.
func (p *preparation) dropDuplicates(set string, problems []rl.Problem) ([]rl.Problem, error) {
	first := map[clean.Key]string{}
	t := newTally(set, dropDuplicate, len(problems))
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
	return kept, p.book(t)
}

// dropHeldOut drops problems on which a policy is evaluated, in any stage.
func (p *preparation) dropHeldOut(set string, problems []rl.Problem) ([]rl.Problem, error) {
	t := newTally(set, dropHeldOut, len(problems))
	kept := problems[:0:0]
	for _, problem := range problems {
		if name, held := p.heldOut.Find(problem); held {
			t.add("problem %.60q is %s", problem.ID, name)
			continue
		}
		kept = append(kept, problem)
	}
	return kept, underSet(set, p.book(t))
}

// underSet says which set an error is about.
func underSet(set string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", set, err)
}

// dropLongPrompts drops problems whose prompt leaves no room for the stage's response. Many
// of them are a fault of the configuration.
func (p *preparation) dropLongPrompts(set string, problems []rl.Problem, s config.Stage) ([]rl.Problem, error) {
	t := newTally(set, dropLong, len(problems))
	kept := problems[:0:0]
	var first error
	for _, problem := range problems {
		need, err := p.lengthOf(problem, s)
		if err != nil {
			return nil, err
		}
		if need > p.cfg.Model.MaxContext {
			if t.add("problem %.60q needs %d tokens with its response", problem.ID, need); t.Rows == 1 {
				first = p.noRoom(problem, need)
			}
			continue
		}
		p.out.TokenBudget = max(p.out.TokenBudget, need)
		kept = append(kept, problem)
	}
	if p.book(t) != nil {
		return nil, first
	}
	return kept, nil
}

// lengthOf is the length of a problem's prompt with the longest response of the stage.
func (p *preparation) lengthOf(problem rl.Problem, s config.Stage) (int, error) {
	prompt, err := p.format.Begin(problem.Prompt)
	if err != nil {
		return 0, fault.Newf(fault.Dataset, "problem %s: %w", problem.ID, err)
	}
	return prompt.PromptTokens() + s.MaxResponseTokens, nil
}

func (p *preparation) noRoom(problem rl.Problem, need int) error {
	return config.Problems{{Path: "model.max_context", Msg: fmt.Sprintf(
		"is %d, but the prompt of problem %s with max_response_tokens needs %d", p.cfg.Model.MaxContext, problem.ID, need)}}
}

// checkRoom refuses prompts that leave no room for the stage's response.
func (p *preparation) checkRoom(problems []rl.Problem, s config.Stage) error {
	for _, problem := range problems {
		need, err := p.lengthOf(problem, s)
		if err != nil {
			return err
		}
		if need > p.cfg.Model.MaxContext {
			return p.noRoom(problem, need)
		}
	}
	return nil
}

// mixDialogues reads the files of data.mix and mixes them.
func (p *preparation) mixDialogues(ctx context.Context) ([]chat.Dialogue, error) {
	var files [][]chat.Dialogue
	var parts []dataset.Part
	var bad []error
	for i, m := range p.cfg.Data.Mix {
		ds, err := p.dialoguesOf(ctx, config.Source{Path: m.Path})
		if err != nil {
			bad = append(bad, fmt.Errorf("data.mix[%d]: %w", i, err))
			continue
		}
		part := dataset.Part{Rows: len(ds), Epochs: m.Share}
		if p.cfg.Data.MixBy == config.MixByWeights {
			part = dataset.Part{Rows: len(ds), Weight: m.Share}
		}
		files, parts = append(files, ds), append(parts, part)
	}
	if err := errors.Join(bad...); err != nil {
		return nil, err
	}
	picks, err := dataset.Mix(parts, p.cfg.Data.MixNum, p.cfg.Seed)
	if err != nil {
		return nil, fault.Newf(fault.Dataset, "data.mix: %w", err)
	}
	out := make([]chat.Dialogue, len(picks))
	for i, pick := range picks {
		out[i] = files[pick.Part][pick.Row]
	}
	return out, nil
}

// adaptDialogues writes generated dialogues in the words of the run's format. Those of a
// file are fitted to it as far as that changes no meaning; one that cannot be is dropped.
func (p *preparation) adaptDialogues(format *chat.Format, dialogues []chat.Dialogue) ([]chat.Dialogue, error) {
	if p.cfg.SFT.Data.Path == "" && len(p.cfg.Data.Mix) == 0 {
		for i, d := range dialogues {
			dialogues[i] = format.Adapt(d)
		}
		return dialogues, nil
	}
	t := newTally("sft.data", dropMisfit, len(dialogues))
	kept := dialogues[:0:0]
	for i, d := range dialogues {
		fitted, _ := format.Fit(d)
		if _, err := format.Render(fitted); err != nil {
			t.add("dialogue %d: %s", i+1, strings.Join(strings.Fields(err.Error()), " "))
			continue
		}
		kept = append(kept, fitted)
	}
	return kept, underSet(t.Set, p.book(t))
}

// dropLong drops dialogues that do not fit the context: cut short, they would teach the
// policy to stop in the middle. Those of a generator must fit.
func (p *preparation) dropLong(dialogues []chat.Dialogue) ([]chat.Dialogue, error) {
	if p.format == nil || p.cfg.SFT.Data.Path == "" && len(p.cfg.Data.Mix) == 0 {
		return dialogues, nil
	}
	t := newTally("sft.data", dropLong, len(dialogues))
	kept := dialogues[:0:0]
	for i, d := range dialogues {
		rendered, err := p.format.Render(d)
		if err != nil {
			return nil, fault.Newf(fault.Dataset, "sft.data: dialogue %d: %w", i+1, err)
		}
		if n := len(rendered.Tokens()); n > p.cfg.Model.MaxContext {
			t.add("dialogue %d has %d tokens, above model.max_context (%d)", i+1, n, p.cfg.Model.MaxContext)
			continue
		}
		kept = append(kept, d)
	}
	return kept, underSet(t.Set, p.book(t))
}
