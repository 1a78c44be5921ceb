package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/run"
)

// course is what a run knows of itself: its plan, how far it has come, and what
// was measured.
type course struct {
	plan    run.Plan
	ref     run.Ref
	policy  run.Policy
	sft     run.SFTResult
	reports []run.StageReport
	// skips are reasons to leave out stages, by index from 0; made counts the
	// steps of each stage.
	skips map[int]string
	made  []int
	// inherited are the skips of a fork's parent, by index from 1.
	inherited map[int]run.Skip

	prepared   bool // the data is there
	doing      State
	closing    bool   // the summary is being written
	ended      State  // how, where it is no good end
	why        string // it ended so
	childID    string // workflow id of the stage that runs now
	sftStep    int
	stage      int // from 1
	last       StepNumbers
	notes      []string // by stage
	amendments []string
	saved      int // step of the newest checkpoint that is known; -1 for none
	summary    string
	restarted  string // the run that goes on instead of this one
	setsAt     *int64 // the policy that was measured last on eval.sets
	alerts     []string
	room       tenancy
}

func newCourse() course {
	return course{doing: StatePreparing, skips: map[int]string{}, saved: -1}
}

// applyPlan takes over the plan that OpenRun returned.
func (r *course) applyPlan() {
	r.ref = run.Ref{RunID: r.plan.RunID, Config: r.plan.Config}
	r.notes, r.made = make([]string, len(r.plan.Stages)), make([]int, len(r.plan.Stages))
	for _, p := range r.plan.Stages {
		r.reports = append(r.reports, run.StageReport{Plan: p})
	}
}

// adopt goes on under an amended configuration: later stages may be longer or
// begin later, and stages may have been added.
func (r *course) adopt(out run.Amended) {
	r.ref.Config, r.plan.CheckpointEvery = out.Config, out.CheckpointEvery
	r.plan.Stages = out.Stages
	for i, p := range out.Stages {
		if i < len(r.reports) {
			p.Offset = r.reports[i].Plan.Offset
			r.reports[i].Plan = p
			continue
		}
		again := run.StageReport{Plan: p, Before: r.reports[p.Source()-1].Before}
		r.reports, r.notes, r.made = append(r.reports, again), append(r.notes, ""), append(r.made, 0)
	}
}

// adoptAnswer adopts what the stage says that it has amended, if that can be.
func (r *course) adoptAnswer(out run.Amended) error {
	if len(out.Stages) < len(r.reports) || out.Config.Key == "" {
		return fmt.Errorf("the stage answers with %d stages and configuration %q, which fits no run of %d stages", len(out.Stages), brief(out.Config.Key), len(r.reports))
	}
	for i, p := range out.Stages {
		if source := p.Source(); p.Index != i+1 || source < 1 || source > i+1 || source > len(r.reports) || p.FirstStep < 1 || p.Steps < 0 {
			return fmt.Errorf("the stage answers with a stage %d that cannot be: index %d, of %d, %d steps from %d", i+1, p.Index, p.Of, p.Steps, p.FirstStep)
		}
	}
	r.adopt(out)
	return nil
}

// stageNamed finds a stage by name; an empty one is the current stage.
func (r *course) stageNamed(name string) (int, error) {
	var names []string
	for i, report := range r.reports {
		if report.Plan.Name == name || name == "" && report.Plan.Index == r.stage {
			return i, nil
		}
		names = append(names, report.Plan.Name)
	}
	if name == "" {
		return 0, fmt.Errorf("no stage runs yet: name one of %s", strings.Join(names, ", "))
	}
	return 0, fmt.Errorf("no stage %q: the run has %s", name, strings.Join(names, ", "))
}

// madeBefore counts the steps that earlier runs of a stage's problems made.
func (r *course) madeBefore(i int) int {
	n := 0
	for j := range i {
		if r.reports[j].Plan.Source() == r.reports[i].Plan.Source() {
			n += r.made[j]
		}
	}
	return n
}

// inheritedSkip is what the parent of a fork was told of a stage, by its index
// from 1.
func (r *course) inheritedSkip(index int) (run.Skip, bool) {
	skip, ok := r.inherited[index]
	return skip, ok
}

// stageInput is the input of a stage, but for what was asked of the run.
func (r *course) stageInput(plan run.Stage) StageInput {
	next, before := plan.FirstStep, 0
	if r.plan.Fork != nil {
		next = max(next, r.plan.Fork.Step+1)
	}
	if skip, ok := r.inheritedSkip(plan.Index); ok {
		before = plan.FirstStep + skip.After
	}
	return StageInput{
		EndBefore: before,
		Run:       r.ref, Plan: plan, NumSteps: r.plan.NumSteps(), CheckpointEvery: r.plan.CheckpointEvery,
		NumShards: max(NumRolloutShards, r.plan.NumRolloutShards), StepsPerExecution: StepsPerExecution,
		SearchAttributes: r.plan.SearchAttributes, ProgressAttributes: r.plan.ProgressAttributes, Priority: r.plan.Priority,
		Window: r.plan.Window, PartialTokens: r.plan.PartialTokens, EvalSets: r.plan.EvalSets, Queues: r.room.queues(),
		Progress: StageProgress{
			NextStep: next, Policy: r.policy, Last: r.last, StepSeconds: r.last.Seconds,
		},
	}
}

// onTrainer and onRollouts are the options of activities of this run.
func (r *course) onTrainer(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithPriority(onTrainer(ctx, r.room.queues(), summary), priority(r.plan.Priority))
}

func (r *course) onRollouts(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithPriority(onRollouts(ctx, r.room.queues(), summary), priority(r.plan.Priority))
}

// publish makes a policy of the state after SFT, or of that where a fork begins.
func (r *course) publish(ctx workflow.Context, step int) error {
	var trainer *activities.Trainer
	return workflow.ExecuteActivity(r.onTrainer(ctx, fmt.Sprintf("publish policy %d", step)), trainer.PublishPolicy,
		activities.PublishInput{Run: r.ref, Step: step}).Get(ctx, &r.policy)
}

// describe sets search attributes, where the server knows them.
func (r *course) describe(ctx workflow.Context, updates []temporal.SearchAttributeUpdate) error {
	if !r.plan.SearchAttributes {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}
