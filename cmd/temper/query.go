package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/query"
)

// asking is what a person asks of a query.
type asking struct {
	limits query.Limits
	format string
	tables bool
}

func queryCommand(p *config.Process) *cobra.Command {
	a := asking{limits: query.DefaultLimits()}
	cmd := &cobra.Command{
		Use: "query 'SELECT ...'", Short: "Ask the store in SQL: runs, steps, series, trajectories, tool calls, evaluations, events",
		Long: `Answers a SELECT in the SQL of SQLite over the runs of a store. Nothing is changed, no service is needed. Name run
and step where you can: a condition on them reads these alone. --tables lists the tables with their columns.
NaN is NULL. Of two columns with one name the second is called name_2.

  temper query 'SELECT run, state, step, reward FROM runs ORDER BY reward DESC'
  temper query "SELECT stop_reason, count(*), avg(reward) FROM trajectories WHERE run = 'demo' AND step > 20 GROUP BY 1"
  temper query "SELECT step, value FROM series WHERE run = 'demo' AND key = 'actor/entropy'" --format csv`,
		Args: cobra.MaximumNArgs(1),
	}
	flags := cmd.Flags()
	flags.StringVar(&a.format, "format", "table", "table, json or csv")
	flags.DurationVar(&a.limits.Time, "timeout", a.limits.Time, "the query is stopped after this time")
	flags.IntVar(&a.limits.Rows, "rows", a.limits.Rows, "most rows of the answer")
	flags.BoolVar(&a.tables, "tables", false, "list the tables and their columns")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		write, ok := map[string]func(io.Writer, query.Result) error{"table": writeTable, "json": writeJSON, "csv": writeCSV}[a.format]
		switch {
		case a.tables:
			return writeTables(cmd.OutOrStdout())
		case len(args) == 0:
			return cli.Usagef("the query is missing: temper query 'SELECT ...' (--tables lists what there is)")
		case !ok:
			return cli.Usagef("--format: is %q, want table, json or csv", a.format)
		case a.limits.Time <= 0 || a.limits.Rows < 1:
			return cli.Usagef("--timeout and --rows: want more than 0")
		}
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		got, err := query.Run(cmd.Context(), store, args[0], a.limits)
		if err != nil {
			return usersError(err)
		}
		if err := write(cmd.OutOrStdout(), got); err != nil {
			return err
		}
		if got.Truncated {
			fmt.Fprintf(cmd.ErrOrStderr(), "the answer has more than these %d rows: --rows allows more\n", len(got.Rows))
		}
		return nil
	}
	return cmd
}

func writeTables(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, table := range query.Tables() {
		fmt.Fprintf(t, "%s\t\t%s\n", table.Name, table.Meaning)
		for _, c := range table.Columns {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", c.Name, strings.ToLower(c.Type), c.Meaning)
		}
	}
	return t.Flush()
}

// writeTable shows texts so that they can do nothing to a terminal.
func writeTable(out io.Writer, r query.Result) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(plain(r.Columns), "\t"))
	for _, row := range r.Rows {
		cells := make([]string, len(row))
		for i, v := range row {
			if cells[i] = cellText(v); v == nil {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(plain(cells), "\t"))
	}
	return t.Flush()
}

func plain(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = export.Visible(text)
	}
	return out
}

func cellText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		return fmt.Sprint(v)
	}
}

func writeJSON(out io.Writer, r query.Result) error {
	rows := make([]map[string]any, len(r.Rows))
	for i, row := range r.Rows {
		rows[i] = make(map[string]any, len(row))
		for k, v := range row {
			rows[i][r.Columns[k]] = v
		}
	}
	return cli.PrintJSON(out, rows)
}

func writeCSV(out io.Writer, r query.Result) error {
	w := csv.NewWriter(out)
	if err := w.Write(r.Columns); err != nil {
		return err
	}
	for _, row := range r.Rows {
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = cellText(v)
		}
		if err := w.Write(cells); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
