// Package rollout owns the agent loop: a policy generates, its tool calls run in
// the sandbox, the results are appended, until the trajectory stops and its answer
// is verified. It does not choose problems, train or store.
//
// Invariant: a trajectory depends only on its Spec, the policy version and the
// programs' outputs, never on what else runs or in which order things finish;
// and a failure of the system never looks like a failure of the policy.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/fault"
	"temper/internal/inference"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/tool"
	"temper/sandbox"
	"temper/sandbox/judge"
)

// Config bounds what a Runner does.
type Config struct {
	// MaxToolResponseChars cuts a tool response in its middle; 0 means no limit.
	MaxToolResponseChars int
	// MaxCallsPerTurn: further calls of a turn are answered as refused; 0 means no limit.
	MaxCallsPerTurn int
	// MaxConcurrent bounds what lives at a time, at least 1: trajectories that are sampled,
	// wait for the engine or wait for a tool. How many are sampled at a time is up to the
	// engine. It also bounds the verifier jobs that run beside them.
	MaxConcurrent int
	// NoText leaves Trajectory.Text to the caller, who may not need it.
	NoText bool
	// KeepOutputs leaves the whole output of each call in the record of what it took.
	KeepOutputs bool
	// MaxAttempts is how often a failing engine or sandbox is tried, at least 1.
	MaxAttempts int
	// Backoff is the first pause between attempts; it doubles up to MaxBackoff.
	Backoff, MaxBackoff time.Duration
}

// Deps are the ports of a Runner.
type Deps struct {
	Engine inference.Engine
	// Tools answer the calls.
	Tools tool.Set
	// Executor runs verifier jobs.
	Executor sandbox.Executor
	// Sessions ends the sessions of tools; nil leaves them until they have been idle
	// for long.
	Sessions sandbox.SessionCloser
	Format   *chat.Format
	// Answer is how answers are found and compared; empty leaves it to the format.
	Answer reward.Mode
	// Env finds a problem's environment, for its verifier.
	Env func(name string) (env.Environment, error)
	// Reward gives the rewards in place of the environment; nil for none.
	Reward *Reward
	// Now is the clock behind SampleTime and ToolTime.
	Now func() time.Time
}

// Runner runs trajectories. It is safe for concurrent use.
type Runner struct {
	cfg     Config
	deps    Deps
	judge   *judge.Judge
	slots   chan struct{} // one for each trajectory that is sampled
	judging chan struct{} // one for each verifier job
	judged  stopwatch
}

// New returns a Runner.
func New(cfg Config, deps Deps) (*Runner, error) {
	if cfg.MaxConcurrent < 1 || cfg.MaxAttempts < 1 || cfg.Backoff <= 0 || cfg.MaxBackoff < cfg.Backoff {
		return nil, fmt.Errorf("rollout: max_concurrent %d, max_attempts %d, backoff %s to %s: want at least 1, 1 and a growing pause",
			cfg.MaxConcurrent, cfg.MaxAttempts, cfg.Backoff, cfg.MaxBackoff)
	}
	if deps.Engine == nil || deps.Executor == nil || deps.Tools == nil || deps.Format == nil || deps.Env == nil || deps.Now == nil {
		return nil, errors.New("rollout: a dependency is missing")
	}
	return &Runner{
		cfg: cfg, deps: deps, judge: judge.New(deps.Executor),
		slots: make(chan struct{}, cfg.MaxConcurrent), judging: make(chan struct{}, cfg.MaxConcurrent),
	}, nil
}

// Spec tells which trajectory to run.
type Spec struct {
	RunID string
	// Purpose separates draws and call ids, for example of evaluation and training.
	Purpose string
	Stage   int
	Step    int
	Problem rl.Problem
	Rollout int // index within the group
	// Seed is the run's seed; the trajectory's own seed is derived, see TrajectorySeed.
	Seed              uint64
	Version           int64 // policy version to insist on; -1 takes the one being served
	Temperature       float32
	MaxResponseTokens int
	MaxTurns          int
	// Part is set for a trajectory of which Version samples a stretch only.
	Part *Part
}

// Part is a stretch of a trajectory: what came before, and where it is cut.
type Part struct {
	// Until is the number of response tokens at which an unfinished trajectory is cut; 0 runs
	// it to its end. The cut is in the middle of a turn, or behind the tool results that
	// exceed the number.
	Until int
	// Before is the trajectory as it was cut; nil for one that begins.
	Before *rl.Trajectory
	// Cells are the cells that its Python session has run. When the trajectory is cut, the
	// runner stores the cells for the next part here.
	Cells []tool.Cell
}

