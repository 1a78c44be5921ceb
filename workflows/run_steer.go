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

// steering carries out the commands of users to a run.
type steering struct {
	at    *progress
	gate  *gate
	state *runState
	link  *stageLink
	end   *runEnd
}

// handlers returns the commands of a run besides those of its gate.
func (s *steering) handlers() map[string]handler {
	return map[string]handler{
		CommandCheckpoint:  {refuse: s.refuseUnopened, apply: s.saveNow},
		CommandSkipStage:   {refuse: s.refuseSkip, apply: s.skipStage},
		CommandRepeatStage: {refuse: s.refuseRepeat, apply: s.repeatStage},
		CommandAmend:       {refuse: s.refuseAmend, apply: s.amendRun},
		CommandRestart:     {refuse: s.refuseRestart, apply: s.restart},
	}
}

func (s *steering) refuseUnopened(Command) error {
	switch {
	case s.at.ref.RunID == "":
		return fmt.Errorf("the run has not read its configuration yet: try again in a moment")
	case s.state.closing:
		return fmt.Errorf("the run is over and writes its summary: fork it to go on from one of its checkpoints (temper run fork)")
	}
	return nil
}

func (s *steering) saveNow(ctx workflow.Context, c Command) (string, error) {
	if got, ok := s.link.ask(ctx, order{Name: CommandCheckpoint, Command: c}); ok {
		return got.Answer, nil
	}
	s.gate.Save = true
	if s.state.doing == StateSFT {
		return "a checkpoint is saved after the current chunk of SFT", nil
	}
	return s.gate.answer(CommandCheckpoint), nil
}

func (s *steering) refuseSkip(c Command) error {
	if err := s.refuseUnopened(c); err != nil {
		return err
	}
	i, err := s.at.stageNamed(c.Stage)
	switch {
	case err != nil:
		return err
	case i < s.at.stage-1 || i == s.at.stage-1 && s.link.child == nil:
		return fmt.Errorf("stage %s is over: run it again by repeat_stage", s.at.reports[i].Plan.Name)
	case s.at.skips[i] != "":
		return fmt.Errorf("stage %s is skipped already", s.at.reports[i].Plan.Name)
	}
	return nil
}

func (s *steering) skipStage(ctx workflow.Context, c Command) (string, error) {
	i, err := s.at.stageNamed(c.Stage)
	if err != nil {
		return "", refused(err)
	}
	name := s.at.reports[i].Plan.Name
	if i == s.at.stage-1 {
		if got, ok := s.link.ask(ctx, order{Name: CommandSkipStage, Command: c}); ok {
			return got.Answer, nil
		}
		return "", refused(fmt.Errorf("stage %s has just ended", name))
	}
	s.at.skips[i] = "skipped" + byWhom(c.Reason, c.By)
	s.state.show(ctx)
	text := fmt.Sprintf("stage %s will be skipped", name)
	return text, logSkip(ctx, s.at.ref, run.Skip{Stage: i + 1, Why: s.at.skips[i]}, text+byWhom(c.Reason, c.By))
}

func (s *steering) refuseRepeat(c Command) error {
	if err := s.refuseUnopened(c); err != nil {
		return err
	}
	_, err := s.at.stageNamed(c.Stage)
	return err
}

func (s *steering) repeatStage(ctx workflow.Context, c Command) (string, error) {
	i, err := s.at.stageNamed(c.Stage)
	if err != nil {
		return "", refused(err)
	}
	source := s.at.reports[s.at.reports[i].Plan.Source()-1].Plan.Name
	out, err := s.amendBy(ctx, c, amendOrder{Amendment: config.Amendment{Repeat: source}})
	if err != nil {
		return "", err
	}
	last := out.Stages[len(out.Stages)-1]
	return fmt.Sprintf("stage %s is run once more as %s, steps %d-%d", source, last.Name, last.FirstStep, last.FirstStep+last.Steps-1), nil
}

func (s *steering) refuseAmend(c Command) error {
	if err := s.refuseUnopened(c); err != nil {
		return err
	}
	if len(c.Set) == 0 {
		return fmt.Errorf(`amend needs "set": {"set": {"rl.optimizer.lr": 1e-4}, "reason": "..."}`)
	}
	if next := s.at.last.Step + 1; c.FromStep != 0 && c.FromStep < next {
		return fmt.Errorf("step %d is made: amend from step %d on, or fork the run before it (temper run fork --step %d)", c.FromStep, next, c.FromStep-1)
	}
	return nil
}

func (s *steering) amendRun(ctx workflow.Context, c Command) (string, error) {
	out, err := s.amendBy(ctx, c, amendOrder{Amendment: config.Amendment{FromStep: c.FromStep, Set: c.Set}})
	if err != nil {
		return "", err
	}
	return "amended " + out.Text + warned(out.Warnings), nil
}

