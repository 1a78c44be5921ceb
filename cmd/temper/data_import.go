package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/blob/memblob"
	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/cli"
	"temper/internal/dataset"
	"temper/internal/dataset/importer"
	"temper/internal/dataset/layout"
	"temper/internal/env"
	"temper/internal/reward"
	"temper/internal/run/setup"
	"temper/internal/service/runclient"
	"temper/internal/tool/builtin"
)

// importFlags are the flags of `temper data import`.
type importFlags struct {
	opts    importer.Options
	out     string
	fields  string
	answers string
	samples string
	matches int
	mode    string
	against []string
	format  formatFlags
	json    bool
}

func importCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE... --out OUT.jsonl",
		Short: "Turn public data sets into problems or dialogues of ours",
		Long: `Turns the rows of public data sets into problems or dialogues, cleans them, and writes a
report of what became of each row: OUT.report.md and OUT.report.json. Files are Parquet,
JSON lines or JSON; a folder stands for all of its files. The layout is recognized:

` + layoutList() + `
A malformed row stops the import unless --max-bad allows it. An import that was
interrupted goes on when the same command is run again.`,
		Args: cobra.MinimumNArgs(1),
	}
	f.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.resolve(cmd.Context()); err != nil {
			return cli.Usage(err)
		}
		files, err := importer.Files(args)
		if err != nil {
			return cli.Usage(err)
		}
		report, err := importer.Run(cmd.Context(), files, f.out, f.opts)
		return errors.Join(f.print(cmd.OutOrStdout(), report), dataError(cmd, err))
	}
	return cmd
}

func layoutList() string {
	var b strings.Builder
	for _, l := range layout.All() {
		fmt.Fprintf(&b, "  %-11s %s\n", l.Name, l.About)
	}
	return b.String()
}

func (f *importFlags) flags(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVarP(&f.out, "out", "o", "", "file to write")
	s.BoolVar(&f.opts.Overwrite, "overwrite", false, "replace the output of an earlier import, at the end of this one")
	s.StringVar(&f.opts.Layout, "layout", "", "layout of the rows; default is to recognize it")
	s.StringVar(&f.fields, "map", "", "where fields are, for example prompt=question,answer=meta.gold; instead of a layout")
	s.StringVar(&f.opts.Source, "source", "", "source of all rows; default is what a row states, else the name of its file")
	s.StringVar(&f.opts.License, "license", "", "licence of rows that state none; default is that of README.md beside the file")
	s.StringVar(&f.opts.Env, "env", "math", "environment that judges imported problems: "+strings.Join(env.Names(), ", "))
	s.StringVar(&f.answers, "answers", string(dataset.AnyAnswer), "answers to keep: any, verifiable (formulas, one part), integers (whole numbers, one part)")
	s.IntVar(&f.opts.Rules.MaxDigits, "max-digits", 0, "drop whole numbers with more digits; 0 for no bound")
	s.BoolVar(&f.opts.KeepDuplicates, "keep-duplicates", false, "keep problems with the same prompt, and dialogues that are the same")
	s.StringVar(&f.samples, "samples", "", "JSON lines of {prompt, responses}: keep problems whose answer --min-matches of them confirm")
	s.IntVar(&f.matches, "min-matches", 2, "samples that must confirm an answer")
	s.StringVar(&f.mode, "verify-mode", string(reward.Released), "how the answer is found in a sample: paper, tag, integer, released")
	s.StringArrayVar(&f.against, "against", nil, "benchmark in any layout: drop rows that share 8 words in a row with it; repeatable")
	s.IntVar(&f.opts.MaxPromptChars, "max-prompt-chars", 0, "drop longer prompts; 0 for no bound")
	s.IntVar(&f.opts.MaxPromptTokens, "max-prompt-tokens", 0, "drop longer prompts, counted by the chat format; of dialogues, the whole; 0 for no bound")
	s.StringVar(&f.opts.Fields.CodeTool, "code-tool", builtin.Python, "tool of the call that code becomes: "+strings.Join(builtin.Programs(), ", "))
	s.Int64Var(&f.opts.MaxBad, "max-bad", 0, "malformed rows that are tolerated")
	s.BoolVar(&f.json, "json", false, "print the report as JSON")
	f.format.add(s)
}