// name is the unique path of the trajectory, the root of its call ids.
func (s *Spec) name() string {
	return fmt.Sprintf("%s/%s/%d/%d/%s/%d", s.RunID, s.Purpose, s.Stage, s.Step, s.Problem.ID, s.Rollout)
}

// TrajectorySeed derives the seed of all draws of the trajectory.
func (s *Spec) TrajectorySeed() uint64 {
	return rl.Seed(s.Seed, "rollout/"+s.Purpose, uint64(s.Stage), uint64(s.Step), rl.Hash(s.Problem.ID), uint64(s.Rollout))
}

// runInSlot runs a trajectory in a slot that the caller holds and gives the slot
// back as soon as nothing is left to sample. Failures of engine and sandbox are
// retried and finally give a trajectory with StopInfraError. An error means that
// there is no trajectory: ctx ended, the version is not served
// (inference.ErrStaleVersion), or the Spec cannot be run.
func (r *Runner) runInSlot(ctx context.Context, spec Spec) (rl.Trajectory, error) {
	e, stop, err := r.runAgentLoop(ctx, spec)
	if e == nil {
		return rl.Trajectory{}, err
	}
	t := e.newTrajectory(stop)
	switch {
	case err == nil && stop == rl.StopCut:
		t.Answer, t.AnswerTags = e.answer, e.answerTags
		spec.Part.Cells = e.session.Cells()
	case err == nil:
		err = r.judged.during(r.deps.Now, func() error { return e.score(ctx, &t) })
	}
	switch {
	case ctx.Err() != nil:
		return rl.Trajectory{}, ctx.Err()
	case errors.Is(err, inference.ErrStaleVersion):
		return rl.Trajectory{}, fmt.Errorf("rollout %s: %w", e.name, err)
	case fault.Of(err) == fault.UserCode:
		return rl.Trajectory{}, fmt.Errorf("rollout %s: %w", e.name, err)
	case err != nil:
		t.StopReason, t.Err = rl.StopInfraError, err.Error()
	}
	return t, nil
}

// runAgentLoop samples a trajectory and then releases the slot and the sessions of sandbox
// and engine. It returns no episode when the Spec cannot be run, and no StopReason when an
// error ended the episode.
func (r *Runner) runAgentLoop(ctx context.Context, spec Spec) (*episode, rl.StopReason, error) {
	defer r.releaseSlot()
	defer r.deps.Engine.Release(spec.name())
	environment, err := r.deps.Env(spec.Problem.Env)
	if err != nil {
		return nil, "", fmt.Errorf("rollout %s: %w", spec.name(), err)
	}
	transcript, err := r.deps.Format.Begin(spec.Problem.Prompt)
	if err != nil {
		return nil, "", fmt.Errorf("rollout %s: %w", spec.name(), err)
	}
	e := &episode{
		runner: r, spec: spec, environment: environment, name: spec.name(), version: spec.Version, transcript: transcript,
		session: tool.NewSession(spec.name()), began: r.deps.Now(),
	}
	err = e.checkSpec()
	if err == nil {
		err = e.resumePart()
	}
	if err != nil {
		return nil, "", fmt.Errorf("rollout %s: %w", e.name, err)
	}
	defer e.closeSession(ctx)
	stop, err := e.runTurns(ctx)
	return e, stop, err
}

// newTrajectory returns the record of the finished episode, without a reward so far.
func (e *episode) newTrajectory(stop rl.StopReason) rl.Trajectory {
	tr := e.transcript
	text := ""
	if !e.runner.cfg.NoText || e.runner.deps.Reward != nil {
		text = e.runner.deps.Format.Tokenizer().Decode(tr.Tokens()[tr.PromptTokens():])
	}
	return rl.Trajectory{
		ProblemID:       e.spec.Problem.ID,
		Rollout:         e.spec.Rollout,
		Stage:           e.spec.Stage,
		Step:            e.spec.Step,
		Seed:            e.spec.TrajectorySeed(),
		PolicyVersion:   e.firstVersion(),
		Spans:           e.severalSpans(),
		Tokens:          tr.Tokens(),
		PromptTokens:    tr.PromptTokens(),
		LossMask:        tr.LossMask(),
		RolloutLogprobs: tr.Logprobs(),
		Turns:           e.turns,
		StopReason:      stop,
		Text:            text,
		SampleTime:      e.sampleTime,
		ToolTime:        e.toolTime,
	}
}
