package main

import (
	"context"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/config"
	"temper/internal/runs"
	"temper/internal/service"
	"temper/internal/supervise"
	"temper/tools/bench"
	"temper/trainer/estimate"
	"temper/workers"
)

// benchCommand is the one entry to the instruments: no other file imports them.
func benchCommand() *cobra.Command {
	asked := func(r bench.Run) *runs.Submission { return &runs.Submission{File: r.Config, Set: r.Set, RunID: r.ID} }
	return bench.Command(bench.Service{
		OpenStore: workers.OpenStore, StoreServer: service.StoreChild, RunFailure: runs.Failure,
		CheckRun: func(r bench.Run) (string, error) {
			cfg, err := asked(r).Load()
			if err != nil {
				return "", err
			}
			return cfg.Hash()
		},
		Claim: service.Claim,
		Children: func(p *config.Process, rollouts int) ([]supervise.Child, error) {
			return service.Children(p, service.Options{Embedded: true, RolloutWorkers: rollouts})
		},
		Submit: func(ctx context.Context, c client.Client, r bench.Run) error { return runs.Submit(ctx, c, asked(r)) },
	})
}

// comparePlan makes the step of a plan beside its estimate.
func comparePlan(cmd *cobra.Command, r estimate.Request, s estimate.Summary, asJSON bool) error {
	return bench.ComparePlan(cmd, r, s, asJSON)
}
