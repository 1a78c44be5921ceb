// Package bench is `temper bench`: it reads flags, calls the instruments below this
// folder and prints what they measured. The product imports it in one place and
// carries no instrument of its own.
//
// Invariant: an instrument starts what users run, the binary that it is part of,
// or puts load on a service as any client would.
package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/supervise"
)

// Service is what the instruments need of the command line that they belong to.
type Service struct {
	// OpenStore opens the store of a place.
	OpenStore func(ctx context.Context, p *config.Process) (blob.Store, error)
	// StoreServer is the S3 server of the place's store, with its account made.
	StoreServer func(p *config.Process) (supervise.Child, error)
	// Claim makes this process the only one that serves a home. It waits for one that
	// dies, and says so.
	Claim func(ctx context.Context, p *config.Process, say func(string)) (release func(), err error)
	// Children are the processes of which the service consists, with so many that
	// sample.
	Children func(p *config.Process, rollouts int) ([]supervise.Child, error)
	// CheckRun says what is wrong with a run before anything is started, and returns
	// the hash of its configuration.
	CheckRun func(r Run) (hash string, err error)
	// Submit starts a run.
	Submit func(ctx context.Context, c client.Client, r Run) error
	// RunFailure says in one line why a run failed.
	RunFailure func(err error, runID string) error
}

// Run is a run to submit.
type Run struct {
	ID     string
	Config string   // file
	Set    []string // key=value over the configuration
}

// Command is the command with all instruments.
func Command(s Service) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bench", Short: "Measure parts of the service on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		sandboxCommand(), boardCommand(), storeCommand(s), checkpointCommand(), publishCommand(), contestCommand(), scaleCommand(), soakCommand(), overloadCommand(),
		modelCommand(), layersCommand(), densityCommand(), trainerCommand(), chaosCommand(s), recoveryCommand(), schedulerCommand(s), rolloutsCommand(), engineCommand(), deviceCommand(), dashboardCommand(s),
	)
	return cmd
}

// probeTime bounds how long a store is asked whether it can be used.
const probeTime = 30 * time.Second

// probe finds out that a store cannot be used before it is measured.
func probe(ctx context.Context, s blob.Store) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	return blob.Probe(ctx, s)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// uniquePrefix begins the IDs of a load: a service answers a repeated ID with the
// first answer and must not do so here.
func uniquePrefix(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }
