package workflows_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run"
)

// The method sets that the workflows call; the fakes and the real structs must
// both have them, so that a fake cannot drift away.
type (
	controlMethods interface {
		OpenRun(context.Context, run.Input) (run.Plan, error)
		PrepareData(context.Context, activities.PrepareDataInput) (run.Prepared, error)
		SelectProblems(context.Context, activities.SelectProblemsInput) (activities.SelectProblemsResult, error)
		BuildBatch(context.Context, activities.BuildBatchInput) (run.BuiltBatch, error)
		LogStep(context.Context, activities.LogStepInput) (run.Watched, error)
		RaiseAlert(context.Context, activities.RaiseAlertInput) error
		JudgeStage(context.Context, activities.JudgeStageInput) (run.StageVerdict, error)
		JudgeGate(context.Context, activities.JudgeGateInput) (run.GateResult, error)
		LogEvent(context.Context, run.Event) error
		FinishRun(context.Context, activities.FinishRunInput) (run.FinishResult, error)
		AmendRun(context.Context, activities.AmendRunInput) (run.Amended, error)
		CheckFork(context.Context, activities.CheckForkInput) (activities.CheckForkResult, error)
	}
	trainerMethods interface {
		TrainSFT(context.Context, activities.TrainSFTInput) (run.SFTResult, error)
		PublishPolicy(context.Context, activities.PublishInput) (run.Policy, error)
		TrainStep(context.Context, activities.TrainStepInput) (run.Trained, error)
		SaveCheckpoint(context.Context, activities.SaveCheckpointInput) error
	}
	rolloutMethods interface {
		SampleGroups(context.Context, activities.SampleGroupsInput) (run.Sampled, error)
		EvaluatePolicy(context.Context, activities.EvaluateInput) (run.Evaluation, error)
		FilterProblems(context.Context, activities.FilterInput) (run.FilterResult, error)
		MendObject(context.Context, activities.MendInput) error
	}
)

var (
	_ controlMethods = (*activities.Control)(nil)
	_ controlMethods = (*fakeControl)(nil)
	_ trainerMethods = (*activities.Trainer)(nil)
	_ trainerMethods = (*fakeTrainer)(nil)
	_ rolloutMethods = (*activities.Rollouts)(nil)
	_ rolloutMethods = (*fakeRollouts)(nil)
)

// world is what the fake activities share: the plan they serve, what was
// called, and faults to inject.
type world struct {
	inherited []string // amendments that a fork takes over
	plan      run.Plan
	// empty lists steps whose batch has no sample; left is the filter's answer.
	empty map[int]bool
	left  int
	// opening, when set, is called by OpenRun, and checks refuses as the real one does.
	opening func(context.Context) error
	// away, when set, says whether the store is away from a call.
	away func(call string) bool
	// hang, when set, says whether the store never answers a call.
	hang   func(call string) bool
	checks func(run.Input) error
	// hold makes every sampling and training last so long.
	hold time.Duration

	mu sync.Mutex
	// faults maps a call, as logged, to the errors of its next attempts.
	faults map[string][]error
	calls  []string
	events []string
	skips  []run.Skip
	finish []activities.FinishRunInput
	trains []activities.TrainStepInput
	logs   []activities.LogStepInput
	sft    []activities.TrainSFTInput
	amends []activities.AmendRunInput
	// watched is what the watch says of steps.
	watched map[int]run.Watched
	opened  map[string]run.Input
	ablated map[string]string // how runs of an ablation ended, or what is stored of them
	// stuck lists calls that last until they are cancelled.
	stuck map[string]bool
	// verdicts are what becomes of the stage after steps, and gate of the policy after SFT;
	// signals counts the groups with a signal that a call samples.
	verdicts map[int]run.StageVerdict
	judged   []activities.JudgeStageInput
	gate     run.GateResult
	signals  int
	// spans are what was asked for of trajectories that are cut, and endsAfter, by step,
	// after how many of them none goes on.
	spans     []string
	endsAfter map[int]int
	// configs maps calls to the key of the configuration that they got.
	configs map[string]string
}

