package workflows

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/config"
	"temper/internal/run"
)

// steering carries out what a person asks of a run.
type steering struct{ *runFlow }

// handlers are the commands that a run carries out beside those of its gate.
func (r steering) handlers() map[string]handler {
	return map[string]handler{
		CommandCheckpoint:  {refuse: r.refuseUnopened, apply: r.saveNow},
		CommandSkipStage:   {refuse: r.refuseSkip, apply: r.skipStage},
		CommandRepeatStage: {refuse: r.refuseRepeat, apply: r.repeatStage},
		CommandAmend:       {refuse: r.refuseAmend, apply: r.amendRun},
		CommandRestart:     {refuse: r.refuseRestart, apply: r.restart},
	}
}

func (r steering) refuseUnopened(Command) error {
	switch {
	case r.ref.RunID == "":
		return fmt.Errorf("the run has not read its configuration yet: try again in a moment")
	case r.closing:
		return fmt.Errorf("the run is over and writes its summary: fork it to go on from one of its checkpoints (temper run fork)")
	}
	return nil
}

func (r steering) saveNow(ctx workflow.Context, c Command) (string, error) {
	if got, ok := r.link.ask(ctx, order{Name: CommandCheckpoint, Command: c}); ok {
		return got.Answer, nil
	}
	r.gate.Save = true
	if r.doing == StateSFT {
		return "a checkpoint is saved after the current chunk of SFT", nil
	}
	return r.gate.answer(CommandCheckpoint), nil
}

func (r steering) refuseSkip(c Command) error {
	if err := r.refuseUnopened(c); err != nil {
		return err
	}
	i, err := r.stageNamed(c.Stage)
	switch {
	case err != nil:
		return err
	case i < r.stage-1 || i == r.stage-1 && r.link.child == nil:
		return fmt.Errorf("stage %s is over: run it again by repeat_stage", r.reports[i].Plan.Name)
	case r.skips[i] != "":
		return fmt.Errorf("stage %s is skipped already", r.reports[i].Plan.Name)
	}
	return nil
}

func (r steering) skipStage(ctx workflow.Context, c Command) (string, error) {
	i, err := r.stageNamed(c.Stage)
	if err != nil {
		return "", refused(err)
	}
	name := r.reports[i].Plan.Name
	if i == r.stage-1 {
		if got, ok := r.link.ask(ctx, order{Name: CommandSkipStage, Command: c}); ok {
			return got.Answer, nil
		}
		return "", refused(fmt.Errorf("stage %s has just ended", name))
	}
	r.skips[i] = "skipped" + who(c.Reason, c.By)
	r.show(ctx)
	text := fmt.Sprintf("stage %s will be skipped", name)
	return text, logSkip(ctx, r.ref, run.Skip{Stage: i + 1, Why: r.skips[i]}, text+who(c.Reason, c.By))
}

func (r steering) refuseRepeat(c Command) error {
	if err := r.refuseUnopened(c); err != nil {
		return err
	}
	_, err := r.stageNamed(c.Stage)
	return err
}

func (r steering) repeatStage(ctx workflow.Context, c Command) (string, error) {
	i, err := r.stageNamed(c.Stage)
	if err != nil {
		return "", refused(err)
	}
	source := r.reports[r.reports[i].Plan.Source()-1].Plan.Name
	out, err := r.amendBy(ctx, c, amendOrder{Amendment: config.Amendment{Repeat: source}})
	if err != nil {
		return "", err
	}
	last := out.Stages[len(out.Stages)-1]
	return fmt.Sprintf("stage %s is run once more as %s, steps %d-%d", source, last.Name, last.FirstStep, last.FirstStep+last.Steps-1), nil
}

func (r steering) refuseAmend(c Command) error {
	if err := r.refuseUnopened(c); err != nil {
		return err
	}
	if len(c.Set) == 0 {
		return fmt.Errorf(`amend needs "set": {"set": {"rl.optimizer.lr": 1e-4}, "reason": "..."}`)
	}
	if next := r.last.Step + 1; c.FromStep != 0 && c.FromStep < next {
		return fmt.Errorf("step %d is made: amend from step %d on, or fork the run before it (temper run fork --step %d)", c.FromStep, next, c.FromStep-1)
	}
	return nil
}

func (r steering) amendRun(ctx workflow.Context, c Command) (string, error) {
	out, err := r.amendBy(ctx, c, amendOrder{Amendment: config.Amendment{FromStep: c.FromStep, Set: c.Set}})
	if err != nil {
		return "", err
	}
	return "amended " + out.Text + warned(out.Warnings), nil
}

