package main

import (
	"context"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/service"
	"temper/tools/bench"
	"temper/trainer/estimate"
)

// benchCommand is the one entry to the instruments: no other file imports them.
func benchCommand() *cobra.Command {
	asked := func(r bench.Run) *submission { return &submission{config: r.Config, set: r.Set, runID: r.ID} }
	return bench.Command(bench.Service{
		OpenStore: openStore, StoreServer: service.StoreChild, RunFailure: runFailure,
		CheckRun: func(r bench.Run) error { _, err := asked(r).load(); return err },
		Submit:   func(ctx context.Context, c client.Client, r bench.Run) error { return submit(ctx, c, asked(r)) },
	})
}

// comparePlan makes the step of a plan beside its estimate.
func comparePlan(cmd *cobra.Command, r estimate.Request, s estimate.Summary, asJSON bool) error {
	return bench.ComparePlan(cmd, r, s, asJSON)
}