func newWorld(stages ...int) *world {
	w := &world{
		plan:   run.Plan{RunID: "demo", SFTSteps: 30, CheckpointEvery: 2},
		left:   1,
		empty:  map[int]bool{},
		faults: map[string][]error{}, configs: map[string]string{}, opened: map[string]run.Input{}, ablated: map[string]string{},
	}
	next := 1
	for i, n := range stages {
		w.plan.Stages = append(w.plan.Stages, run.Stage{
			Index: i + 1, Name: fmt.Sprintf("hop%d", i+1), FirstStep: next, Steps: n,
		})
		next += n
	}
	return w
}

// called notes a call and returns the injected fault of this attempt.
func (w *world) called(format string, args ...any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	call := fmt.Sprintf(format, args...)
	w.calls = append(w.calls, call)
	if w.away != nil && w.away(call) {
		return infraError()
	}
	if f := w.faults[call]; len(f) > 0 {
		w.faults[call] = f[1:]
		return f[0]
	}
	return nil
}

// linger holds a stuck call until it is cancelled, as its heartbeat tells it.
func (w *world) linger(ctx context.Context, format string, args ...any) error {
	for {
		w.mu.Lock()
		stuck := w.stuck[fmt.Sprintf(format, args...)]
		w.mu.Unlock()
		if !stuck {
			return nil
		}
		activity.RecordHeartbeat(ctx)
		if err := wait(ctx, time.Millisecond); err != nil {
			return err
		}
	}
}

