package config

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The values that a mode or a name may take.
const (
	RoCPaper    = "paper"
	RoCReleased = "released"
)

var (
	environments = []string{"chase", "verbs", "math"}
	rocModes     = []string{RoCPaper, RoCReleased}
	nameForm     = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
)

// MaxLevel is the hardest level that the built-in environments make.
const MaxLevel = 5

type checker struct{ out Problems }

func (c *checker) add(path, format string, args ...any) {
	c.out = append(c.out, Problem{Path: path, Msg: fmt.Sprintf(format, args...)})
}

func (c *checker) atLeast(path string, have, low int) {
	if have < low {
		c.add(path, "is %d, want at least %d", have, low)
	}
}

func (c *checker) between(path string, have, low, high int) {
	if have < low || have > high {
		c.add(path, "is %d, want %d to %d", have, low, high)
	}
}

func (c *checker) within(path string, have, low, high float64) {
	if math.IsNaN(have) || have < low || have > high {
		c.add(path, "is %g, want %g to %g", have, low, high)
	}
}

func (c *checker) oneOf(path, have string, known []string) {
	if !slices.Contains(known, have) {
		c.add(path, "is %q, want one of %s", have, strings.Join(known, ", "))
	}
}

func (r Run) problems() Problems {
	c := &checker{}
	if !nameForm.MatchString(r.Name) {
		c.add("name", "is %q, want 1 to 40 of a-z, 0-9 and '-', not starting with '-'", r.Name)
	}
	c.model(r.Model)
	c.passes(r)
	c.between("tokenizer.num_merges", r.Tokenizer.NumMerges, 0, 4096)
	c.sft(r.SFT, r.Model.Starts())
	c.rl(r.RL)
	c.rollout(r.Rollout)
	c.chat(r.Rollout, r.Model)
	if len(r.Stages) == 0 {
		c.add("stages", "is empty, want at least one RL stage")
	}
	names := map[string]bool{}
	for i, s := range r.Stages {
		c.stage(fmt.Sprintf("stages[%d]", i), s, r)
		if names[s.Name] {
			c.add(fmt.Sprintf("stages[%d].name", i), "%q is used twice", s.Name)
		}
		names[s.Name] = true
	}
	c.between("eval.num_problems", r.Eval.NumProblems, 1, 100000)
	c.between("eval.rollouts", r.Eval.Rollouts, 1, 1024)
	c.atLeast("checkpoint.every_steps", r.Checkpoint.EverySteps, 1)
	c.atLeast("checkpoint.keep", r.Checkpoint.Keep, 1)
	c.atLeast("checkpoint.every_nth", r.Checkpoint.EveryNth, 0)
	c.atLeast("checkpoint.best", r.Checkpoint.Best, 0)
	c.atLeast("checkpoint.keep_trajectories", r.Checkpoint.KeepTrajectories, 0)
	if n := r.Checkpoint.KeepPolicies; n < 0 || n == 1 {
		c.add("checkpoint.keep_policies", "is %d, want 0 for all, or at least 2: a step samples from one while it publishes the next", n)
	}
	r.amendments(c)
	return c.out
}

func (c *checker) model(m Model) {
	c.between("model.max_context", m.MaxContext, 16, 1<<20)
	if m.Starts() {
		c.start(m)
		return
	}
	c.between("model.hidden_size", m.HiddenSize, 8, 16384)
	c.between("model.num_layers", m.NumLayers, 1, 256)
	c.between("model.num_heads", m.NumHeads, 1, 256)
	c.between("model.num_kv_heads", m.NumKVHeads, 1, 256)
	c.between("model.head_dim", m.HeadDim, 4, 512)
	c.between("model.intermediate_size", m.IntermediateSize, 8, 65536)
	c.within("model.rope_theta", m.RopeTheta, 10, 1e8)
	c.within("model.rms_norm_eps", m.RMSNormEps, 1e-12, 1e-2)
	c.within("model.initializer_range", m.InitializerRange, 1e-6, 1)
	if m.NumKVHeads > 0 && m.NumHeads%m.NumKVHeads != 0 {
		c.add("model.num_heads", "is %d, want a multiple of model.num_kv_heads (%d)", m.NumHeads, m.NumKVHeads)
	}
	if m.HeadDim%2 != 0 {
		c.add("model.head_dim", "is %d, want an even number (rotary embedding)", m.HeadDim)
	}
}

