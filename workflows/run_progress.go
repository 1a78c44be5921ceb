package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"temper/internal/placement"
	"temper/internal/run"
)

// progress is how far a run has come: its plan, its policy, and what its stages measured.
type progress struct {
	plan    run.Plan
	ref     run.Ref
	policy  run.Policy
	sft     run.SFTResult
	sftStep int
	reports []run.StageReport
	// skips are reasons to leave out stages, by index from 0; made counts the steps of each
	// stage, and notes say why one ended early.
	skips map[int]string
	made  []int
	notes []string
	// inherited are the skips of a fork's parent, by index from 1.
	inherited map[int]run.Skip

	prepared   bool // the data is there
	stage      int  // from 1
	last       StepNumbers
	amendments []string
	saved      int // step of the newest checkpoint that is known; -1 for none
}

func newProgress() *progress { return &progress{skips: map[int]string{}, saved: -1} }

// applyPlan takes over the plan that OpenRun returned.
func (p *progress) applyPlan() {
	p.ref = run.Ref{RunID: p.plan.RunID, Config: p.plan.Config}
	p.notes, p.made = make([]string, len(p.plan.Stages)), make([]int, len(p.plan.Stages))
	for _, stage := range p.plan.Stages {
		p.reports = append(p.reports, run.StageReport{Plan: stage})
	}
}

// adopt continues under an amended configuration: later stages may be longer or begin
// later, and stages may have been added.
func (p *progress) adopt(out run.Amended) {
	p.ref.Config, p.plan.CheckpointEvery = out.Config, out.CheckpointEvery
	p.plan.Stages = out.Stages
	for i, stage := range out.Stages {
		if i < len(p.reports) {
			stage.Offset = p.reports[i].Plan.Offset
			p.reports[i].Plan = stage
			continue
		}
		again := run.StageReport{Plan: stage, Before: p.reports[stage.Source()-1].Before}
		p.reports, p.notes, p.made = append(p.reports, again), append(p.notes, ""), append(p.made, 0)
	}
}

// adoptAnswer adopts what the stage says that it has amended, if that can be.
func (p *progress) adoptAnswer(out run.Amended) error {
	if len(out.Stages) < len(p.reports) || out.Config.Key == "" {
		return fmt.Errorf("the stage answers with %d stages and configuration %q, which fits no run of %d stages", len(out.Stages), shorten(out.Config.Key), len(p.reports))
	}
	for i, stage := range out.Stages {
		if source := stage.Source(); stage.Index != i+1 || source < 1 || source > i+1 || source > len(p.reports) || stage.FirstStep < 1 || stage.Steps < 0 {
			return fmt.Errorf("the stage answers with a stage %d that cannot be: index %d, of %d, %d steps from %d", i+1, stage.Index, stage.Of, stage.Steps, stage.FirstStep)
		}
	}
	p.adopt(out)
	return nil
}

// stageNamed finds a stage by name; an empty one is the current stage.
func (p *progress) stageNamed(name string) (int, error) {
	var names []string
	for i, report := range p.reports {
		if report.Plan.Name == name || name == "" && report.Plan.Index == p.stage {
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
func (p *progress) madeBefore(i int) int {
	n := 0
	for j := range i {
		if p.reports[j].Plan.Source() == p.reports[i].Plan.Source() {
			n += p.made[j]
		}
	}
	return n
}

// inheritedSkip is what the parent of a fork was told of a stage, by its index
// from 1.
func (p *progress) inheritedSkip(index int) (run.Skip, bool) {
	skip, ok := p.inherited[index]
	return skip, ok
}

// stageInput is the input of a stage, but for what was asked of the run.
func (p *progress) stageInput(plan run.Stage, queues placement.Queues) StageInput {
	next, before := plan.FirstStep, 0
	if p.plan.Fork != nil {
		next = max(next, p.plan.Fork.Step+1)
	}
	if skip, ok := p.inheritedSkip(plan.Index); ok {
		before = plan.FirstStep + skip.After
	}
	return StageInput{
		EndBefore: before,
		Run:       p.ref, Plan: plan, NumSteps: p.plan.NumSteps(), CheckpointEvery: p.plan.CheckpointEvery,
		NumShards: max(NumRolloutShards, p.plan.NumRolloutShards), StepsPerExecution: StepsPerExecution,
		SearchAttributes: p.plan.SearchAttributes, ProgressAttributes: p.plan.ProgressAttributes, Priority: p.plan.Priority,
		Window: p.plan.Window, PartialTokens: p.plan.PartialTokens, EvalSets: p.plan.EvalSets, Queues: queues,
		Progress: StageProgress{
			NextStep: next, Policy: p.policy, Last: p.last, StepSeconds: p.last.Seconds,
		},
	}
}

// describe sets search attributes, where the server knows them.
func (p *progress) describe(ctx workflow.Context, updates []temporal.SearchAttributeUpdate) error {
	if !p.plan.SearchAttributes {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}