// amendBy has the stage, or else the run itself, change the configuration.
func (r steering) amendBy(ctx workflow.Context, c Command, a amendOrder) (run.Amended, error) {
	a.Amendment.Reason, a.Amendment.By, a.Amendment.At = c.Reason, c.By, stamp(ctx)
	out, err := r.amend(ctx, a)
	if err != nil {
		return out, err
	}
	r.amendments = append(r.amendments, out.Text+who(c.Reason, c.By))
	r.show(ctx)
	return out, logEvent(ctx, r.ref, CommandAmend, out.Text+who(c.Reason, c.By)+warned(out.Warnings))
}

// warned is what follows the text of an amendment that is probably a mistake.
func warned(warnings []string) string {
	if len(warnings) == 0 {
		return ""
	}
	return "; WARNING: " + strings.Join(warnings, "; ")
}

func (r steering) amend(ctx workflow.Context, a amendOrder) (run.Amended, error) {
	r.gate.busy++ // no stage begins meanwhile
	defer func() { r.gate.busy-- }()
	if got, ok := r.link.ask(ctx, order{Name: CommandAmend, Amendment: &a}); ok {
		if got.Refused != "" {
			return run.Amended{}, refused(fmt.Errorf("%s", got.Refused))
		}
		if got.Amended == nil {
			return run.Amended{}, refused(errors.New("the stage does not say what it has amended"))
		}
		return *got.Amended, nil
	}
	out, err := a.carryOut(ctx, r.ref, r.last.Step+1)
	if err != nil {
		return out, asFailure(err)
	}
	r.adopt(out)
	return out, nil
}

// amendOrder is an amendment whose step is chosen where it is carried out.
type amendOrder struct {
	Amendment config.Amendment `json:"amendment"`
}

// carryOut stores the amendment, from the earliest step on where none is named.
func (a amendOrder) carryOut(ctx workflow.Context, ref run.Ref, earliest int) (out run.Amended, err error) {
	switch from := a.Amendment.FromStep; {
	case from == 0:
		a.Amendment.FromStep = earliest
	case from < earliest:
		return out, refused(fmt.Errorf("step %d has begun: amend from step %d on, or fork the run before it (temper run fork --step %d)", from, earliest, from-1))
	}
	var control *activities.Control
	err = bookkeep(ctx, fmt.Sprintf("amend the configuration from step %d", a.Amendment.FromStep), control.AmendRun,
		activities.AmendRunInput{Run: ref, Amendment: a.Amendment}, &out)
	return out, err
}

func (r steering) refuseRestart(c Command) error {
	if err := r.refuseUnopened(c); err != nil {
		return err
	}
	if _, err := forkFrom(r.ref.RunID, c.From); err != nil {
		return err
	}
	return nil
}

// forkFrom reads where a restart begins; nothing said is the best checkpoint.
func forkFrom(runID string, from Checkpoint) (*run.ForkFrom, error) {
	f := &run.ForkFrom{RunID: runID}
	switch from {
	case "", run.FromBest:
		f.From = run.FromBest
	case run.FromLast:
		f.From = run.FromLast
	default:
		step, err := strconv.Atoi(string(from))
		if err != nil || step < 0 {
			return nil, fmt.Errorf(`"from" is %q, want "best", "last" or the number of a step`, from)
		}
		f.Step = step
	}
	return f, nil
}

// restart checks that the other run can begin, ends this one and has end start
// the other.
func (r steering) restart(ctx workflow.Context, c Command) (string, error) {
	from, err := forkFrom(r.ref.RunID, c.From)
	if err != nil {
		return "", refused(err)
	}
	from.WithoutAmendments = c.WithoutAmendments
	next := run.Input{RunID: c.RunID, Fork: from, Set: c.Set, Priority: r.plan.Priority, Placement: r.in.Placement}
	if next.RunID == "" {
		next.RunID = r.successor(ctx)
	}
	var control *activities.Control
	var found activities.CheckForkResult
	err = bookkeep(ctx, "find and hold the checkpoint to restart from", control.CheckFork,
		activities.CheckForkInput{Input: next, Hold: true}, &found)
	if err != nil {
		return "", asFailure(err)
	}
	if r.gate.Stopping {
		return "", refused(fmt.Errorf("the run is stopping already"))
	}
	from.From, from.Step = "", found.Step
	r.next = &next
	now := workflow.Now(ctx)
	r.gate.holding = holding{Stopping: true, Now: c.Now, Reason: "restart from step " + strconv.Itoa(found.Step) + because(c.Reason), By: c.By, Since: &now}
	r.gate.changed(ctx)
	answer := fmt.Sprintf("the run ends, and run %s goes on from step %d", next.RunID, found.Step)
	if len(found.Inherited) > 0 {
		answer += " with its amendments: " + strings.Join(found.Inherited, "; ")
	}
	return answer, nil
}

// successor makes the id of the run that goes on instead of this one.
func (r steering) successor(ctx workflow.Context) string {
	suffix := "-r" + workflow.Now(ctx).UTC().Format("0102150405")
	id := r.ref.RunID
	return id[:min(len(id), maxRunID-len(suffix))] + suffix
}
