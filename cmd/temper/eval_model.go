package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/evaluate"
	"temper/internal/openai/chatclient"
	"temper/internal/tool/builtin"
	"temper/trainer/weights/hf"
	"temper/workers"
)

// modelEval holds the flags for the evaluation of any model.
type modelEval struct {
	chat     chatting
	sets     []string
	plain    evaluate.Set
	mode     string
	seed     uint64
	parallel int
	patience time.Duration
	silence  time.Duration
	out      string
	against  string
	reverify bool
	own      []string // flags that need --model or --url
}

func newModelEval(cmd *cobra.Command, p *config.Process) *modelEval {
	e := &modelEval{chat: chatting{Talk: workers.Talk{Process: p}}}
	f := pflag.NewFlagSet("model", pflag.ContinueOnError)
	e.chat.modelFlags.add(f)
	f.StringVar(&e.chat.Options.Backend, "backend", "", "device that computes; the Go backend by default")
	f.IntVar(&e.chat.Options.MaxContext, "max-context", 0, "tokens of a prompt and its answer together; what the model allows by default")
	f.StringVar(&e.chat.URL, "url", "", "server of OpenAI's API, such as http://127.0.0.1:8000")
	f.StringVar(&e.chat.Client.Model, "name", "", "model of that server; its first one by default")
	f.StringVar(&e.chat.system, "system", "", "system message; that of the model's template by default")
	f.StringSliceVar(&e.chat.Tools, "tool", nil, "tools that the model may call; those of the run, or "+builtin.Python+", by default")
	f.BoolVar(&e.chat.NoTools, "no-tools", false, "let the model call none")
	f.StringArrayVar(&e.sets, "set", nil, "NAME=FILE with problems, see docs/data.md; may be repeated")
	f.IntVar(&e.plain.Rollouts, "rollouts", 1, "samples of each problem")
	f.Float64Var(&e.plain.Temperature, "temperature", 0, "divides the logits; 0 takes the most likely token")
	f.IntVar(&e.plain.MaxTurns, "max-turns", 10, "turns of one answer")
	f.IntVar(&e.plain.MaxTokens, "max-tokens", 0, "tokens of one answer over all turns, tool results included; what fits by default")
	f.StringVar(&e.plain.Suffix, "suffix", "", "text behind each prompt, such as an instruction to box the answer")
	f.StringVar(&e.mode, "mode", "", "how answers are judged: paper, tag, integer, released, choice, rules, calls or env; by default a run its own way, else released, and with --reverify as before")
	f.Uint64Var(&e.seed, "eval-seed", 1, "of the draws")
	f.IntVar(&e.parallel, "parallel", 8, "samples that are made at a time")
	f.DurationVar(&e.patience, "patience", 2*time.Minute, "how long a sample waits for a server that does not answer")
	f.DurationVar(&e.silence, "silence", 10*time.Minute, "how long a server of --url may bring nothing new of an answer that it was asked for; 0 for as long as it likes")
	f.StringVar(&e.out, "out", "", "folder of samples and reports; eval-NAME by default")
	f.StringVar(&e.against, "against", "", "folder of another evaluation, to compare with problem by problem")
	f.BoolVar(&e.reverify, "reverify", false, "judge the samples of --out again, with its settings where no flag states them, and sample nothing")
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "policy-version" { // of RUN, too
			e.own = append(e.own, flag.Name)
		}
	})
	cmd.Flags().AddFlagSet(f)
	cmd.MarkFlagsMutuallyExclusive("model", "url")
	return e
}

func (e *modelEval) isAsked() bool { return e.chat.model != "" || e.chat.URL != "" }

