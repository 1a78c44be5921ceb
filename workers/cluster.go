package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"temper/internal/cli"
	"temper/internal/placement"
	"temper/internal/proc/buildinfo"
	"temper/jobs"
	"temper/jobs/backend"
	"temper/jobs/nomad"
	"temper/jobs/spec"
)

// allocKey is the variable in which Nomad tells a process which allocation it is.
const allocKey = "NOMAD_ALLOC_ID"

// firstLook bounds the look at the cluster with which a control worker starts.
const firstLook = 10 * time.Second

// PlaceOn gives a control worker the cluster of the file, on which it starts separate
// workers for runs. PlaceOn asks the cluster once, so that a wrong address or token is an
// error at the start. In an allocation it does not need the answer: the scheduler that
// started it was there, and runs without separate workers need no scheduler.
func PlaceOn(ctx context.Context, file string, log *slog.Logger) (ClusterOptions, error) {
	var none ClusterOptions
	c, err := spec.Load(file)
	if err != nil {
		return none, cli.Usage(fmt.Errorf("--cluster: %w", err))
	}
	client, err := nomad.Connect(nomad.Config{Region: c.Nomad.Region, Namespace: c.Nomad.Namespace})
	if err != nil {
		return none, cli.Usage(fmt.Errorf("--cluster: %w", err))
	}
	sandbox, err := SandboxClientOptions()
	if err != nil {
		return none, cli.Usage(err)
	}
	build := jobs.Build{Cluster: c, Version: buildinfo.Build()}
	o := ClusterOptions{Backend: backend.New(client, build), Settings: placement.Settings{Rules: scalingRules(build)}, Sandbox: sandbox}
	looking, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	nodes, err := o.Backend.Nodes(looking)
	silent := errors.Is(err, placement.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case err == nil:
		log.Info("runs may have workers of their own", "cluster", c.Name, "nomad", client.Address(), "nodes", len(nodes))
	case silent && os.Getenv(allocKey) != "":
		log.Warn("the scheduler does not answer: runs with placement wait until it does", "err", err)
	case errors.Is(err, placement.ErrDenied):
		return none, cli.Usage(fmt.Errorf("--cluster: %w", err))
	default:
		return none, fmt.Errorf("--cluster: %w", err)
	}
	return o, nil
}

// scalingRules returns the rules of the roles in placement.scale.
func scalingRules(b jobs.Build) (out []placement.Rule) {
	for _, r := range b.Named() {
		if slices.Contains(b.Placement.Scale, r.Name) {
			out = append(out, placement.Rule{Job: b.ID(r.Name), Group: r.Name, Kind: placement.Kind(r.Job.Load), Least: r.Count, Most: r.Max, DownEvery: b.Placement.ScaleDownAfter})
		}
	}
	return out
}

// WhileStanding makes a role that works for one run end when another allocation has its
// place. Without an allocation, or without NOMAD_ADDR, the role does not check.
func WhileStanding(role Role, queue string, log *slog.Logger) (Role, error) {
	allocation := os.Getenv(allocKey)
	if queue == "" || allocation == "" || os.Getenv("NOMAD_ADDR") == "" {
		return role, nil
	}
	client, err := nomad.Connect(nomad.Config{})
	if err != nil {
		return role, cli.Usage(err)
	}
	return Standing{Records: backend.New(client, jobs.Build{}), Instance: allocation, Log: log}.While(role), nil
}
