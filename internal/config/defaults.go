package config

import (
	"time"

	"temper/internal/grpo"
)

// Default is the configuration before a file is read. Changing a value here is
// a line in the CHANGELOG.
func Default() Run {
	r := Run{
		Name: "run",
		Seed: 1,
		Model: Model{
			HiddenSize: 96, NumLayers: 3, NumHeads: 4, NumKVHeads: 2, HeadDim: 24, IntermediateSize: 288,
			MaxContext: 256, RopeTheta: 10000, RMSNormEps: 1e-6, TieEmbeddings: true, InitializerRange: 0.02,
		},
		Tokenizer: Tokenizer{NumMerges: 160},
		Data:      Data{MaxDropped: 0.1},
		SFT: SFT{
			Data:      Source{Env: "chase", Levels: []int{1, 2, 3}, Num: 4096},
			BatchSize: 32, Steps: 300,
			Optimizer: defaultOptimizer(2e-3, 20, ScheduleCosine),
		},
		RL: RL{
			ProblemsPerStep: 8, RolloutsPerProblem: 16, GroupSize: 8,
			NumMinibatches: 1, MicrobatchTokens: 16384,
			Optimizer: defaultOptimizer(4e-4, 5, ScheduleConstant),
			Loss:      Loss{ClipLow: 0.2, ClipHigh: 0.28},
			RoC:       grpo.RoC{Enabled: true, Mode: grpo.ModePaper, Smoothing: 0.1},
		},
		Rollout: Rollout{
			Temperature: 1, ToolTimeout: 4 * time.Second, ToolMemory: 256 << 20,
			MaxToolResponseChars: 96, MaxCallsPerTurn: 1,
		},
		Eval:       Eval{NumProblems: 96, Rollouts: 1},
		Checkpoint: Checkpoint{EverySteps: 5, Keep: 2, Best: 1, ShardPolicies: 64 << 20},
		Watch: Watch{
			Steps: 3, RewardDrop: 0.5, RewardSteps: 5, DroppedSteps: 3, ToolErrors: 0.9, ClipRatio: 0.5,
			EntropyMin: 0.001, EntropyMax: 3, SkippedSteps: 3, InfraErrors: 0.01, StalledSteps: 5,
		},
	}
	return r
}

func defaultOptimizer(lr float64, warmup int, schedule string) Optimizer {
	return Optimizer{
		LR: lr, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1,
		WarmupSteps: warmup, Schedule: schedule,
	}
}

// DefaultStage is an element of Run.Stages before a file is read.
func DefaultStage() Stage {
	return Stage{
		Data:              Source{Env: "chase", Levels: []int{1}, Num: 512},
		MaxResponseTokens: 64, MaxTurns: 4, Until: Until{Steps: 20},
	}
}

func (s *Stage) setDefaults() { *s = DefaultStage() }