func (c *checker) sft(s SFT, starts bool) {
	c.source("sft.data", s.Data)
	c.between("sft.batch_size", s.BatchSize, 1, 65536)
	if !starts || s.Steps < 0 { // random weights know no format
		c.atLeast("sft.steps", s.Steps, 1)
	}
	c.optimizer("sft.optimizer", s.Optimizer)
}

func (c *checker) rl(r RL) {
	c.between("rl.problems_per_step", r.ProblemsPerStep, 1, 65536)
	c.between("rl.rollouts_per_problem", r.RolloutsPerProblem, 2, 4096)
	c.between("rl.group_size", r.GroupSize, 2, 4096)
	if r.GroupSize > r.RolloutsPerProblem {
		c.add("rl.group_size", "is %d, above rl.rollouts_per_problem (%d): RoC keeps a part of what was sampled", r.GroupSize, r.RolloutsPerProblem)
	}
	c.between("rl.num_minibatches", r.NumMinibatches, 1, 1024)
	c.atLeast("rl.microbatch_tokens", r.MicrobatchTokens, 256)
	c.optimizer("rl.optimizer", r.Optimizer)
	c.loss("rl.loss", r.Loss)
	c.oneOf("rl.roc.mode", r.RoC.Mode, rocModes)
	c.within("rl.roc.smoothing", r.RoC.Smoothing, 1e-6, 1e6)
	c.atLeast("rl.roc.min_positive", r.RoC.MinPositive, 0)
	c.atLeast("rl.roc.min_negative", r.RoC.MinNegative, 0)
	if r.RoC.MinPositive+r.RoC.MinNegative > r.GroupSize {
		c.add("rl.roc.min_positive", "plus rl.roc.min_negative is %d, above rl.group_size (%d)", r.RoC.MinPositive+r.RoC.MinNegative, r.GroupSize)
	}
}

func (c *checker) rollout(r Rollout) {
	c.within("rollout.temperature", r.Temperature, 0.01, 10)
	if r.ToolTimeout < 10*time.Millisecond || r.ToolTimeout > time.Hour {
		c.add("rollout.tool_timeout", "is %s, want 10ms to 1h", r.ToolTimeout)
	}
	if r.ToolMemory < 64<<20 {
		c.add("rollout.tool_memory", "is %s, want at least 64MiB", r.ToolMemory)
	}
	c.between("rollout.max_tool_response_chars", r.MaxToolResponseChars, 16, 1<<20)
	c.between("rollout.max_calls_per_turn", r.MaxCallsPerTurn, 1, 64)
}

func (c *checker) source(path string, s Source) {
	c.oneOf(path+".env", s.Env, environments)
	if len(s.Levels) == 0 {
		c.add(path+".levels", "is empty, want levels of 1 to %d", MaxLevel)
	}
	for i, l := range s.Levels {
		c.between(fmt.Sprintf("%s.levels[%d]", path, i), l, 1, MaxLevel)
	}
	if s.Path == "" {
		c.between(path+".num", s.Num, 1, 10_000_000)
	}
}

func (c *checker) stage(path string, s Stage, r Run) {
	if !nameForm.MatchString(s.Name) {
		c.add(path+".name", "is %q, want 1 to 40 of a-z, 0-9 and '-'", s.Name)
	}
	c.source(path+".data", s.Data)
	c.atLeast(path+".max_response_tokens", s.MaxResponseTokens, 8)
	if s.MaxResponseTokens >= r.Model.MaxContext {
		c.add(path+".max_response_tokens", "is %d, want less than model.max_context (%d): the prompt needs room too", s.MaxResponseTokens, r.Model.MaxContext)
	}
	c.between(path+".max_turns", s.MaxTurns, 1, 1000)
	c.atLeast(path+".until.steps", s.Until.Steps, 1)
	c.between(path+".filter.rollouts", s.Filter.Rollouts, 0, 1024)
	c.resets(path, s)
	if s.Data.Path == "" && s.Data.Num < r.RL.ProblemsPerStep {
		c.add(path+".data.num", "is %d, below rl.problems_per_step (%d): a step never repeats a problem", s.Data.Num, r.RL.ProblemsPerStep)
	}
}
