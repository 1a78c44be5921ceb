package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"temper/activities"
	"temper/internal/buildinfo"
	"temper/internal/cli"
	"temper/internal/config"
	"temper/internal/learner"
	"temper/internal/procmem"
	"temper/internal/sampling"
	"temper/internal/temporalclient"
	"temper/sandbox/httpapi"
	"temper/trainer/device"
	"temper/workers"
	"temper/workflows"
)

func workerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "Serve workflows and bookkeeping (control worker)", Args: cobra.NoArgs}
	p := cli.ProcessFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return serveControl(cmd.Context(), p) }
	return cmd
}

// rssInterval is short enough to see an evaluation's peak.
const rssInterval = time.Second

func serveControl(ctx context.Context, p *config.Process) error {
	log := cli.NewLogger("worker")
	c, store, done, err := connectWorker(ctx, p, "worker", log)
	if err != nil {
		return err
	}
	defer done()
	known, err := temporalclient.EnsureAttributes(ctx, c, p.Namespace, workflows.SearchAttributes())
	if err != nil {
		return err
	}
	log.Info("control worker starts", "build", buildinfo.Line(), "temporal", p.TemporalAddress, "search_attributes", known)
	peak := procmem.Peak{File: peakFile(p)}
	watch, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { peak.Watch(watch, supervisorPID(), rssInterval) })
	watcher.Go(func() { sweepStore(watch, store, log) })
	defer watcher.Wait()
	defer stop()
	control := &activities.Control{Store: store, SearchAttributes: known, PeakRSS: peak.Bytes}
	return serveAll(ctx, p, "worker", func(ctx context.Context, o workers.Options) error {
		return workers.RunControl(ctx, c, control, o)
	})
}

// serveAll runs the workers of a role, announces it when all of them poll, and
// vouches for the process from then on.
func serveAll(ctx context.Context, p *config.Process, role string, serve ...func(context.Context, workers.Options) error) error {
	var started atomic.Int32
	options := workers.Options{OnStart: func() error {
		if int(started.Add(1)) < len(serve) {
			return nil
		}
		return announceReady(p, role)
	}}
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range serve {
		g.Go(func() error { return s(ctx, options) })
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
			touchReady(p, role)
		}
	}
}

func trainerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "trainer", Short: "Serve training and rollouts on this machine's device", Args: cobra.NoArgs}
	p := cli.ProcessFlags(cmd)
	backend := cmd.Flags().String("backend", "go", "GoMLX backend")
	mesh := cmd.Flags().String("mesh", "", "devices of an XLA backend for training, like data=4,model=2; empty = one device")
	concurrent := cmd.Flags().Int("concurrent-rollouts", 128, "trajectories under way at a time")
	var keep resident
	cmd.Flags().IntVar(&keep.runs, "resident-runs", 3, "runs whose state stays in memory while another one is trained; 0 = none")
	cmd.Flags().Int64Var(&keep.mib, "resident-mib", 1024, "MiB that their states and that of the run in training may take, at 16 bytes a parameter")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		m, err := device.ParseMesh(*mesh)
		if err == nil {
			err = device.CheckMesh(*backend, m)
		}
		if err != nil {
			return cli.Usage(fmt.Errorf("--mesh: %w", err))
		}
		if keep.runs < 0 || keep.mib < 0 {
			return cli.Usagef("--resident-runs %d and --resident-mib %d: want at least 0", keep.runs, keep.mib)
		}
		return serveTrainer(cmd.Context(), p, placement{*backend, m}, *concurrent, keep)
	}
	cmd.AddCommand(trainerPlanCommand())
	return cmd
}

// resident is how much of the runs that take turns stays in memory.
type resident struct {
	runs int
	mib  int64
}

func serveTrainer(ctx context.Context, p *config.Process, on placement, concurrent int, keep resident) error {
	log := cli.NewLogger("trainer")
	c, store, done, err := connectWorker(ctx, p, "trainer", log)
	if err != nil {
		return err
	}
	defer done()
	options, err := sandboxOptions()
	if err != nil {
		return err
	}
	executor, err := httpapi.NewClient(p.SandboxAddress, options)
	if err != nil {
		return err
	}
	defer executor.Close()
	log.Info("trainer starts", "build", buildinfo.Line(), "backend", on.backend, "mesh", on.mesh.String(), "temporal", p.TemporalAddress, "sandbox", p.SandboxAddress)
	learners := learnerFactory{store: store, on: on}
	samples := sampling.New(sampling.Config{
		Store: store, Executor: executor, NewEngine: engineFactory{store: store, backend: on.backend, slots: concurrent, log: log}.make,
		MaxConcurrent: concurrent, Now: time.Now,
	})
	defer samples.Close()
	learning := learner.NewService(learner.Config{
		Store: store, New: learners.make, Now: time.Now, Log: log, MaxResident: keep.runs, MaxResidentBytes: keep.mib << 20,
	})
	defer learning.Close(savePatience)
	return serveAll(ctx, p, "trainer",
		func(ctx context.Context, o workers.Options) error {
			return workers.RunTrainer(ctx, c, &activities.Trainer{Learner: learning}, o)
		},
		func(ctx context.Context, o workers.Options) error {
			return workers.RunRollout(ctx, c, &activities.Rollouts{Sampling: samples}, rolloutSlots, o)
		})
}

// savePatience is what a save under way gets after the worker has drained; the
// supervisor kills 15 s after it asked, of which draining may take 10.
const savePatience = 3 * time.Second

// rolloutSlots: activities of different runs share the device; more would only
// hold more caches.
const rolloutSlots = 2
