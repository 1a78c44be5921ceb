package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/temporalclient"
	"temper/workflows"
)

func listCommand(p *config.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the runs of the store, and of the server where one is there", Args: cobra.NoArgs,
		Long: "List the runs of the store, and of the server where one is there.\n\n" +
			"A run that has not ended has the state that the server tells, and is lost where the server does not have it.\n" +
			"Without a server its state is the last one in the store, with the reason of a pause, a stop or a failure.",
	}
	var asJSON bool
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		l := listing{}
		var asking sync.WaitGroup
		var askErr error
		asking.Go(func() { askErr = l.ask(cmd.Context(), p) })
		entries, err := history.List(cmd.Context(), store)
		asking.Wait()
		if err != nil {
			return err
		}
		if askErr != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "states are the store's alone: %v\n", askErr)
		}
		rows := l.rows(entries)
		if asJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), rows)
		}
		return printRuns(cmd.OutOrStdout(), rows)
	}
	return cmd
}

func printRuns(out io.Writer, rows []run.CatalogEntry) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "RUN\tSTATE\tSTEPS\tREWARD\tSEED\tACCURACY BY STAGE, REASON")
	for _, r := range rows {
		steps, reward, seed := "", "", ""
		if r.NumSteps > 0 { // the store has it
			steps, seed = fmt.Sprintf("%d/%d", r.Step, r.NumSteps), fmt.Sprint(r.Seed)
		}
		if r.Reward != nil {
			reward = export.Number(r.Reward, 3)
		}
		var notes []string
		for _, s := range r.Stages {
			notes = append(notes, fmt.Sprintf("%s %s -> %s", s.Name, cmp.Or(export.Number(s.Before, 2), "-"), cmp.Or(export.Number(s.After, 2), "-")))
		}
		if r.Reason != "" {
			notes = append(notes, oneLine(r.Reason, maxReason))
		}
		if r.Trouble != "" {
			notes = append(notes, oneLine("trouble: "+r.Trouble, maxReason))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.RunID, r.State, steps, reward, seed, strings.Join(notes, "  "))
	}
	return t.Flush()
}

// maxReason is how much of a reason the list shows; --json and run status have all.
const maxReason = 100

// oneLine is the first line of a text, cut where it is long.
func oneLine(text string, most int) string {
	text, _, _ = strings.Cut(text, "\n")
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-3]) + "..."
	}
	return text
}

// listTimeout bounds the wait for a server that may not be there.
const listTimeout = 2 * time.Second

// listing puts together what the store and the server know.
type listing struct {
	// asked is true when the server answered; open are its runs then.
	asked bool
	open  []workflows.OpenRun
}

func (l *listing) ask(ctx context.Context, p *config.Process) error {
	c, err := temporalclient.Dial(ctx, temporalclient.Config{
		Address: p.TemporalAddress, Namespace: p.Namespace, Logger: cli.NewLogger("client"), Timeout: listTimeout,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	l.open, err = workflows.OpenRuns(ctx, c)
	l.asked = err == nil
	workflows.MarkStuck(ctx, c, l.open)
	return err
}

// rows are the runs of the store and those of the server that have no folder yet.
func (l *listing) rows(rows []run.CatalogEntry) []run.CatalogEntry {
	known := map[string]bool{}
	for i := range rows {
		known[rows[i].RunID] = true
		if !rows[i].Ended() {
			rows[i].State = l.state(&rows[i])
			if f := l.frozen(rows[i].RunID); f != nil {
				rows[i].Reason = frozenReason(f, rows[i].RunID)
			}
			rows[i].Trouble = cmp.Or(l.trouble(rows[i].RunID), rows[i].Trouble)
		}
	}
	for _, open := range l.open {
		if !known[open.RunID] {
			rows = append(rows, run.CatalogEntry{RunID: open.RunID, State: string(cmp.Or(open.State, workflows.StatePreparing)), Trouble: open.Trouble})
		}
	}
	slices.SortFunc(rows, func(a, b run.CatalogEntry) int { return cmp.Compare(a.RunID, b.RunID) })
	return rows
}

// state is that of a run that has not ended, as far as the store knows.
func (l *listing) state(e *run.CatalogEntry) string {
	if i := slices.IndexFunc(l.open, func(r workflows.OpenRun) bool { return r.RunID == e.RunID }); i >= 0 {
		return cmp.Or(string(l.open[i].State), e.State)
	}
	if l.asked {
		return stateLost
	}
	return e.State
}

// frozen is the server's own pause of a run; nil for none.
func (l *listing) frozen(runID string) *workflows.Freeze {
	if i := slices.IndexFunc(l.open, func(r workflows.OpenRun) bool { return r.RunID == runID }); i >= 0 {
		return l.open[i].Frozen
	}
	return nil
}

// frozenReason has the way out before what somebody wrote, which may be long.
func frozenReason(f *workflows.Freeze, runID string) string {
	text := fmt.Sprintf("by %s on the server since %s, temper run resume %s lets it go on", f.By, f.Since.UTC().Format(time.RFC3339), runID)
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	return text
}

// trouble is why a run that is going on is stuck.
func (l *listing) trouble(runID string) string {
	for _, open := range l.open {
		if open.RunID == runID {
			return open.Trouble
		}
	}
	return ""
}

// stateLost is that of a run which has not ended and the server does not have.
const stateLost = "lost"
