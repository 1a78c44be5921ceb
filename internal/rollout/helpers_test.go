package rollout_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/inference/inferencetest"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/tool"
	"temper/internal/tool/builtin"
	"temper/sandbox"
)

// execute is an Executor of one function.
type execute func(ctx context.Context, req sandbox.Request) (sandbox.Result, error)

func (f execute) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	return f(ctx, req)
}

// prints answers each call with the same text.
func prints(text string) execute {
	return func(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: text + "\n", Usage: sandbox.Usage{Wall: time.Millisecond}}, nil
	}
}

func newFormat(t testing.TB) *chat.Format {
	t.Helper()
	var dialogues []chat.Dialogue
	for i := range 50 {
		d, err := env.Chase{}.Dialogue(1, i, 2)
		if err != nil {
			t.Fatal(err)
		}
		dialogues = append(dialogues, d)
	}
	tok, err := chat.TrainTokenizer(chat.Config{}, dialogues, 100)
	if err != nil {
		t.Fatal(err)
	}
	f, err := chat.New(tok, chat.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// says is an engine that says one text per turn, each ended by the end token.
func says(f *chat.Format, texts ...string) *inferencetest.Script {
	var turns [][]int32
	for _, text := range texts {
		turns = append(turns, append(f.Tokenizer().EncodeSpecial(text), f.Stop()[0]))
	}
	return &inferencetest.Script{Reply: inferencetest.Turns(f.Stop()[0], 1, turns...)}
}

func call(code string) string {
	return chat.RenderCall(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: code}.Arguments()})
}

func problem() rl.Problem {
	return rl.Problem{ID: "chase1-1", Env: "chase", Level: 1, Prompt: "k396?", Answer: "116", Fixture: "db = {'k396': 116}"}
}

func spec() rollout.Spec {
	return rollout.Spec{
		RunID: "run", Purpose: "train", Stage: 1, Step: 2, Problem: problem(), Seed: 9,
		Temperature: 1, MaxResponseTokens: 200, MaxTurns: 4,
	}
}

// limits are those of a runner and of its tools.
type limits struct {
	rollout.Config
	ToolTimeout  time.Duration
	ToolMemory   int64
	SessionTools []string
	Files        []tool.File
	Reward       *rollout.Reward
	Answer       reward.Mode
}

func config() limits {
	return limits{ToolTimeout: 2 * time.Second, ToolMemory: 1 << 28, Config: rollout.Config{
		MaxToolResponseChars: 100, MaxCallsPerTurn: 2,
		MaxConcurrent: 4, MaxAttempts: 3, Backoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond,
	}}
}

// deps are the ports of a runner of these limits.
func (l limits) deps(f *chat.Format, engine *inferencetest.Script, executor sandbox.Executor) rollout.Deps {
	return rollout.Deps{
		Engine: engine, Executor: executor, Format: f, Env: env.ByName, Now: time.Now, Reward: l.Reward, Answer: l.Answer,
		Tools: tool.NewSet(tool.Config{
			Executor: executor, Limits: sandbox.Limits{Wall: l.ToolTimeout, Memory: l.ToolMemory}, SessionTools: l.SessionTools, Files: l.Files,
		}),
	}
}

func newRunner(t testing.TB, f *chat.Format, engine *inferencetest.Script, executor sandbox.Executor) *rollout.Runner {
	t.Helper()
	return newRunnerWith(t, config(), f, engine, executor)
}

func newRunnerWith(t testing.TB, cfg limits, f *chat.Format, engine *inferencetest.Script, executor sandbox.Executor) *rollout.Runner {
	t.Helper()
	r, err := rollout.New(cfg.Config, cfg.deps(f, engine, executor))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// run runs one trajectory that must come to an end.
func run(t testing.TB, r *rollout.Runner, s rollout.Spec) rl.Trajectory {
	t.Helper()
	got, err := r.Rollout(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	return got
}

// clocks leaves out what a clock says of a trajectory.
func clocks() cmp.Option {
	return cmp.Options{
		cmpopts.IgnoreFields(rl.Trajectory{}, "SampleTime", "ToolTime"),
		cmpopts.IgnoreFields(rl.Turn{}, "Begin", "Generated"), cmpopts.IgnoreFields(rl.ToolCall{}, "Spent"),
	}
}
