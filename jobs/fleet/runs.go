package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"temper/internal/role"
	"temper/jobs"
	"temper/jobs/nomad"
)

// Runs gives access to the runs of a cluster with dedicated workers.
type Runs struct{ fleet *Fleet }

// NewRuns returns the runs of a cluster.
func NewRuns(f *Fleet) Runs { return Runs{f} }

// Placed reports whether runs of this cluster may have dedicated workers.
func (r Runs) Placed() bool { return r.fleet.build.Placement.On() }

// TemporalAddress returns the address of the cluster's Temporal server: from the file, or
// from Nomad for the cluster's own job.
func (r Runs) TemporalAddress(ctx context.Context) (string, error) {
	if r.fleet.build.Cluster.Temporal != "" {
		return r.fleet.build.Cluster.Temporal, nil
	}
	return r.fleet.addressOf(ctx, role.Temporal)
}

// Node returns the id of a node, found by its name or the beginning of its id.
func (r Runs) Node(ctx context.Context, name string) (id string, err error) {
	n, err := r.fleet.node(ctx, name)
	if err != nil {
		return "", err
	}
	return n.ID, nil
}

// On returns the runs with dedicated workers on a node.
func (r Runs) On(ctx context.Context, node string) ([]string, error) {
	q := nomad.Query(ctx)
	q.Params = map[string]string{"meta": "true"}
	stubs, _, err := r.fleet.nomad.Jobs().List(q)
	if err != nil {
		return nil, r.fleet.nomad.Fail("list jobs", err)
	}
	runs := map[string]string{}
	for _, s := range stubs {
		if s.Meta[jobs.MetaCluster] == r.fleet.build.Name {
			runs[s.ID] = s.Meta[jobs.MetaRun]
		}
	}
	there, err := r.fleet.nomad.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range there.Allocs {
		if run := runs[a.JobID]; a.NodeID == node && run != "" && lives(a) && !slices.Contains(out, run) {
			out = append(out, run)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Await waits until no run has dedicated workers on a node, and reports the runs for which
// it waits. It returns the remaining runs when the time is over.
func (r Runs) Await(ctx context.Context, node string, patience time.Duration, say func(string)) ([]string, error) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	var said []string
	for {
		runs, err := r.On(ctx, node)
		if err != nil || len(runs) == 0 {
			return nil, err
		}
		if !slices.Equal(runs, said) {
			said = runs
			say(fmt.Sprintf("waiting up to %s for %v to come to a safe point, save and leave", patience, runs))
		}
		select {
		case <-ctx.Done():
			return runs, ctx.Err()
		case <-deadline.C:
			return runs, nil
		case <-time.After(time.Second):
		}
	}
}
