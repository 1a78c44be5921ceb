package config_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
)

// TestPaperRecipe keeps the numbers of arXiv 2508.20722, sections 2.2 and 4, in
// the configuration that says it is the paper's.
func TestPaperRecipe(t *testing.T) {
	run, err := config.LoadFile("../../configs/rstar2-14b.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	rl, sft := run.RL, run.SFT
	got := map[string]any{
		"problems": rl.ProblemsPerStep, "rollouts": rl.RolloutsPerProblem, "kept": rl.GroupSize, "updates of a step": rl.NumMinibatches,
		"clip": [2]float64{rl.Loss.ClipLow, rl.Loss.ClipHigh}, "kl": rl.Loss.KL.Coefficient, "mean over": rl.Loss.Aggregation,
		"lr": rl.Optimizer.LR, "warm-up": rl.Optimizer.WarmupSteps, "schedule": rl.Optimizer.Schedule, "roc": rl.RoC.Mode,
		"sft lr": sft.Optimizer.LR, "sft batch": sft.BatchSize, "sft schedule": sft.Optimizer.Schedule,
		"sft epochs":      sft.Epochs,
		"sft warm-up %":   math.Round(100 * float64(sft.Optimizer.WarmupSteps) / (sft.Epochs * dialogues / float64(sft.BatchSize))),
		"sft gate":        sft.Gate,
		"temperature":     run.Rollout.Temperature,
		"tool time-out":   run.Rollout.ToolTimeout.String(),
		"pass@1 over":     run.Eval.Rollouts,
		"without prompts": run.Model.MaxContext - 2048,
		"evaluated up to": run.Eval.MaxContext - 2048,
		"refill":          rl.Refill.Rounds, "overlong": rl.Loss.Overlong,
	}
	want := map[string]any{
		"problems": 512, "rollouts": 32, "kept": 16, "updates of a step": 1,
		"clip": [2]float64{0.2, 0.28}, "kl": 0.0, "mean over": "",
		"lr": 1e-6, "warm-up": 20, "schedule": "constant", "roc": "paper",
		"sft lr": 5e-6, "sft batch": 128, "sft schedule": "cosine", "sft epochs": 3.0, "sft warm-up %": 4.0,
		"temperature": 1.0, "tool time-out": "4s", "pass@1 over": 16, "without prompts": 12 << 10, "evaluated up to": 30 << 10,
		"sft gate": config.SFTGate{MinCopied: 0.9, MinReward: 0.15, MaxReward: 0.6}, "refill": 0, "overlong": "",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("not the paper's (-paper +configs/rstar2-14b.yaml):\n%s", d)
	}

	type stage struct {
		steps, tokens, turns, filter int
		fresh                        bool
	}
	var stages []stage
	for _, s := range run.Stages {
		stages = append(stages, stage{s.Until.Steps, s.MaxResponseTokens, s.MaxTurns, s.Filter.Rollouts, s.ResetOptimizer})
	}
	paper := []stage{{300, 8 << 10, 10, 0, false}, {85, 12 << 10, 10, 0, false}, {125, 12 << 10, 15, 8, true}}
	if d := cmp.Diff(paper, stages, cmp.AllowUnexported(stage{})); d != "" {
		t.Errorf("not the paper's stages (-paper +configs/rstar2-14b.yaml):\n%s", d)
	}
	first := run.Stages[0].Until.Plateau
	if !first.On() || first.ClipMin >= 0.1 || first.ClipMax <= 0.1 || first.Eval != "aime24" {
		t.Errorf("stage 1 ends by %+v, want by reward and AIME24 with the clip ratio near 10 %%", first)
	}
	if last := run.Stages[2]; last.Filter.Keeps(1) || !last.Filter.Keeps(0) || !last.ResetOptimizer {
		t.Errorf("stage 3 filters by %+v, want those solved 8 times of 8 to go, and no others", last.Filter)
	}
	if w := run.Watch.Collapse; !w.On() || w.Then != config.CollapsePause {
		t.Errorf("the collapse after step 510 is watched by %+v", w)
	}
}

// TestPaperEvaluations keeps those of section 5.1: pass@1 as the mean of 16 samples, 30
// turns, 30K tokens and temperature 0.6.
func TestPaperEvaluations(t *testing.T) {
	run, err := config.LoadFile("../../configs/rstar2-14b.yaml", nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range run.Eval.Sets {
		names = append(names, s.Name)
		if s.Rollouts != 16 || s.Temperature != 0.6 || s.MaxTurns != 30 || s.MaxResponseTokens != 30<<10 || s.Greedy {
			t.Errorf("%s is evaluated by %+v, want 16 samples at 0.6 with 30 turns and 30K tokens", s.Name, s)
		}
	}
	if d := cmp.Diff([]string{"aime24", "aime25", "hmmt25", "math500", "gpqa-diamond"}, names); d != "" {
		t.Errorf("sets (-want +got):\n%s", d)
	}
}

// dialogues of the paper's supervised training: 165K, 30K and 27K.
const dialogues = 222_000
