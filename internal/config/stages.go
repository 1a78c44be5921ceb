package config

import (
	"fmt"
	"slices"
)

// Until is the end of a stage: its plateau, where one is asked for, and otherwise
// its last step.
type Until struct {
	// Steps is the number of RL steps of the stage. With plateau it is the bound: the
	// stage ends there when it has found none.
	Steps int `yaml:"steps" json:"steps" range:"1.." unit:"steps" amend:"yes"`
	// Plateau ends the stage before its last step.
	Plateau Plateau `yaml:"plateau,omitempty" json:"plateau,omitzero"`
}

// Plateau ends a stage when nothing gets better any more. Every condition that is
// stated must hold. The event log has the figures.
type Plateau struct {
	// Window is the number of steps whose mean rewards are compared with those of as many
	// steps before. 0 means that the stage has no such end.
	Window int `yaml:"window,omitempty" json:"window,omitempty" range:"0|2..10000" unit:"steps" amend:"yes"`
	// MinGain is the gain of the mean reward from one window to the next up to which the
	// reward stands still. It also holds for the accuracy of eval.
	MinGain float64 `yaml:"min_gain,omitempty" json:"min_gain,omitempty" range:"0..1" amend:"yes"`
	// Eval names a set of eval.sets that must stand still too: the best of its newest evals
	// evaluations is at most min_gain above the best one before, both since the start of
	// the stage. Empty means that the reward alone decides.
	Eval string `yaml:"eval,omitempty" json:"eval,omitempty" empty:"the reward alone"`
	// Evals is the number of newest evaluations of eval; 0 means 2.
	Evals int `yaml:"evals,omitempty" json:"evals,omitempty" range:"0..1000" unit:"evaluations" amend:"yes"`
	// ClipMin and clip_max are the band in which the mean share of trajectories cut at the
	// token limit must be, over the window.
	ClipMin float64 `yaml:"clip_min,omitempty" json:"clip_min,omitempty" range:"0..1" amend:"yes"`
	// ClipMax is the upper end of the band; 0 means none.
	ClipMax float64 `yaml:"clip_max,omitempty" json:"clip_max,omitempty" range:"0..1" amend:"yes"`
}

// On reports whether the stage may end by a plateau.
func (p Plateau) On() bool { return p.Window > 0 }

// NumEvals is Evals with its default.
func (p Plateau) NumEvals() int {
	if p.Evals == 0 {
		return 2
	}
	return p.Evals
}

// Filter removes problems once, before the stage starts (recipe: stage 3), by their
// pass rates under the policy at the start of the stage, or under an earlier one.
type Filter struct {
	// Rollouts is the number of trajectories sampled of each problem with the policy at
	// the start of the stage. 0 means that nothing is sampled.
	Rollouts int `yaml:"rollouts" json:"rollouts" range:"0..1024" unit:"trajectories"`
	// Rates is a JSONL file with a pass rate for each problem of the stage, {"id": ID,
	// "pass_rate": 0.25}, in place of rollouts. A relative path counts from the folder of
	// the configuration file.
	Rates string `yaml:"rates,omitempty" json:"rates,omitempty" path:"yes" empty:"rates are sampled"`
	// MinPassRate removes problems that a smaller share of the rollouts solves: 0.125 of 8
	// rollouts removes those that none solves. 0 removes none for that.
	MinPassRate float64 `yaml:"min_pass_rate,omitempty" json:"min_pass_rate,omitempty" range:"0..1"`
	// MaxPassRate removes problems that a larger share of the rollouts solves. 0 removes
	// those that all rollouts solve.
	MaxPassRate float64 `yaml:"max_pass_rate,omitempty" json:"max_pass_rate,omitempty" range:"0..1"`
}

// On reports whether the stage filters its problems.
func (f Filter) On() bool { return f.Rollouts > 0 || f.Rates != "" }

// Rule is the range of pass rates in words; "" where only problems that all rollouts
// solve are removed.
func (f Filter) Rule() string {
	switch {
	case f.MinPassRate == 0 && f.MaxPassRate == 0 && f.Rates == "":
		return ""
	case f.MaxPassRate == 0:
		return fmt.Sprintf("pass rates from %g to below 1", f.MinPassRate)
	default:
		return fmt.Sprintf("pass rates from %g to %g", f.MinPassRate, f.MaxPassRate)
	}
}

