package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"temper/internal/chat/tokenizer"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/evaluate"
	"temper/internal/history"
	"temper/internal/rl"
	"temper/internal/run/modeldir"
	"temper/internal/service/runclient"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

// analyzing is what a person asks of an analysis.
type analyzing struct {
	runID, out, backend string
	step, trajectories  int
	seed                uint64
	options             evaluate.Options
}

func analyzeCommand(p *config.Process) *cobra.Command {
	a := analyzing{}
	cmd := &cobra.Command{
		Use: "analyze RUN --step N -o DIR", Short: "Show where a policy was uncertain: the entropy of each sampled token of stored trajectories",
		Long: `Draws stored trajectories of a step, computes the entropy of each sampled token with the policy that
sampled it (one forward pass; records hold log-probabilities only), and counts where the most uncertain
tokens stand: in reasoning, in reflection right after a tool's response, in code, in the answer. Writes
DIR/analysis.json and DIR/analysis.html. The log-probabilities of the pass are compared with the stored
ones, so that an analysis with another policy or temperature shows.`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.IntVar(&a.step, "step", 0, "the step")
	f.StringVarP(&a.out, "out", "o", "", "folder for the two files; it is made where it is missing")
	f.IntVar(&a.trajectories, "trajectories", 64, "how many trajectories are drawn")
	f.Uint64Var(&a.seed, "seed", 1, "draws them")
	f.Float64Var(&a.options.Top, "top", 0.2, "share of a trajectory's sampled tokens that counts as its most uncertain ones")
	f.IntVar(&a.options.Window, "window", 32, "tokens of text after a tool's response that are reflection")
	f.StringVar(&a.backend, "backend", "go", "device that computes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.runID = args[0]
		if err := a.check(); err != nil {
			return cli.Usage(err)
		}
		return a.analyze(cmd.Context(), p, cmd.OutOrStdout())
	}
	return cmd
}

// check finds all mistakes at once.
func (a *analyzing) check() error {
	var errs []error
	if a.step < 1 {
		errs = append(errs, fmt.Errorf("--step is %d: want a step of the run, from 1", a.step))
	}
	if a.out == "" {
		errs = append(errs, errors.New("--out is missing: want a folder for the two files"))
	}
	if a.trajectories < 1 {
		errs = append(errs, fmt.Errorf("--trajectories is %d: want at least 1", a.trajectories))
	}
	if err := a.options.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--top, --window: %w", err))
	}
	return errors.Join(errs...)
}

func (a *analyzing) analyze(ctx context.Context, p *config.Process, out io.Writer) error {
	r, err := runclient.Find(ctx, p, a.runID)
	if err != nil {
		return err
	}
	cfg, err := r.Config(ctx)
	if err != nil {
		return err
	}
	drawn, err := a.draw(ctx, r)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "temper-analyze-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // below the folder for temporary files
	page := evaluate.Page{Options: a.options, Trajectories: make([]evaluate.Trajectory, len(drawn))}
	version, worst := drawn[0].PolicyVersion, 0.0
	model := filepath.Join(dir, "model")
	if _, err := modeldir.Write(ctx, r.Store(), modeldir.Source{RunID: a.runID, Version: &version}, model, safetensors.F32); err != nil {
		return fmt.Errorf("policy %d, which sampled step %d: %w", version, a.step, err)
	}
	m, err := hf.Load(model)
	if err != nil {
		return err
	}
	defer m.Close() //nolint:errcheck // read only
	tok, err := tokenizer.Load(filepath.Join(model, hf.TokenizerFile))
	if err != nil {
		return err
	}
	sequences := make([][]int32, len(drawn))
	for i := range drawn {
		sequences[i] = drawn[i].Tokens
	}
	err = hf.Entropies(m, a.backend, cfg.Rollout.Temperature, sequences, func(i int, entropy, logprob []float32) (err error) {
		t := &drawn[i]
		for k, sampled := range t.LossMask {
			if sampled {
				worst = max(worst, math.Abs(float64(logprob[k]-t.RolloutLogprobs[k])))
			}
		}
		page.Trajectories[i], err = evaluate.JudgeTokens(t, entropy, logprob, tok, a.options)
		return err
	})
	if err != nil {
		return err
	}
	page.Summary = evaluate.SummarizeEntropy(page.Trajectories)
	page.Title = fmt.Sprintf("Entropy of sampled tokens: run %s, step %d", a.runID, a.step)
	page.Notes = []string{fmt.Sprintf("%d trajectories, policy %d, temperature %v. Largest difference of a log-probability from the stored one: %.2g.",
		len(drawn), version, cfg.Rollout.Temperature, worst)}
	if err := a.write(page, version, worst); err != nil {
		return err
	}
	printAnalysis(out, page, a.out)
	return nil
}

