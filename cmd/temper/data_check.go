package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/dataset"
	"temper/internal/openai/chatclient"
)

func dataCheckCommand() *cobra.Command {
	var format formatFlags
	var opts dataset.SurveyOptions
	var against []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Find every row that a run would refuse or drop",
		Long: `Reads files of problems or dialogues in the format of a run and says what is in them: rows,
sources and licences, rows that are malformed, problems with the same prompt, rows that are
too long for --max-tokens, and dialogues that do not fit the chat format. Files given with
--against are evaluation sets: problems that are in both are reported. The exit status is 2
when a run would refuse or drop a row.`,
		Args: cobra.MinimumNArgs(1),
	}
	f := cmd.Flags()
	f.IntVar(&opts.MaxTokens, "max-tokens", 0, "tokens of a prompt or of a dialogue at most; 0 for no bound")
	f.StringArrayVar(&against, "against", nil, "file of held-out problems that must not be in the files; repeatable")
	f.BoolVar(&asJSON, "json", false, "print the findings as JSON")
	format.add(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if opts.MaxTokens > 0 || format != (formatFlags{}) {
			if opts.Format, err = format.open(cmd.Context()); err != nil {
				return cli.Usage(err)
			}
		}
		if opts.Against, err = dataset.ReadHeldOut(against); err != nil {
			return cli.Usage(err)
		}
		found, err := dataset.SurveyFiles(args, opts)
		if err != nil {
			return cli.Usage(err)
		}
		if asJSON {
			err = cli.PrintJSON(cmd.OutOrStdout(), found)
		} else {
			err = describeSurvey(cmd.OutOrStdout(), found)
		}
		if n := found.Wrong(); err == nil && n > 0 {
			err = cli.Usagef("%d rows would be refused or dropped", n)
		}
		return err
	}
	return cmd
}

// describeSurvey prints what was found. Sources and ids of rows may hold signs that steer a
// terminal.
func describeSurvey(w io.Writer, s *dataset.Survey) error {
	out := &strings.Builder{}
	for _, f := range s.Files {
		fmt.Fprintf(out, "%s: %d %s\n", f.Path, f.Rows, f.Kind)
		if f.LongestTokens > 0 {
			fmt.Fprintf(out, "  the longest has %d tokens\n", f.LongestTokens)
		}
		if f.OwnTools > 0 {
			fmt.Fprintf(out, "  %d with tools of their own, %d tools in all\n", f.OwnTools, f.Tools)
		}
		if f.Fitted > 0 {
			fmt.Fprintf(out, "  %d are fitted to the chat format\n", f.Fitted)
		}
		for _, name := range slices.Sorted(maps.Keys(f.Origins)) {
			fmt.Fprintf(out, "  %d rows of %s\n", f.Origins[name], name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(s.Findings)) {
		found := s.Findings[reason]
		fmt.Fprintf(out, "%s: %d rows\n", reason, found.Rows)
		for _, e := range found.Examples {
			fmt.Fprintf(out, "  %s\n", strings.ReplaceAll(e, "\n", " "))
		}
		if more := found.Rows - len(found.Examples); more > 0 {
			fmt.Fprintf(out, "  and %d more\n", more)
		}
	}
	_, err := io.WriteString(w, chatclient.Escape(out.String()))
	return err
}