// Keeps reports whether a problem of a pass rate stays. One that all rollouts solve
// stays only where max_pass_rate is 1.
func (f Filter) Keeps(rate float64) bool {
	if rate < f.MinPassRate {
		return false
	}
	if f.MaxPassRate == 0 {
		return rate < 1
	}
	return rate <= f.MaxPassRate
}

// Bands passes over problems while the policy finds them too easy or too hard. The pass
// rate of a problem is the rate in its newest group of the stage. A problem without a rate
// is in the band.
type Bands struct {
	// MinPassRate is the lower end: problems that a smaller share of the group solved rest.
	MinPassRate float64 `yaml:"min_pass_rate,omitempty" json:"min_pass_rate,omitempty" range:"0..1"`
	// MaxPassRate is the upper end: problems that a larger share of the group solved rest. 0
	// switches the bands off.
	MaxPassRate float64 `yaml:"max_pass_rate,omitempty" json:"max_pass_rate,omitempty" range:"0..1"`
	// Rest is the number of passes over the data for which a problem rests; then it is
	// sampled again. 0 means 1.
	Rest int `yaml:"rest,omitempty" json:"rest,omitempty" range:"0..1000" unit:"passes"`
}

// On reports whether problems may rest.
func (b Bands) On() bool { return b.MaxPassRate > 0 }

// Passes is Rest with its default.
func (b Bands) Passes() int { return max(1, b.Rest) }

// Refill replaces groups that teach nothing, because all or none of their trajectories
// are right, by groups of further problems (dynamic sampling, arXiv 2503.14476, section
// 3.2). Without it a step learns from what is left, as the recipe's does.
type Refill struct {
	// Rounds bounds the calls for further problems in a step. Each samples as many problems
	// as there are groups missing. 0 refills nothing.
	Rounds int `yaml:"rounds,omitempty" json:"rounds,omitempty" range:"0..64" unit:"rounds"`
}

// EvalSet is a set of problems that is evaluated with its own settings: after SFT, every so
// many steps, at the end of each stage and at the end of the run.
type EvalSet struct {
	// Name is the name of the set, unique in the run.
	Name string `yaml:"name" json:"name" form:"name" required:"yes"`
	// Path is a JSONL file of problems; see data.md for its format. No problem of it may be
	// a training problem. A relative path counts from the folder of the configuration
	// file; "store:KEY" is a blob of the store.
	Path string `yaml:"path" json:"path" path:"yes" required:"yes"`
	// Rollouts is the number of trajectories sampled of each problem; the mean over them is
	// avg@k.
	Rollouts int `yaml:"rollouts" json:"rollouts" range:"1..1024" unit:"trajectories"`
	// Temperature divides the logits of those trajectories.
	Temperature float64 `yaml:"temperature" json:"temperature" range:"0.01..10"`
	// MaxTurns is the number of generations in a trajectory.
	MaxTurns int `yaml:"max_turns" json:"max_turns" range:"1..1000" unit:"turns"`
	// MaxResponseTokens bounds the tokens of a trajectory after its prompt. It must be less
	// than model.max_context, or eval.max_context where that is more.
	MaxResponseTokens int `yaml:"max_response_tokens" json:"max_response_tokens" range:"8.." unit:"tokens"`
	// EverySteps is the number of steps, counted through the run, from one evaluation to the
	// next within stages. 0 evaluates between stages alone.
	EverySteps int `yaml:"every_steps,omitempty" json:"every_steps,omitempty" range:"0.." unit:"steps"`
	// Greedy samples one more trajectory of each problem at temperature 0.
	Greedy bool `yaml:"greedy,omitempty" json:"greedy,omitempty"`
}

func (s *EvalSet) setDefaults() {
	*s = EvalSet{Rollouts: 1, Temperature: 1, MaxTurns: 4, MaxResponseTokens: 64}
}

// SFTGate refuses to begin RL with a policy that RL cannot teach. It looks at the sampled
// trajectories of policy 0 on the held-out problems of the first stage.
type SFTGate struct {
	// MinCopied is the least share of answers after a call that worked which equal the
	// result of the last one (usual: 0.9): below it the policy does not copy yet, and no
	// reward can tell a good call from a bad one. 0 switches the rule off.
	MinCopied float64 `yaml:"min_copied,omitempty" json:"min_copied,omitempty" range:"0..1"`
	// MinReward is the least mean reward (usual: 0.15). 0 switches the rule off.
	MinReward float64 `yaml:"min_reward,omitempty" json:"min_reward,omitempty" range:"0..1"`
	// MaxReward is the largest mean reward (usual: 0.6): above it little is left to learn. 0
	// switches the rule off.
	MaxReward float64 `yaml:"max_reward,omitempty" json:"max_reward,omitempty" range:"0..1"`
}

