package learner

import (
	"fmt"
	"slices"

	"temper/internal/config"
	"temper/internal/run"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
)

// timetable returns the settings of each update from a run's configuration. A run's
// training counts updates in one cursor: the supervised updates first, then the RL steps. A
// checkpoint's step is its cursor.
type timetable struct{ cfg config.Run }

// cursor of an RL step.
func (t timetable) cursor(step int) int { return t.cfg.SFT.Steps + step }

// name reports which update a cursor stands for.
func (t timetable) name(cursor int) string {
	if cursor <= t.cfg.SFT.Steps {
		return fmt.Sprintf("SFT update %d", cursor)
	}
	return fmt.Sprintf("step %d", cursor-t.cfg.SFT.Steps)
}

// stages returns the stages of the plan at a step.
func (t timetable) stages(step int) []run.Stage { return run.PlanOf("", t.cfg.At(step)).Stages }

// config is the configuration of a step: as amended by then, in its stage.
func (t timetable) config(step int) config.Run {
	cfg := t.cfg.At(step)
	for _, p := range t.stages(step) {
		if p.FirstStep <= step && step < p.FirstStep+p.Steps {
			return cfg.InStage(p.Source() - 1)
		}
	}
	return cfg
}

// endsStage reports whether a step is the last of its stage.
func (t timetable) endsStage(step int) bool {
	return slices.ContainsFunc(t.stages(step), func(p run.Stage) bool { return p.FirstStep+p.Steps-1 == step })
}

// freshMoments reports whether the optimizer forgets its moments before a step: at
// the first step of all and at the first of each stage that asks for it.
func (t timetable) freshMoments(step int) bool {
	for _, p := range t.stages(step) {
		if p.FirstStep == step {
			return step == 1 || t.cfg.Stages[p.Source()-1].FreshMoments()
		}
	}
	return false
}

// position is the place of a step in its stretch of the learning-rate schedule.
// A stretch begins at the first step of all and at the first of each stage that
// asks for it.
func (t timetable) position(step int) optimizer.Position {
	begin, end := 1, 0
	for _, p := range t.stages(step) {
		if p.FirstStep > 1 && t.cfg.Stages[p.Source()-1].FreshSchedule() {
			if p.FirstStep > step {
				break
			}
			begin = p.FirstStep
		}
		end = p.FirstStep + p.Steps - 1
	}
	return optimizer.Position{Step: step - begin + 1, Total: end - begin + 1}
}

// reference is the cursor of the reference policy of a step. It is the policy after
// SFT, or the one at the start of the newest stage that resets the whole optimizer.
// ok is false where the objective has no reference policy.
func (t timetable) reference(step int) (cursor int, ok bool) {
	if t.cfg.RL.Loss.KL.Coefficient == 0 {
		return 0, false
	}
	cursor = t.cfg.SFT.Steps
	for _, p := range t.stages(step) {
		if p.FirstStep <= step && t.cfg.Stages[p.Source()-1].ResetOptimizer {
			cursor = t.cursor(p.FirstStep - 1)
		}
	}
	return cursor, true
}

// graphs are the settings that a learner cannot change once it is built.
type graphs struct {
	Loss             config.Loss
	Temperature      float64
	MicrobatchTokens int
	Work             packing.Work
	Entropies        bool
}

func graphsOf(cfg config.Run) graphs {
	return graphs{
		Loss: cfg.RL.Loss, Temperature: cfg.Rollout.Temperature, MicrobatchTokens: cfg.RL.MicrobatchTokens,
		Work: packing.WorkOf(cfg), Entropies: cfg.Tracker.TokenStats > 0,
	}
}
