package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/report"
	"temper/internal/run"
	"temper/internal/temporalclient"
	"temper/workflows"
)

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the runs of the store, and of the server where one is there", Args: cobra.NoArgs,
		Long: "List the runs of the store, and of the server where one is there.\n\n" +
			"A run that has not ended has the state that the server tells, and is lost where the server does not have it. Without a server it is open.",
	}
	p := cli.ProcessFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		store, err := openStore(cmd.Context(), p)
		if err != nil {
			return err
		}
		l := listing{store: store}
		if err := l.ask(cmd.Context(), p); err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "states are the store's alone: %v\n", err)
		}
		rows, err := l.rows(cmd.Context())
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "RUN\tSTATE\tSTEPS\tSEED\tACCURACY BY STAGE")
		for _, r := range rows {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.id, r.state, r.steps, r.seed, r.accuracy)
		}
		return t.Flush()
	}
	return cmd
}

// listTimeout bounds the wait for a server that may not be there.
const listTimeout = 2 * time.Second

// listing puts together what the store and the server know.
type listing struct {
	store blob.Store
	// asked is true when the server answered; open are its runs then.
	asked bool
	open  []workflows.OpenRun
}

type listRow struct{ id, state, steps, seed, accuracy string }

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
	return err
}

// rows are the runs of the store and those of the server that have no folder yet.
func (l *listing) rows(ctx context.Context) ([]listRow, error) {
	ids, err := artifact.RunIDs(ctx, l.store)
	if err != nil {
		return nil, err
	}
	var out []listRow
	for _, id := range ids {
		row, err := l.row(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	for _, run := range l.open {
		if !slices.Contains(ids, run.RunID) {
			out = append(out, listRow{id: run.RunID, state: string(cmp.Or(run.State, workflows.StatePreparing))})
		}
	}
	slices.SortFunc(out, func(a, b listRow) int { return cmp.Compare(a.id, b.id) })
	return out, nil
}

func (l *listing) row(ctx context.Context, id string) (listRow, error) {
	layout, row := artifact.Layout{RunID: id}, listRow{id: id}
	plan, _, err := run.StoredPlan(ctx, l.store, id)
	if err != nil {
		return row, err
	}
	row.seed = fmt.Sprint(plan.Seed)
	s, done, err := artifact.Lookup[artifact.Summary](ctx, l.store, layout.Summary())
	if err != nil {
		return row, err
	}
	if done {
		row.steps, row.state = fmt.Sprint(s.Steps), "done"
		if s.Stopped {
			row.state = "stopped"
		}
		for _, st := range s.Stages {
			row.accuracy += fmt.Sprintf("%s %s -> %s  ", st.Name, cmp.Or(report.Number(st.AccuracyBefore, 2), "-"), cmp.Or(report.Number(st.AccuracyAfter, 2), "-"))
		}
		return row, nil
	}
	records, err := artifact.StepRecords(ctx, l.store, layout)
	if err != nil {
		return row, err
	}
	step := 0
	if n := len(records); n > 0 {
		step = records[n-1].Step
	} else if plan.Fork != nil {
		step = plan.Fork.Step
	}
	row.steps = fmt.Sprintf("%d/%d", step, plan.NumSteps())
	row.state, err = l.state(ctx, layout)
	return row, err
}

// state is that of a run without a summary.
func (l *listing) state(ctx context.Context, layout artifact.Layout) (string, error) {
	if i := slices.IndexFunc(l.open, func(r workflows.OpenRun) bool { return r.RunID == layout.RunID }); i >= 0 {
		return string(cmp.Or(l.open[i].State, "open")), nil
	}
	events, err := l.store.List(ctx, layout.Events()+"/")
	switch {
	case err != nil:
		return "", err
	case len(events) > 0 && artifact.EventKind(events[len(events)-1].Key) == "fail":
		return "failed", nil
	case l.asked:
		return "lost", nil
	default:
		return "open", nil
	}
}