// On reports whether the gate looks at anything.
func (g SFTGate) On() bool { return g != SFTGate{} }

// Values of the action on a collapse.
const (
	CollapsePause = "pause"
	CollapseEnd   = "end_stage"
)

// Collapse finds a policy that falls apart over many steps: each sign compares the mean
// of the newest window of steps with that of the stage's best window, which is the one
// of highest mean reward. It names the best checkpoint.
type Collapse struct {
	// Window is the number of steps of a window. 0 switches the watch off.
	Window int `yaml:"window,omitempty" json:"window,omitempty" range:"0|2..10000" unit:"steps"`
	// RewardDrop is a sign: the mean reward has lost this share. 0 means no such sign, and
	// so below.
	RewardDrop float64 `yaml:"reward_drop,omitempty" json:"reward_drop,omitempty" range:"0..1"`
	// EntropyDrop is a sign: the mean entropy of the policy has lost this share. Steps
	// without an update do not count.
	EntropyDrop float64 `yaml:"entropy_drop,omitempty" json:"entropy_drop,omitempty" range:"0..1"`
	// LengthGrowth is a sign: responses are longer by this factor.
	LengthGrowth float64 `yaml:"length_growth,omitempty" json:"length_growth,omitempty" range:"0|1..1000"`
	// ToolErrors is a sign: the share of calls that fail is higher by this difference.
	ToolErrors float64 `yaml:"tool_errors,omitempty" json:"tool_errors,omitempty" range:"0..1"`
	// Signs is how many signs make a collapse; 0 means 1.
	Signs int `yaml:"signs,omitempty" json:"signs,omitempty" range:"0..4" unit:"signs"`
	// Then is what follows: pause holds the run before its next step, whatever watch.pause
	// says; end_stage ends the stage.
	Then string `yaml:"then,omitempty" json:"then,omitempty" enum:"pause|end_stage" empty:"pause"`
}

// On reports whether the watch looks for a collapse.
func (c Collapse) On() bool { return c.Window > 0 }

// NumSigns is Signs with its default.
func (c Collapse) NumSigns() int { return max(1, c.Signs) }

// Judged reports whether steps of a stage, by index from 0, are judged after they are
// made: the stage may end by a plateau, or a collapse may hold it.
func (r Run) Judged(stage int) bool {
	return r.Stages[stage].Until.Plateau.On() || r.Watch.Collapse.On()
}

// Cursors reports whether the problems of a stage, by index from 0, are dealt out from
// where the step before has ended, instead of by the number of the step.
func (r Run) Cursors(stage int) bool {
	return r.RL.Refill.Rounds > 0 || r.Stages[stage].Bands.On()
}

// EngineContext is the longest sequence that an engine of the run must hold.
func (r Run) EngineContext() int { return max(r.Model.MaxContext, r.Eval.MaxContext) }

// InStage is the configuration of a stage, by index from 0: what the stage states for
// itself stands in place of what all stages share.
func (r Run) InStage(stage int) Run {
	s := r.Stages[stage]
	if s.Temperature > 0 {
		r.Rollout.Temperature = s.Temperature
	}
	if s.LR > 0 {
		r.RL.Optimizer.LR = s.LR
	}
	if s.RolloutsPerProblem > 0 {
		r.RL.RolloutsPerProblem = s.RolloutsPerProblem
	}
	if s.GroupSize > 0 {
		r.RL.GroupSize = s.GroupSize
	}
	return r
}

