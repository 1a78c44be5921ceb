package main

import (
	"context"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/config"
	"temper/internal/service"
	"temper/internal/supervise"
	"temper/tools/bench"
	"temper/trainer/estimate"
)

// benchCommand is the one entry to the instruments: no other file imports them.
func benchCommand() *cobra.Command {
	asked := func(r bench.Run) *submission { return &submission{config: r.Config, set: r.Set, runID: r.ID} }
	return bench.Command(bench.Service{
		OpenStore: openStore, StoreServer: service.StoreChild, RunFailure: runFailure,
		CheckRun: func(r bench.Run) (string, error) {
			cfg, err := asked(r).load()
			if err != nil {
				return "", err
			}
			return cfg.Hash()
		},
		Claim: service.Claim,
		Children: func(p *config.Process, rollouts int) ([]supervise.Child, error) {
			return service.Children(p, service.Options{Embedded: true, RolloutWorkers: rollouts})
		},
		Submit: func(ctx context.Context, c client.Client, r bench.Run) error { return submit(ctx, c, asked(r)) },
	})
}

// comparePlan makes the step of a plan beside its estimate.
func comparePlan(cmd *cobra.Command, r estimate.Request, s estimate.Summary, asJSON bool) error {
	return bench.ComparePlan(cmd, r, s, asJSON)
}
