package runclient

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

	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run"
	"temper/internal/temporalclient"
	"temper/workflows"
)

// List returns the runs of a store with the states that the server of p knows. note says why
// the server did not answer, nil if it did.
func List(ctx context.Context, p *config.Process, store blob.Store) (rows []run.CatalogEntry, note, err error) {
	l := listing{}
	var asking sync.WaitGroup
	asking.Go(func() { note = l.ask(ctx, p) })
	entries, err := history.List(ctx, store)
	asking.Wait()
	return l.rows(entries), note, err
}

// WriteList prints runs as a table.
func WriteList(out io.Writer, rows []run.CatalogEntry) error {
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

// listing is the server's answer.
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
			l.complete(&rows[i])
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

// complete adds what the server knows of a run that has not ended.
func (l *listing) complete(e *run.CatalogEntry) {
	i := slices.IndexFunc(l.open, func(r workflows.OpenRun) bool { return r.RunID == e.RunID })
	if i < 0 {
		if l.asked {
			e.State = stateLost
		}
		return
	}
	open := l.open[i]
	e.State, e.Trouble = cmp.Or(string(open.State), e.State), cmp.Or(open.Trouble, e.Trouble)
	if open.Frozen != nil {
		e.Reason = frozenReason(open.Frozen, e.RunID)
	}
}

// frozenReason names the way out before the reason that a person gave, which may be long.
func frozenReason(f *workflows.Freeze, runID string) string {
	text := fmt.Sprintf("by %s on the server since %s, temper run resume %s continues it", f.By, f.Since.UTC().Format(time.RFC3339), runID)
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	return text
}

// stateLost is the state of a run that has not ended and that the server does not have.
const stateLost = "lost"