// flagWithoutModel returns the name of a given flag that makes no sense without a model; ""
// if there is none.
func (e *modelEval) flagWithoutModel(cmd *cobra.Command) string {
	for _, name := range e.own {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// check checks the flags without reading files.
func (e *modelEval) check(cmd *cobra.Command) error {
	var wrong []error
	if len(e.sets) == 0 {
		wrong = append(wrong, errors.New("--set is missing: NAME=FILE with problems"))
	}
	if e.plain.Rollouts < 1 || e.plain.Rollouts > 1000 || e.plain.MaxTurns < 1 || e.plain.MaxTokens < 0 || e.parallel < 1 || e.patience < 0 || e.silence < 0 {
		wrong = append(wrong, fmt.Errorf("--rollouts %d, --max-turns %d, --max-tokens %d, --parallel %d, --patience %s, --silence %s: want 1 to 1000, at least 1, 0, 1, 0s and 0s",
			e.plain.Rollouts, e.plain.MaxTurns, e.plain.MaxTokens, e.parallel, e.patience, e.silence))
	}
	if e.plain.Temperature < 0 || e.plain.Temperature > 10 {
		wrong = append(wrong, fmt.Errorf("--temperature %g, want 0 to 10", e.plain.Temperature))
	}
	if e.mode != "" {
		wrong = append(wrong, evaluate.Mode(e.mode).Check())
	}
	if e.reverify && e.out == "" && e.label() == "" {
		wrong = append(wrong, errors.New("--reverify: name the folder with --out, or the model of the server with --name"))
	}
	if e.chat.NoTools && len(e.chat.Tools) > 0 {
		wrong = append(wrong, errors.New("--no-tools excludes --tool"))
	}
	wrong = append(wrong, onlyOne(cmd, "step", "policy-version"))
	if err := errors.Join(wrong...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// label names the model in reports.
func (e *modelEval) label() string {
	if e.chat.URL != "" {
		return e.chat.Client.Model
	}
	return filepath.Base(filepath.Clean(e.chat.model)) + e.chat.source.Suffix()
}

func (e *modelEval) run(cmd *cobra.Command, asJSON bool) error {
	if err := e.check(cmd); err != nil {
		return err
	}
	if e.reverify {
		return e.judgeAgain(cmd, asJSON)
	}
	if err := e.readSets(cmd, &evaluate.Config{}, &config.Rollout{}); err != nil { // before a model is opened
		return err
	}
	ctx := cmd.Context()
	defer e.chat.Close()
	cfg := evaluate.Config{System: e.chat.system, Seed: e.seed, Parallel: e.parallel, Patience: e.patience}
	rollout, err := e.open(ctx, cmd, &cfg)
	if err != nil {
		return err
	}
	if err := e.readSets(cmd, &cfg, rollout); err != nil {
		return err
	}
	if e.against != "" { // checked before sampling: the comparison comes last
		if _, err := evaluate.Against(e.against, cfg.Sets); err != nil {
			return cli.Usage(err)
		}
	}
	cfg.Folder = e.folder(cfg.Label)
	samples, err := e.samples(ctx, cmd, cfg)
	if err != nil {
		return err
	}
	return e.report(cmd, cfg, samples, asJSON)
}

// folder returns the folder of the samples of a model.
func (e *modelEval) folder(label string) string {
	return cmp.Or(e.out, "eval-"+strings.Map(plainLetter, label))
}

// report writes and prints the report of samples.
func (e *modelEval) report(cmd *cobra.Command, cfg evaluate.Config, samples []evaluate.Sample, asJSON bool) error {
	report, err := evaluate.Summarize(cfg, samples)
	if err != nil {
		return err
	}
	if e.against != "" {
		others, err := evaluate.Against(e.against, cfg.Sets)
		if err == nil {
			err = report.Compare(cfg, samples, others, filepath.Base(filepath.Clean(e.against)))
		}
		if err != nil {
			return cli.Usage(err)
		}
	}
	return writeEvaluation(cmd.OutOrStdout(), cfg.Folder, report, asJSON)
}

// plainLetter replaces characters that a folder's name must not have.
func plainLetter(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-' {
		return r
	}
	return '-'
}

// open opens the model and its tools. It returns the rollout settings of the model's run;
// nil for a model of no run.
func (e *modelEval) open(ctx context.Context, cmd *cobra.Command, cfg *evaluate.Config) (rollout *config.Rollout, err error) {
	c := &e.chat
	c.Model, c.Source, c.Key, c.Sandbox, c.Options.Slots, c.Client.Silence = c.model, c.source, os.Getenv(ChatKeyKey), cmd.Flags().Changed("sandbox"), e.parallel, e.silence
	if err := c.Open(ctx); err != nil {
		return nil, err
	}
	cfg.Model, cfg.Label = c.Client, e.label()
	if cfg.Source, err = e.source(ctx); err != nil {
		return nil, err
	}
	tools, ok, err := c.ToolConfig(ctx, min(e.parallel, 8))
	if err != nil || !ok {
		return c.Rollout(), err
	}
	cfg.Source.Tools = tools.Names
	cfg.NewTools = func(name, fixture string) (*chatclient.Tools, error) {
		own := tools
		own.Name, own.Fixture = fmt.Sprintf("%s/%s", tools.Name, name), fixture
		return chatclient.NewTools(own)
	}
	if _, err := cfg.NewTools("check", ""); err != nil {
		return nil, cli.Usage(err)
	}
	return c.Rollout(), nil
}

// source identifies the model: others may have its name.
func (e *modelEval) source(ctx context.Context) (evaluate.Source, error) {
	if e.chat.URL != "" {
		return evaluate.Source{Server: e.chat.Client.Address(), Card: e.chat.Client.Card}, nil
	}
	model, err := hf.Load(e.chat.Options.Dir)
	if err != nil {
		return evaluate.Source{}, err
	}
	weights, err := hf.Digest(ctx, model)
	return evaluate.Source{Weights: weights, MaxContext: e.chat.Options.MaxContext}, errors.Join(err, model.Close())
}

// readSets reads the sets. A given flag replaces the value of a suite.
func (e *modelEval) readSets(cmd *cobra.Command, cfg *evaluate.Config, rollout *config.Rollout) error {
	e.plain.Mode = evaluate.Mode(cmp.Or(e.mode, ownMode(rollout)))
	var wrong []error
	for _, text := range e.sets {
		set, err := evaluate.ParseSet(text, e.plain)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("--set %w", err))
			continue
		}
		if slices.ContainsFunc(cfg.Sets, func(s evaluate.Set) bool { return s.Name == set.Name }) {
			wrong = append(wrong, fmt.Errorf("--set %s: the name is used twice", text))
			continue
		}
		e.override(cmd, &set)
		if set.Temperature == 0 && set.Rollouts > 1 {
			wrong = append(wrong, fmt.Errorf("--set %s: %d samples at temperature 0: all of a problem would be equal; give --rollouts 1 or a --temperature", set.Name, set.Rollouts))
		}
		if set, err = evaluate.ReadSet(set); err != nil {
			wrong = append(wrong, fmt.Errorf("--set %s: %w", set.Name, err))
		}
		cfg.Sets = append(cfg.Sets, set)
	}
	if err := errors.Join(wrong...); err != nil {
		return cli.Usage(err)
	}
	return nil
}

// ownMode returns the mode by which a run judges answers.
func ownMode(rollout *config.Rollout) string {
	switch {
	case rollout == nil:
		return "released"
	case rollout.AnswerMode() != config.AnswerTag:
		return rollout.AnswerMode()
	default:
		return string(evaluate.Env)
	}
}

func (e *modelEval) override(cmd *cobra.Command, set *evaluate.Set) {
	changed := cmd.Flags().Changed
	if changed("rollouts") {
		set.Rollouts = e.plain.Rollouts
	}
	if changed("temperature") {
		set.Temperature = e.plain.Temperature
	}
	if changed("max-turns") {
		set.MaxTurns = e.plain.MaxTurns
	}
	if changed("max-tokens") {
		set.MaxTokens = e.plain.MaxTokens
	}
	if changed("suffix") {
		set.Suffix = e.plain.Suffix
	}
	if changed("mode") {
		set.Mode = e.plain.Mode
	}
}

// samples makes the samples that are missing.
func (e *modelEval) samples(ctx context.Context, cmd *cobra.Command, cfg evaluate.Config) ([]evaluate.Sample, error) {
	last := time.Time{}
	cfg.Progress = func(done, all int) {
		if now := time.Now(); done == all || now.Sub(last) > 5*time.Second {
			last = now
			fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d samples\n", done, all)
		}
	}
	return evaluate.Run(ctx, cfg)
}

// writeEvaluation writes both forms of the report and prints one.
func writeEvaluation(w io.Writer, folder string, report evaluate.Report, asJSON bool) error {
	var text strings.Builder
	if err := cli.PrintJSON(&text, report); err != nil {
		return err
	}
	for name, content := range map[string]string{"report.json": text.String(), "report.md": report.Markdown()} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o644); err != nil { //nolint:gosec // every user may read results
			return err
		}
	}
	if asJSON {
		_, err := io.WriteString(w, text.String())
		return err
	}
	_, err := io.WriteString(w, report.Markdown())
	return err
}
