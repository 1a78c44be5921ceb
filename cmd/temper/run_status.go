package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/report"
	"temper/workflows"
)

func statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "status RUN", Short: "Ask a run for its status", Args: cobra.ExactArgs(1)}
	p := cli.ProcessFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the whole answer as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, _, err := connect(cmd.Context(), p, nil)
		if err != nil {
			return err
		}
		defer c.Close()
		status, err := workflows.Status(cmd.Context(), c, args[0])
		if err != nil {
			return unknownRun(err, args[0])
		}
		if !asJSON {
			return writeStatus(cmd.OutOrStdout(), status)
		}
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(status)
	}
	return cmd
}

// writeStatus prints what is known of a run, one fact a line.
func writeStatus(out io.Writer, s workflows.RunStatus) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	line := func(key, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", key, fmt.Sprintf(format, args...)) }
	line("run", "%s", s.RunID)
	line("state", "%s", s.State)
	if s.Since != nil {
		line("since", "%s", s.Since.UTC().Format(time.RFC3339))
	}
	for key, text := range ordered("by", s.By, "reason", s.Reason) {
		line(key, "%s", text)
	}
	if s.SFTStep < s.SFTSteps {
		line("sft", "update %d of %d", s.SFTStep, s.SFTSteps)
	}
	if s.Stage > 0 {
		line("stage", "%d (%s)", s.Stage, s.StageName)
	}
	line("step", "%d of %d, policy %d", s.Step, s.NumSteps, s.PolicyVersion)
	if s.Last.Seconds > 0 {
		line("last step", "reward %.3f, tool errors %.3f, %.0f tokens, loss %.4f, %.1f s",
			s.Last.Reward, s.Last.ToolErrorRate, s.Last.ResponseTokens, s.Last.Loss, s.Last.Seconds)
	}
	if s.ETASeconds > 0 {
		line("remaining", "%s", time.Duration(s.ETASeconds*float64(time.Second)).Round(time.Second))
	}
	writeOrigins(line, s)
	for _, g := range s.Stages {
		text := fmt.Sprintf("%d steps", g.Steps)
		if g.Before != nil && g.After != nil {
			text += fmt.Sprintf(", accuracy %s -> %s", report.Number(&g.Before.Accuracy, 2), report.Number(&g.After.Accuracy, 2))
		}
		if g.Note != "" {
			text += ", " + g.Note
		}
		line("  "+g.Name, "%s", text)
	}
	return t.Flush()
}

// writeOrigins tells where a run comes from, what changed and where it goes on.
func writeOrigins(line func(key, format string, args ...any), s workflows.RunStatus) {
	if s.Checkpoint != nil {
		line("checkpoint", "after step %d", *s.Checkpoint)
	}
	if s.Priority > 0 {
		line("priority", "%d", s.Priority)
	}
	if s.Fork != nil {
		line("fork of", "run %s, step %d", s.Fork.RunID, s.Fork.Step)
	}
	for _, a := range s.Amendments {
		line("amended", "%s", a)
	}
	for key, text := range ordered("restarted", s.Restarted, "summary", s.SummaryPath) {
		line(key, "%s", text)
	}
}

// ordered yields keys and values in turn, without the empty ones.
func ordered(pairs ...string) func(yield func(key, text string) bool) {
	return func(yield func(key, text string) bool) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i+1] != "" && !yield(pairs[i], pairs[i+1]) {
				return
			}
		}
	}
}
