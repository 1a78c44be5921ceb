package config

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"

	"temper/internal/env"
	"temper/internal/grpo"
)

// The types in which matrices are multiplied.
const (
	ComputeFloat32  = "float32"
	ComputeBFloat16 = "bfloat16"
)

// The choices of kernels of the CPU backend.
const (
	KernelsNative   = "native"
	KernelsPortable = "portable"
)

type checker struct{ out Problems }

func (c *checker) add(path, format string, args ...any) {
	c.out = append(c.out, Problem{Path: path, Msg: fmt.Sprintf(format, args...)})
}

func (c *checker) atLeast(path string, have, low int) {
	if have < low {
		c.add(path, "is %d, want at least %d", have, low)
	}
}

func (c *checker) oneOf(path, have string, known []string) {
	if !slices.Contains(known, have) {
		c.add(path, "is %q, want one of %s", have, strings.Join(known, ", "))
	}
}

// problems are all mistakes of the configuration: those that tags find, and those
// of several keys together, which have a method each.
func (r Run) problems() Problems {
	c := &checker{}
	c.byTags("", reflect.ValueOf(r), r.idle)
	c.model(r.Model)
	c.passes(r)
	c.sft(r.SFT, r.Model.Starts())
	checkGate(c, r.SFT.Gate)
	checkEvalSets(c, r.Eval.Sets, r.EngineContext())
	checkMix(c, r)
	c.rl(r.RL)
	c.chat(r.Rollout, r.Model)
	checkEngine(c, r)
	if problem := r.Reward.problem(); problem != "" {
		c.add("reward.path", "%s", problem)
	}
	if len(r.Stages) == 0 {
		c.add("stages", "is empty, want at least one RL stage")
	}
	names := map[string]bool{}
	for i, s := range r.Stages {
		c.stage(fmt.Sprintf("stages[%d]", i), s, r)
		checkStageRules(c, fmt.Sprintf("stages[%d]", i), s, i, r)
		if names[s.Name] {
			c.add(fmt.Sprintf("stages[%d].name", i), "%q is used twice", s.Name)
		}
		names[s.Name] = true
	}
	checkWindow(c, r)
	checkLoRA(c, r)
	c.watch(r.Watch)
	r.amendments(c)
	return c.out
}

// idle reports whether no code reads a key: the dimensions of a model that starts from a
// checkpoint, and the number of lines to generate beside a file.
func (r Run) idle(path string) bool {
	if r.Model.Starts() && strings.HasPrefix(path, "model.") {
		key := strings.TrimPrefix(path, "model.")
		return !slices.Contains(besideStart, key)
	}
	if path == "sft.data.num" {
		return r.SFT.Data.Path != "" || len(r.Data.Mix) > 0
	}
	for i, s := range r.Stages {
		if path == fmt.Sprintf("stages[%d].data.num", i) {
			return s.Data.Path != ""
		}
	}
	return false
}

func (c *checker) model(m Model) {
	if m.Starts() {
		c.start(m)
		return
	}
	if m.NumKVHeads > 0 && m.NumHeads%m.NumKVHeads != 0 {
		c.add("model.num_heads", "is %d, want a multiple of model.num_kv_heads (%d)", m.NumHeads, m.NumKVHeads)
	}
	if m.HeadDim%2 != 0 {
		c.add("model.head_dim", "is %d, want an even number (rotary embedding)", m.HeadDim)
	}
}

// passes checks how training computes a device pass.
func (c *checker) passes(r Run) {
	if r.Model.Compute == ComputeBFloat16 && r.RL.Loss.OldLogprobs == OldRollout {
		c.add("model.compute", "is bfloat16, but rl.loss.old_logprobs is rollout: the engine computes in float32, "+
			"and its rounding would count as a change of the policy; want old_logprobs recompute, with rl.loss.correction if need be")
	}
	if row := packedRow(r.Model.MaxContext); r.RL.Pack && row > r.RL.MicrobatchTokens {
		c.add("rl.pack", "makes rows of up to %d tokens (model.max_context %d, rounded up to a power of two), above rl.microbatch_tokens (%d)",
			row, r.Model.MaxContext, r.RL.MicrobatchTokens)
	}
}

// packedRow is the longest row that packing makes of contexts of so many tokens.
// The last token of a context is only a target, never an input.
func packedRow(maxContext int) int { return max(64, 1<<bits.Len(uint(max(2, maxContext)-2))) }