// draw reads trajectories of the step that are drawn independently of their content. It
// leaves out those that count for nothing. Errors: there are none, or policies differ.
func (a *analyzing) draw(ctx context.Context, r *history.Run) ([]rl.Trajectory, error) {
	problems, err := r.Problems(ctx, a.step)
	if err != nil {
		return nil, err
	}
	rnd := rl.Rand(rl.Seed(a.seed, "analysis", uint64(a.step)))
	var all []rl.Trajectory
	// Groups of a step have one size, so that drawing from whole groups in a random order
	// and then among their members is fair. Four times as many as wanted are enough to mix.
	for _, at := range rnd.Perm(len(problems)) {
		group, err := r.Group(ctx, a.step, problems[at])
		if err != nil {
			return nil, err
		}
		for i := range group {
			if !group[i].Excluded() && group[i].ResponseTokens() > 0 {
				all = append(all, group[i])
			}
		}
		if len(all) >= 4*a.trajectories && len(all) >= 16*max(1, len(group)) {
			break
		}
	}
	if len(all) == 0 {
		return nil, cli.Usagef("run %s has no trajectories of step %d: it was not sampled, or checkpoint.keep_trajectories has deleted them", r.ID(), a.step)
	}
	var drawn []rl.Trajectory
	for _, at := range rnd.Perm(len(all)) {
		if drawn = append(drawn, all[at]); len(drawn) == a.trajectories {
			break
		}
	}
	for i := range drawn {
		if v := drawn[i].PolicyVersion; v != drawn[0].PolicyVersion {
			return nil, fmt.Errorf("step %d of run %s was sampled by the policies %d and %d: an analysis is of one", a.step, r.ID(), drawn[0].PolicyVersion, v)
		}
	}
	return drawn, nil
}

// write makes the two files.
func (a *analyzing) write(page evaluate.Page, version int64, worst float64) error {
	if err := os.MkdirAll(a.out, 0o755); err != nil { //nolint:gosec // for others to read
		return cli.Usage(err)
	}
	data, err := json.MarshalIndent(map[string]any{
		"run": a.runID, "step": a.step, "policy_version": version, "top": a.options.Top, "window": a.options.Window, "seed": a.seed,
		"largest_logprob_difference": worst, "summary": page.Summary, "trajectories": page.Trajectories,
	}, "", " ")
	if err != nil {
		return err
	}
	var html bytes.Buffer
	if err := evaluate.WriteHTML(&html, page); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"analysis.json": data, "analysis.html": html.Bytes()} {
		if err := os.WriteFile(filepath.Join(a.out, name), content, 0o644); err != nil { //nolint:gosec // for others to read
			return err
		}
	}
	return nil
}

func printAnalysis(out io.Writer, page evaluate.Page, dir string) {
	for _, note := range page.Notes {
		fmt.Fprintln(out, note)
	}
	fmt.Fprintf(out, "%-12s %8s %8s %8s %8s\n", "class", "tokens", "entropy", "top", "share")
	for _, c := range page.Summary.Classes {
		fmt.Fprintf(out, "%-12s %8d %8.3f %8d %7.1f%%\n", c.Class, c.Tokens, c.Entropy, c.Top, 100*c.Share())
	}
	fmt.Fprintf(out, "written: %s\n", filepath.Join(dir, "analysis.html"))
}