// resolve turns flags into options. The error has a line for each mistake.
func (f *importFlags) resolve(ctx context.Context) error {
	var bad []error
	if f.out == "" {
		bad = append(bad, errors.New("--out is missing: name the file to write"))
	}
	if f.fields != "" && f.opts.Layout != "" {
		bad = append(bad, errors.New("--map and --layout exclude each other"))
	}
	if f.fields != "" {
		m, err := layout.ParseMap(f.fields)
		f.opts.Fields.Map = m
		bad = append(bad, err)
	}
	if f.opts.Layout != "" {
		_, err := layout.ByName(f.opts.Layout)
		bad = append(bad, err)
	}
	_, err := env.ByName(f.opts.Env)
	bad = append(bad, err)
	f.opts.Rules.Answers = dataset.Answers(f.answers)
	switch f.opts.Rules.Answers {
	case dataset.AnyAnswer, dataset.Verifiable, dataset.Integers:
	default:
		bad = append(bad, fmt.Errorf("--answers is %q, want any, verifiable or integers", f.answers))
	}
	if f.opts.MaxBad < 0 || f.opts.MaxPromptChars < 0 || f.opts.MaxPromptTokens < 0 || f.opts.Rules.MaxDigits < 0 {
		bad = append(bad, errors.New("a bound is below 0"))
	}
	if err := errors.Join(bad...); err != nil {
		return err
	}
	return f.open(ctx)
}

// open reads the files that the options name.
func (f *importFlags) open(ctx context.Context) (err error) {
	if f.samples != "" {
		if f.opts.Agreement, err = dataset.NewAgreement(f.matches, reward.Mode(f.mode)); err != nil {
			return err
		}
		if err := importer.ReadSamples(f.samples, f.opts.Agreement); err != nil {
			return err
		}
		f.opts.AlsoRead = append(f.opts.AlsoRead, f.samples)
		f.opts.AgreementOf = fmt.Sprintf("%s %d %s", f.samples, f.matches, f.mode)
	}
	if len(f.against) > 0 {
		if f.opts.Benchmarks, err = importer.ReadBenchmarks(f.against, dataset.GramWords); err != nil {
			return err
		}
		files, err := importer.Files(f.against)
		if err != nil {
			return err
		}
		f.opts.AlsoRead = append(f.opts.AlsoRead, files...)
		f.opts.BenchmarksOf = strings.Join(f.against, " ")
	}
	if f.opts.MaxPromptTokens > 0 {
		format, err := f.format.open(ctx)
		if err != nil {
			return err
		}
		f.opts.Tokens = func(item *layout.Item) (int, error) { return importer.Tokens(format, item) }
		f.opts.CountedBy = f.format.name()
	}
	return nil
}

func (f *importFlags) print(out io.Writer, report *importer.Report) error {
	if report.Read == 0 {
		return nil // the error says it all
	}
	if f.json {
		return cli.PrintJSON(out, report)
	}
	return report.Markdown(out)
}

// dataError marks what the data is to blame for. Only an interruption is none of it.
func dataError(cmd *cobra.Command, err error) error {
	if err == nil || cmd.Context().Err() != nil {
		return err
	}
	return cli.Usage(err)
}

// formatFlags name the chat format by which prompts and dialogues are rendered.
type formatFlags struct {
	config  string
	model   string
	builtin string
}

func (f *formatFlags) add(s interface {
	StringVar(p *string, name, value, usage string)
}) {
	s.StringVar(&f.model, "model", "", "checkpoint whose tokenizer and chat template count and render")
	s.StringVar(&f.builtin, "format", "", "built-in chat format instead of the checkpoint's template: "+strings.Join(chat.BuiltinNames(), ", "))
	s.StringVar(&f.config, "config", "", "run configuration whose chat format and tools count and render")
}

func (f *formatFlags) name() string { return strings.Join([]string{f.config, f.model, f.builtin}, " ") }

// open returns the format: that of a configuration, that of a checkpoint, or the small
// ChatML over bytes.
func (f *formatFlags) open(ctx context.Context) (*chat.Format, error) {
	if f.config != "" {
		if f.model != "" || f.builtin != "" {
			return nil, errors.New("--config excludes --model and --format: it names them")
		}
		cfg, err := runclient.LoadConfig(f.config, nil)
		if err != nil {
			return nil, err
		}
		return setup.OpenFormat(ctx, memblob.New(), cfg)
	}
	cfg, err := f.template()
	if err != nil {
		return nil, err
	}
	if f.model == "" {
		return chat.NewPlain(cfg)
	}
	tok, err := tokenizer.Load(filepath.Join(f.model, "tokenizer.json"))
	if err != nil {
		return nil, err
	}
	return chat.New(tok, cfg)
}

func (f *formatFlags) template() (cfg chat.Config, err error) {
	switch {
	case f.builtin != "":
		cfg.Template, err = chat.Builtin(f.builtin)
	case f.model != "":
		cfg.Template, err = chat.LoadTemplate(f.model, "", true)
	}
	return cfg, err
}
