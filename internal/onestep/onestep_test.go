// Package onestep is one step of agentic RL from end to end, without a service around it:
// the algorithm of Temper as one program. docs/one-step.md walks through it.
package onestep

import (
	"context"
	"fmt"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/env"
	"temper/internal/grpo"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/tool"
	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
	"temper/trainer"
	"temper/trainer/engine"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

const (
	seed        = 1 // of every draw
	numProblems = 6
	numRollouts = 12 // of each problem
	groupSize   = 8  // of them, those to train on
)

func TestOneStep(t *testing.T) {
	ctx := t.Context()
	format, dialogues := newFormat()
	policy := newTrainer(t, format)
	warmUp(ctx, policy, format, dialogues)
	generator := newEngine(t, policy)
	check(generator.Load(ctx, blob.Ref{}, 0))
	runner := newRunner(format, generator, newSandbox(t))

	// Sample: try each problem several times, score each try, choose, weigh.
	batch := rl.Batch{Step: 1}
	calls, reward := 0, 0.0
	problems := must(env.Chase{}.Problems(seed, env.Train, 1, numProblems))
	for _, problem := range problems {
		group := sample(ctx, runner, problem, 0)
		built := must(grpo.BuildGroup(group, grpo.Config{
			GroupSize: groupSize, RoC: grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: 0.1}, Estimator: "group", Seed: seed,
		}))
		batch.Samples = append(batch.Samples, built.Samples...)
		for i := range group.Trajectories {
			n, _ := group.Trajectories[i].ToolCounts()
			calls, reward = calls+n, reward+group.Trajectories[i].Reward
		}
		fmt.Printf("%s: %s, %d of %d trajectories to train on\n", problem.ID, built.Fate, len(built.Kept), len(group.Trajectories))
	}
	fmt.Printf("mean reward %.3f, %d tool calls, %d samples\n", reward/(numProblems*numRollouts), calls, len(batch.Samples))
	if calls == 0 || len(batch.Samples) == 0 {
		t.Fatal("the policy called no tool, or no group has both right and wrong answers")
	}

	// Learn: one update of the policy by the clipped objective.
	before := must(policy.Logprobs(ctx, batch.Samples))
	metrics := must(policy.Update(ctx, batch, trainer.UpdateOptions{Optimizer: adam(1e-3), Position: trainer.Position{Step: 1}, NumMinibatches: 1}))
	gain := weighedChange(batch, before, must(policy.Logprobs(ctx, batch.Samples)))
	fmt.Printf("loss %.4f, gradient norm %.3f, entropy %.3f, sum of advantage x change of log-probability %+.3f\n",
		metrics.Loss, metrics.GradNorm, metrics.Entropy, gain)
	if metrics.Updates != 1 || metrics.GradNorm == 0 || gain <= 0 {
		t.Errorf("the update did not make the better trajectories likelier: %+v, gain %g", metrics, gain)
	}

	// Publish: the next step is sampled by the new policy.
	check(generator.Load(ctx, blob.Ref{}, 1))
	if got := sample(ctx, runner, problems[0], 1).Trajectories[0].PolicyVersion; got != 1 {
		t.Errorf("the next step is sampled by version %d, want 1", got)
	}
}

// newFormat returns how conversations become tokens, with a vocabulary learned from
// dialogues of a teacher, which show tool calls and answers.
func newFormat() (*chat.Format, []chat.Dialogue) {
	dialogues := make([]chat.Dialogue, 1024)
	for i := range dialogues {
		dialogues[i] = must(env.Chase{}.Dialogue(seed, i, 1))
	}
	tokenizer := must(chat.TrainTokenizer(chat.Config{}, dialogues, 160))
	return must(chat.New(tokenizer, chat.Config{})), dialogues
}

// newTrainer returns a small Qwen3 with random weights, and the objective of the recipe.
func newTrainer(t *testing.T, format *chat.Format) *trainer.Trainer {
	policy := must(trainer.New(trainer.Config{
		Model: model.Config{
			VocabSize: format.Tokenizer().VocabSize(), HiddenSize: 64, IntermediateSize: 192, NumHiddenLayers: 2,
			NumAttentionHeads: 4, NumKeyValueHeads: 2, HeadDim: 16, MaxPositionEmbeddings: 128,
			RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.05,
		},
		Seed: seed, MicrobatchTokens: 4096, Temperature: 1, Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28},
	}))
	t.Cleanup(policy.Close)
	check(policy.Init(seed))
	return policy
}

func adam(lr float64) config.Optimizer {
	return config.Optimizer{LR: lr, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1, Schedule: config.ScheduleConstant}
}

// warmUp teaches the form by supervised updates, so that the first rollouts call the tool.
func warmUp(ctx context.Context, policy *trainer.Trainer, format *chat.Format, dialogues []chat.Dialogue) {
	const steps, batchSize = 100, 24
	for step := range steps {
		samples := make([]rl.Sample, batchSize)
		for i := range samples {
			t := must(format.Render(dialogues[(step*batchSize+i)%len(dialogues)]))
			samples[i] = rl.Sample{Tokens: t.Tokens(), LossMask: t.LossMask(), RolloutLogprobs: t.Logprobs()}
		}
		must(policy.SFTStep(ctx, samples, adam(4e-3), trainer.Position{Step: step + 1}))
	}
}

// newEngine returns an engine that generates with the trainer's weights as of its last Load.
func newEngine(t *testing.T, policy *trainer.Trainer) *engine.Engine {
	e := must(engine.New(engine.Config{
		Model:       policy.Model(),
		LoadWeights: func(context.Context, blob.Ref) ([]tensor.Named, error) { return policy.Weights() },
	}))
	t.Cleanup(e.Close)
	return e
}

// newSandbox returns a Python that runs each program apart from all others.
func newSandbox(t *testing.T) sandbox.Executor {
	j := must(jail.New(t.Context(), jail.Config{}))
	p := must(pool.New(t.Context(), pool.Config{Zygotes: 1}, pool.FromJail(j)))
	t.Cleanup(func() {
		check(p.Close(context.Background()))
		check(j.Close())
	})
	return p
}

// newRunner returns the agent loop: generate, run the calls, append the results, verify.
func newRunner(format *chat.Format, e *engine.Engine, s sandbox.Executor) *rollout.Runner {
	return must(rollout.New(rollout.Config{
		MaxToolResponseChars: 96, MaxCallsPerTurn: 1, MaxConcurrent: numRollouts, MaxAttempts: 1, Backoff: time.Millisecond, MaxBackoff: time.Second,
	}, rollout.Deps{
		Engine: e, Executor: s, Tools: tool.NewSet(tool.Config{Executor: s}), Format: format, Env: env.ByName, Now: time.Now,
	}))
}

// sample returns the rollouts of one problem with their rewards.
func sample(ctx context.Context, r *rollout.Runner, problem rl.Problem, version int64) rl.Group {
	return must(r.Group(ctx, rollout.Spec{
		RunID: "one-step", Purpose: "train", Stage: 1, Step: int(version) + 1, Problem: problem, Seed: seed, Version: version,
		Temperature: 1, MaxResponseTokens: 56, MaxTurns: 3,
	}, numRollouts))
}

// weighedChange sums up, over all sampled tokens, how much likelier a token became, times
// the advantage of its trajectory.
func weighedChange(batch rl.Batch, before, after [][]float32) (sum float64) {
	for i, s := range batch.Samples {
		for k, sampled := range s.LossMask {
			if sampled {
				sum += float64(s.Advantage) * float64(after[i][k]-before[i][k])
			}
		}
	}
	return sum
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