func (c *checker) sft(s SFT, starts bool) {
	c.source("sft.data", s.Data)
	if !starts && s.Steps == 0 && s.Epochs == 0 { // random weights know no format
		c.atLeast("sft.steps", s.Steps, 1)
	}
	c.optimizer("sft.optimizer", s.Optimizer)
}

func (c *checker) rl(r RL) {
	if r.GroupSize > r.RolloutsPerProblem {
		c.add("rl.group_size", "is %d, above rl.rollouts_per_problem (%d): RoC keeps a part of what was sampled", r.GroupSize, r.RolloutsPerProblem)
	}
	switch passAtK := r.Advantage == grpo.PassAtK; {
	case passAtK && (r.AdvantageK < 1 || r.AdvantageK >= r.GroupSize):
		c.add("rl.advantage_k", "is %d, want 1 to %d with rl.advantage %s: less than rl.group_size (%d)", r.AdvantageK, r.GroupSize-1, grpo.PassAtK, r.GroupSize)
	case !passAtK && r.AdvantageK != 0:
		c.add("rl.advantage_k", "is %d with rl.advantage %q: %s, and no other, has a k", r.AdvantageK, r.Advantage, grpo.PassAtK)
	}
	c.optimizer("rl.optimizer", r.Optimizer)
	c.loss("rl.loss", r.Loss)
	if r.RoC.MinPositive+r.RoC.MinNegative > r.GroupSize {
		c.add("rl.roc.min_positive", "plus rl.roc.min_negative is %d, above rl.group_size (%d)", r.RoC.MinPositive+r.RoC.MinNegative, r.GroupSize)
	}
}

// MaxWindow is the largest rl.window.
const MaxWindow = 8

// checkWindow checks what goes with sampling ahead of learning.
func checkWindow(c *checker, r Run) {
	w := r.RL.Window
	if w == 0 && r.RL.PartialRolloutTokens > 0 {
		c.add("rl.partial_rollout_tokens", "is %d, but rl.window is 0, so that one policy samples each step whole: set rl.window to 1 or more, or leave this out", r.RL.PartialRolloutTokens)
	}
	if w <= 0 || w > MaxWindow { // said by the tag
		return
	}
	if r.RL.Loss.Correction.Level == "" && r.RL.Loss.OldLogprobs != OldRollout {
		c.add("rl.window", "is %d, but nothing corrects for the older policy that samples: set rl.loss.correction.level to token and rl.loss.correction.cap to 2, "+
			"or rl.loss.old_logprobs to rollout", w)
	}
	if keep := r.Checkpoint.KeepPolicies; keep > 0 && keep < w+2 {
		c.add("checkpoint.keep_policies", "is %d, want 0 or at least %d: with rl.window %d, steps sample with policies so old", keep, w+2, w)
	}
}

// source checks that the environment can generate what is asked for.
func (c *checker) source(path string, s Source) {
	if s.Path != "" {
		return
	}
	if len(s.Levels) == 0 {
		c.add(path+".levels", "is empty, want at least one level")
	}
	e, err := env.ByName(s.Env)
	if err != nil {
		return // said by the tag
	}
	for i, level := range s.Levels {
		at := fmt.Sprintf("%s.levels[%d]", path, i)
		if err := e.CheckLevel(level); err != nil {
			c.add(at, "%v", err)
		}
		if slices.Contains(s.Levels[:i], level) {
			c.add(at, "%d is given twice", level)
		}
	}
}

func (c *checker) stage(path string, s Stage, r Run) {
	c.source(path+".data", s.Data)
	if s.MaxResponseTokens >= r.Model.MaxContext {
		c.add(path+".max_response_tokens", "is %d, want less than model.max_context (%d): the prompt needs room too", s.MaxResponseTokens, r.Model.MaxContext)
	}
	c.resets(path, s)
	if s.Data.Path == "" && s.Data.Num < r.RL.ProblemsPerStep {
		c.add(path+".data.num", "is %d, below rl.problems_per_step (%d): a step never repeats a problem", s.Data.Num, r.RL.ProblemsPerStep)
	}
}

func (c *checker) watch(w Watch) {
	if w.EntropyMin > 0 && w.EntropyMax > 0 && w.EntropyMin >= w.EntropyMax {
		c.add("watch.entropy_min", "is %g, want less than watch.entropy_max (%g)", w.EntropyMin, w.EntropyMax)
	}
	checkCollapse(c, w.Collapse)
}
