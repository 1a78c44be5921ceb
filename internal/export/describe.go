package export

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"temper/internal/config"
	"temper/internal/run/setup"
)

// Checked prints what the run of a checked configuration would be.
func Checked(out io.Writer, file string, cfg config.Run, found setup.Checked) error {
	fmt.Fprintf(out, "%s is good\n", file)
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "  %s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	line("run", "%s, seed %d", cfg.Name, cfg.Seed)
	line("model", "%s; vocabulary of %d tokens", startOf(cfg.Model), found.VocabSize)
	longest := found.TokenBudget
	if found.SFTSteps > 0 {
		line("sft", "%s", describeSFT(cfg, found))
		longest = max(longest, found.LongestDialogue)
	}
	line("context", "%d tokens; the longest sequence can take %d", cfg.Model.MaxContext, longest)
	line("step", "%s", describeStep(cfg))
	steps := 0
	for _, s := range cfg.Stages {
		line("stage "+s.Name, "%s", describeStage(s))
		steps += s.Until.Steps
	}
	for _, s := range cfg.Eval.Sets {
		line("set "+s.Name, "%s", describeSet(s))
	}
	for _, d := range found.Dropped {
		line("dropped", "%s", d)
	}
	line("in all", "%d steps over %d problems; %d held out", steps, found.Problems, found.HeldOut)
	return t.Flush()
}

func describeSFT(cfg config.Run, found setup.Checked) string {
	text := fmt.Sprintf("%d updates of %d dialogues, out of %d from %s", found.SFTSteps, cfg.SFT.BatchSize, found.Dialogues, dialogueSource(cfg))
	if cfg.SFT.Epochs > 0 {
		text += fmt.Sprintf("; %g epochs", cfg.SFT.Epochs)
	}
	o := cfg.SFT.Optimizer
	text += fmt.Sprintf("; lr %g, warm-up of %d, %s", o.LR, o.WarmupSteps, o.Schedule)
	if g := cfg.SFT.Gate; g.On() {
		text += fmt.Sprintf("; gate: copied from %g, reward %g to %g", g.MinCopied, g.MinReward, g.MaxReward)
	}
	return text
}

func describeStep(cfg config.Run) string {
	text := fmt.Sprintf("%d problems x %d rollouts, %d kept of each; lr %g", cfg.RL.ProblemsPerStep, cfg.RL.RolloutsPerProblem, cfg.RL.GroupSize, cfg.RL.Optimizer.LR)
	if cfg.RL.RoC.Enabled {
		text += "; RoC of the " + cfg.RL.RoC.Mode
	}
	if n := cfg.RL.Refill.Rounds; n > 0 {
		text += fmt.Sprintf("; up to %d rounds of refill", n)
	}
	return text
}

func describeStage(s config.Stage) string {
	text := fmt.Sprintf("%d steps, %d turns, %d response tokens; %s", s.Until.Steps, s.MaxTurns, s.MaxResponseTokens, sourceOf(s.Data))
	if p := s.Until.Plateau; p.On() {
		text += fmt.Sprintf("; may end by a plateau over %d steps", p.Window)
	}
	if f := s.Filter; f.On() {
		how := fmt.Sprintf("%d rollouts of each problem", f.Rollouts)
		if f.Rates != "" {
			how = f.Rates
		}
		rule := f.Rule()
		if rule == "" {
			rule = "pass rates below 1"
		}
		text += fmt.Sprintf("; filter by %s: %s", how, rule)
	}
	if b := s.Bands; b.On() {
		text += fmt.Sprintf("; bands from %g to %g", b.MinPassRate, b.MaxPassRate)
	}
	if s.ResetOptimizer {
		text += "; fresh optimizer"
	}
	return text
}

func describeSet(s config.EvalSet) string {
	text := fmt.Sprintf("%d samples at %g, %d turns, %d response tokens; %s", s.Rollouts, s.Temperature, s.MaxTurns, s.MaxResponseTokens, s.Path)
	if s.Greedy {
		text += "; greedy too"
	}
	if s.EverySteps > 0 {
		text += fmt.Sprintf("; every %d steps", s.EverySteps)
	}
	return text
}

func startOf(m config.Model) string {
	switch {
	case m.Run != "":
		return "policy " + m.Run
	case m.Path != "":
		return m.Path
	default:
		return fmt.Sprintf("random weights, %d layers of width %d", m.NumLayers, m.HiddenSize)
	}
}

func dialogueSource(cfg config.Run) string {
	if n := len(cfg.Data.Mix); n > 0 {
		return fmt.Sprintf("a mix of %d files", n)
	}
	return sourceOf(cfg.SFT.Data)
}

func sourceOf(s config.Source) string {
	if s.Path != "" {
		return s.Path
	}
	return fmt.Sprintf("%s, levels %s", s.Env, strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Levels), " ", ", "), "[]"))
}