// log returns the calls so far, without the logging ones.
func (w *world) log() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func (w *world) count(prefix string) int {
	n := 0
	for _, c := range w.log() {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

func policyAt(version int) run.Policy {
	return run.Policy{Version: int64(version), Ref: blob.RefOf(fmt.Sprintf("policy/%d", version), nil)}
}

type fakeControl struct{ w *world }

func (c *fakeControl) OpenRun(ctx context.Context, in run.Input) (run.Plan, error) {
	if err := c.w.called("open"); err != nil {
		return run.Plan{}, err
	}
	if c.w.checks != nil {
		if err := c.w.checks(in); err != nil {
			return run.Plan{}, err
		}
	}
	if c.w.opening != nil {
		if err := c.w.opening(ctx); err != nil {
			return run.Plan{}, err
		}
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.opened[in.RunID] = in
	plan := c.w.plan
	plan.RunID, plan.Priority = in.RunID, in.Priority
	return plan, nil
}

// AmendRun appends a stage where one is repeated, and makes the first stage as
// long as "steps" says.
func (c *fakeControl) AmendRun(_ context.Context, in activities.AmendRunInput) (run.Amended, error) {
	if err := c.w.called("amend from %d", in.Amendment.FromStep); err != nil {
		return run.Amended{}, err
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.amends = append(c.w.amends, in)
	stages := slices.Clone(c.w.plan.Stages)
	for _, a := range c.w.amends {
		for _, s := range c.w.plan.Stages {
			if s.Name == a.Amendment.Repeat {
				last := stages[len(stages)-1]
				stages = append(stages, run.Stage{
					Index: len(stages) + 1, Name: s.Name + ".2", FirstStep: last.FirstStep + last.Steps, Steps: s.Steps, Of: s.Index,
				})
			}
		}
		if n, err := strconv.Atoi(a.Amendment.Set["steps"]); err == nil {
			stages[0].Steps = n
		}
	}
	return run.Amended{
		Config: blob.RefOf(fmt.Sprintf("config-%d", len(c.w.amends)), nil), Stages: stages, CheckpointEvery: 2, Text: in.Amendment.String(),
	}, nil
}

func (c *fakeControl) CheckFork(_ context.Context, in activities.CheckForkInput) (activities.CheckForkResult, error) {
	out := activities.CheckForkResult{Step: 2}
	if !in.Input.Fork.WithoutAmendments {
		out.Inherited = c.w.inherited
	}
	return out, c.w.called("check fork %s of %s", in.Input.RunID, in.Input.Fork.RunID)
}

func (c *fakeControl) PrepareData(context.Context, activities.PrepareDataInput) (run.Prepared, error) {
	return run.Prepared{Problems: 8}, c.w.called("prepare")
}

func (c *fakeControl) SelectProblems(ctx context.Context, in activities.SelectProblemsInput) (activities.SelectProblemsResult, error) {
	err := c.w.called("select %d/%d", in.Step, in.StageStep)
	if c.w.hang != nil && c.w.hang(fmt.Sprintf("select %d/%d", in.Step, in.StageStep)) {
		<-ctx.Done()
		return activities.SelectProblemsResult{}, ctx.Err()
	}
	c.w.mu.Lock()
	c.w.configs[fmt.Sprintf("select %d", in.Step)] = in.Run.Config.Key
	c.w.mu.Unlock()
	if in.Round > 0 {
		var more []string
		for i := range in.Num {
			more = append(more, fmt.Sprintf("r%d-%d", in.Round, i+1))
		}
		return activities.SelectProblemsResult{ProblemIDs: more}, err
	}
	return activities.SelectProblemsResult{ProblemIDs: []string{"p1", "p2", "p3"}}, err
}

func (c *fakeControl) BuildBatch(_ context.Context, in activities.BuildBatchInput) (run.BuiltBatch, error) {
	if err := c.w.called("batch %d", in.Step); err != nil {
		return run.BuiltBatch{}, err
	}
	out := run.BuiltBatch{
		Batch: blob.RefOf(fmt.Sprintf("batch/%d", in.Step), nil), Samples: 6,
		Stats: run.StepRollouts{RewardMean: 0.5, ToolErrorRate: 0.1, MeanResponseTokens: 40},
	}
	if c.w.empty[in.Step] {
		out.Samples = 0
	}
	return out, nil
}

func (c *fakeControl) LogStep(ctx context.Context, in activities.LogStepInput) (run.Watched, error) {
	// The SDK's test environment watches heartbeats by the real clock, over all attempts.
	activity.RecordHeartbeat(ctx)
	err := c.w.called("log %d", in.Step)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.logs = append(c.w.logs, in)
	return c.w.watched[in.Step], err
}

func (c *fakeControl) JudgeStage(_ context.Context, in activities.JudgeStageInput) (run.StageVerdict, error) {
	err := c.w.called("judge %d", in.Step)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.judged = append(c.w.judged, in)
	return c.w.verdicts[in.Step], err
}

func (c *fakeControl) JudgeGate(context.Context, activities.JudgeGateInput) (run.GateResult, error) {
	return c.w.gate, c.w.called("judge gate")
}

func (c *fakeControl) RaiseAlert(ctx context.Context, in activities.RaiseAlertInput) error {
	return c.LogEvent(ctx, run.Event{Kind: run.EventAlert, Text: in.Alert.Text})
}

func (c *fakeControl) LogEvent(_ context.Context, in run.Event) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.away != nil && c.w.away("event "+in.Kind) {
		return infraError()
	}
	c.w.events = append(c.w.events, in.Kind+": "+in.Text)
	if in.Skip != nil {
		c.w.skips = append(c.w.skips, *in.Skip)
	}
	return nil
}

func (c *fakeControl) FinishRun(_ context.Context, in activities.FinishRunInput) (run.FinishResult, error) {
	err := c.w.called("finish")
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.finish = append(c.w.finish, in)
	return run.FinishResult{SummaryPath: "runs/" + in.Run.RunID + "/summary.json"}, err
}

type fakeTrainer struct{ w *world }

func (t *fakeTrainer) TrainSFT(ctx context.Context, in activities.TrainSFTInput) (run.SFTResult, error) {
	err := t.w.called("sft %d-%d", in.From, in.To)
	if err := t.w.linger(ctx, "sft %d-%d", in.From, in.To); err != nil {
		return run.SFTResult{}, err
	}
	t.w.mu.Lock()
	defer t.w.mu.Unlock()
	t.w.sft = append(t.w.sft, in)
	return run.SFTResult{Metrics: rl.TrainMetrics{Loss: 1.5}, TrainTime: time.Second}, err
}

func (t *fakeTrainer) PublishPolicy(_ context.Context, in activities.PublishInput) (run.Policy, error) {
	return policyAt(in.Step), t.w.called("publish %d", in.Step)
}

func (t *fakeTrainer) TrainStep(ctx context.Context, in activities.TrainStepInput) (run.Trained, error) {
	if err := t.w.called("train %d", in.Step); err != nil {
		return run.Trained{}, err
	}
	t.w.mu.Lock()
	t.w.trains = append(t.w.trains, in)
	t.w.mu.Unlock()
	return run.Trained{Policy: policyAt(in.Step)}, wait(ctx, t.w.hold)
}

func (t *fakeTrainer) SaveCheckpoint(_ context.Context, in activities.SaveCheckpointInput) error {
	return t.w.called("save %d", in.Step)
}

type fakeRollouts struct{ w *world }

func (r *fakeRollouts) SampleGroups(ctx context.Context, in activities.SampleGroupsInput) (run.Sampled, error) {
	if err := r.w.called("sample %d with %d: %s", in.Step, in.Policy.Version, strings.Join(in.ProblemIDs, ",")); err != nil {
		return run.Sampled{}, err
	}
	if err := r.w.linger(ctx, "sample %d", in.Step); err != nil {
		return run.Sampled{}, err
	}
	n := len(in.ProblemIDs)
	if in.Until > 0 || len(in.Before) > 0 {
		r.w.mu.Lock()
		span := fmt.Sprintf("%d: ", in.Step)
		for _, s := range in.Before {
			span += fmt.Sprintf("%d to %d, ", s.Policy.Version, s.Until)
		}
		r.w.spans = append(r.w.spans, span+fmt.Sprintf("%d to %d", in.Policy.Version, in.Until))
		ends := r.w.endsAfter[in.Step]
		r.w.mu.Unlock()
		if in.Until > 0 && len(in.Before)+1 != ends {
			return run.Sampled{Open: n, Wall: time.Second}, wait(ctx, r.w.hold)
		}
	}
	return run.Sampled{Groups: n, Tokens: 100 * n, Wall: time.Duration(n) * time.Second, Signals: min(n, r.w.signals)}, wait(ctx, r.w.hold)
}

func (r *fakeRollouts) EvaluatePolicy(ctx context.Context, in activities.EvaluateInput) (run.Evaluation, error) {
	if in.Set != "" {
		return run.Evaluation{Set: in.Set, PolicyVersion: in.Policy.Version}, r.w.called("eval set %s with %d", in.Set, in.Policy.Version)
	}
	err := r.w.called("eval stage %d %s with %d", in.Stage, in.Label, in.Policy.Version)
	if err := r.w.linger(ctx, "eval stage %d %s with %d", in.Stage, in.Label, in.Policy.Version); err != nil {
		return run.Evaluation{}, err
	}
	return run.Evaluation{Stage: in.Stage, PolicyVersion: in.Policy.Version, Accuracy: 0.25}, err
}

func (r *fakeRollouts) FilterProblems(_ context.Context, in activities.FilterInput) (run.FilterResult, error) {
	err := r.w.called("filter stage %d with %d", in.Stage, in.Policy.Version)
	return run.FilterResult{Problems: 8, Removed: 8 - r.w.left, Left: r.w.left}, err
}

func (r *fakeRollouts) MendObject(_ context.Context, in activities.MendInput) error {
	return r.w.called("mend %s", in.Damaged.Key)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func infraError() error { return fmt.Errorf("connection refused") }

func finalError(kind, text string) error {
	return temporal.NewNonRetryableApplicationError(text, kind, nil)
}