// amendBy amends the configuration in the stage, or in the run itself between stages, and
// notes the author.
func (s *steering) amendBy(ctx workflow.Context, c Command, a amendOrder) (run.Amended, error) {
	a.Amendment.Reason, a.Amendment.By, a.Amendment.At = c.Reason, c.By, nowText(ctx)
	out, err := s.amend(ctx, a)
	if err != nil {
		return out, err
	}
	s.at.amendments = append(s.at.amendments, out.Text+byWhom(c.Reason, c.By))
	s.state.show(ctx)
	return out, logEvent(ctx, s.at.ref, CommandAmend, out.Text+byWhom(c.Reason, c.By)+warned(out.Warnings))
}

// warned returns the warnings to append to the text of an amendment; "" if there are none.
func warned(warnings []string) string {
	if len(warnings) == 0 {
		return ""
	}
	return "; WARNING: " + strings.Join(warnings, "; ")
}

func (s *steering) amend(ctx workflow.Context, a amendOrder) (run.Amended, error) {
	s.gate.busy++ // no stage begins meanwhile
	defer func() { s.gate.busy-- }()
	if got, ok := s.link.ask(ctx, order{Name: CommandAmend, Amendment: &a}); ok {
		if got.Refused != "" {
			return run.Amended{}, refused(fmt.Errorf("%s", got.Refused))
		}
		if got.Amended == nil {
			return run.Amended{}, refused(errors.New("the stage does not say what it has amended"))
		}
		return *got.Amended, nil
	}
	out, err := a.carryOut(ctx, s.at.ref, s.at.last.Step+1)
	if err != nil {
		return out, asFailure(err)
	}
	s.at.adopt(out)
	return out, nil
}

// amendOrder is an amendment. The receiver chooses its first step if it names none.
type amendOrder struct {
	Amendment config.Amendment `json:"amendment"`
}

// carryOut stores the amendment. It begins at the earliest step if it names none.
func (a amendOrder) carryOut(ctx workflow.Context, ref run.Ref, earliest int) (out run.Amended, err error) {
	switch from := a.Amendment.FromStep; {
	case from == 0:
		a.Amendment.FromStep = earliest
	case from < earliest:
		return out, refused(fmt.Errorf("step %d has begun: amend from step %d on, or fork the run before it (temper run fork --step %d)", from, earliest, from-1))
	}
	var control *activities.Control
	err = doControl(ctx, fmt.Sprintf("amend the configuration from step %d", a.Amendment.FromStep), control.AmendRun,
		activities.AmendRunInput{Run: ref, Amendment: a.Amendment}, &out)
	return out, err
}

func (s *steering) refuseRestart(c Command) error {
	if err := s.refuseUnopened(c); err != nil {
		return err
	}
	if _, err := forkFrom(s.at.ref.RunID, c.From); err != nil {
		return err
	}
	return nil
}

// forkFrom returns the checkpoint from which a restart begins; the default is the best one.
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

// restart checks that the next run can begin and stops this one, whose end then starts the
// next run.
func (s *steering) restart(ctx workflow.Context, c Command) (string, error) {
	from, err := forkFrom(s.at.ref.RunID, c.From)
	if err != nil {
		return "", refused(err)
	}
	from.WithoutAmendments = c.WithoutAmendments
	next := run.Input{RunID: c.RunID, Fork: from, Set: c.Set, Priority: s.at.plan.Priority, Placement: s.end.in.Placement}
	if next.RunID == "" {
		next.RunID = s.successor(ctx)
	}
	var control *activities.Control
	var found activities.CheckForkResult
	err = doControl(ctx, "find and hold the checkpoint to restart from", control.CheckFork,
		activities.CheckForkInput{Input: next, Hold: true}, &found)
	if err != nil {
		return "", asFailure(err)
	}
	if s.gate.Stopping {
		return "", refused(fmt.Errorf("the run is stopping already"))
	}
	from.From, from.Step = "", found.Step
	s.end.next = &next
	now := workflow.Now(ctx)
	s.gate.holding = holding{Stopping: true, Now: c.Now, Reason: "restart from step " + strconv.Itoa(found.Step) + because(c.Reason), By: c.By, Since: &now}
	s.gate.changed(ctx)
	answer := fmt.Sprintf("the run ends, and run %s goes on from step %d", next.RunID, found.Step)
	if len(found.Inherited) > 0 {
		answer += " with its amendments: " + strings.Join(found.Inherited, "; ")
	}
	return answer, nil
}

// successor makes the id of the run that replaces this one.
func (s *steering) successor(ctx workflow.Context) string {
	suffix := "-r" + workflow.Now(ctx).UTC().Format("0102150405")
	id := s.at.ref.RunID
	return id[:min(len(id), maxRunID-len(suffix))] + suffix
}