// checkStageRules checks what a stage says of its end and of its problems.
func checkStageRules(c *checker, path string, s Stage, i int, r Run) {
	checkPlateau(c, path+".until", s.Until, r.Eval.Sets)
	f := s.Filter
	if f.Rollouts > 0 && f.Rates != "" {
		c.add(path+".filter.rates", "goes in place of %s.filter.rollouts: state one of them", path)
	}
	if !f.On() && f != (Filter{}) {
		c.add(path+".filter.rollouts", "is 0 and there are no rates, but a pass rate is stated: nothing says which problems have it")
	}
	checkBand(c, path+".filter", f.MinPassRate, f.MaxPassRate)
	checkBand(c, path+".bands", s.Bands.MinPassRate, s.Bands.MaxPassRate)
	if b := s.Bands; !b.On() && b != (Bands{}) {
		c.add(path+".bands.max_pass_rate", "is 0 beside other keys of the bands, want more")
	}
	if r.Cursors(i) && r.RL.Window > 0 && r.RL.Refill.Rounds > 0 && i == 0 {
		c.add("rl.refill.rounds", "does not go with rl.window: which problems a step samples depends on what came of the step before")
	}
	if own := r.InStage(i).RL; (s.RolloutsPerProblem > 0 || s.GroupSize > 0) && own.GroupSize > own.RolloutsPerProblem {
		c.add(path+".group_size", "is %d with %d rollouts of each problem: RoC keeps a part of what was sampled", own.GroupSize, own.RolloutsPerProblem)
	}
}

// checkPlateau checks when a stage may end.
func checkPlateau(c *checker, path string, u Until, sets []EvalSet) {
	p, at := u.Plateau, path+".plateau"
	if !p.On() {
		if p != (Plateau{}) {
			c.add(at+".window", "is 0 beside other keys of the plateau, want at least 2")
		}
		return
	}
	if 2*p.Window > u.Steps {
		c.add(at+".window", "is %d, but two windows do not fit into %s.steps (%d)", p.Window, path, u.Steps)
	}
	if p.ClipMax > 0 && p.ClipMax < p.ClipMin {
		c.add(at+".clip_max", "is %g, below %s.clip_min (%g)", p.ClipMax, at, p.ClipMin)
	}
	checkPlateauEval(c, at, p, sets)
}

func checkPlateauEval(c *checker, path string, p Plateau, sets []EvalSet) {
	if p.Eval == "" {
		if p.Evals > 0 {
			c.add(path+".evals", "is %d, but %s.eval names no set", p.Evals, path)
		}
		return
	}
	at := slices.IndexFunc(sets, func(s EvalSet) bool { return s.Name == p.Eval })
	switch {
	case at < 0:
		c.add(path+".eval", "%q is no set of eval.sets", p.Eval)
	case sets[at].EverySteps == 0:
		c.add(path+".eval", "needs eval.sets[%d].every_steps: the set %q is not evaluated within stages", at, p.Eval)
	}
}

// checkBand checks the ends of a range of pass rates; a high end of 0 is stated elsewhere.
func checkBand(c *checker, path string, low, high float64) {
	if high > 0 && high < low {
		c.add(path+".max_pass_rate", "is %g, below %s.min_pass_rate (%g)", high, path, low)
	}
}

// checkEvalSets checks the sets against each other and against the model.
func checkEvalSets(c *checker, sets []EvalSet, maxContext int) {
	for i, s := range sets {
		path := fmt.Sprintf("eval.sets[%d]", i)
		if s.Path == "" {
			c.add(path+".path", "is missing, want a file of problems")
		}
		if slices.ContainsFunc(sets[:i], func(o EvalSet) bool { return o.Name == s.Name }) {
			c.add(path+".name", "%q is used twice", s.Name)
		}
		if s.MaxResponseTokens >= maxContext {
			c.add(path+".max_response_tokens", "is %d, want less than model.max_context and eval.max_context (%d): the prompt needs room too", s.MaxResponseTokens, maxContext)
		}
	}
}

// checkGate checks the gate between the supervised updates and RL.
func checkGate(c *checker, g SFTGate) {
	if g.MaxReward > 0 && g.MaxReward <= g.MinReward {
		c.add("sft.gate.max_reward", "is %g, want more than sft.gate.min_reward (%g)", g.MaxReward, g.MinReward)
	}
}

// checkCollapse checks what one tag cannot say.
func checkCollapse(c *checker, k Collapse) {
	signs := 0
	for _, on := range []bool{k.RewardDrop > 0, k.EntropyDrop > 0, k.LengthGrowth > 0, k.ToolErrors > 0} {
		if on {
			signs++
		}
	}
	switch {
	case !k.On() && k != (Collapse{}):
		c.add("watch.collapse.window", "is 0 beside other keys of the collapse, want at least 2")
	case k.On() && signs < k.NumSigns():
		c.add("watch.collapse.signs", "is %d, but %d of reward_drop, entropy_drop, length_growth and tool_errors are stated", k.NumSigns(), signs)
	}
}
