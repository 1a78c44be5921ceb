package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/role"
	"temper/jobs/nomad"
)

// stopJob deregisters a job and waits until all its processes have ended.
func stopJob(ctx context.Context, client *nomad.Client, job string, purge bool) error {
	if _, _, err := client.Jobs().Deregister(job, purge, nomad.Write(ctx)); err != nil {
		return client.Fail("stop job "+job, err)
	}
	var index uint64
	for {
		q := nomad.Query(ctx)
		q.WaitIndex, q.WaitTime = index, time.Second
		allocs, meta, err := client.Jobs().Allocations(job, true, q)
		if err != nil {
			return client.Fail("watch job "+job, err)
		}
		if !slices.ContainsFunc(allocs, lives) {
			return nil
		}
		index = meta.LastIndex
	}
}

func lives(a *api.AllocationListStub) bool {
	return a.ClientStatus == api.AllocClientStatusRunning || a.ClientStatus == api.AllocClientStatusPending
}

// Down stops every job of the cluster in the reverse order of its start: control first,
// since it would give free room to a waiting run, then runs, and servers last. Data on the
// nodes stays.
func (f *Fleet) Down(ctx context.Context, purge bool, say func(string)) error {
	there, err := f.ours(ctx)
	if err != nil {
		return err
	}
	if s := there[f.build.ID(role.Control)]; s != nil && !s.Stop {
		say("stop " + s.ID)
		if err := stopJob(ctx, f.nomad, s.ID, false); err != nil {
			return err
		}
		if there, err = f.ours(ctx); err != nil { // with the jobs that control has started meanwhile
			return err
		}
	}
	order := map[string]int{}
	for i, r := range f.build.Named() {
		order[f.build.ID(r.Name)] = i + 1
	}
	var ids []string
	for id, s := range there {
		if !s.Stop || purge {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { // jobs of runs have no order and come first
		if n := rank(order[b]) - rank(order[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	var done []string
	for i, id := range ids {
		say("stop " + id)
		if err := stopJob(ctx, f.nomad, id, purge); err != nil {
			return fmt.Errorf("%w (stopped: %s; not yet: %s; run down again)", err, orNone(done), strings.Join(ids[i:], ", "))
		}
		done = append(done, id)
	}
	if len(ids) == 0 {
		say("nothing runs")
	}
	return nil
}

func rank(order int) int {
	if order == 0 {
		return 1 << 20
	}
	return order
}

// Scale sets the number of instances of a role. Nomad keeps the reason with the job.
func (f *Fleet) Scale(ctx context.Context, role string, count int, reason string) error {
	id := f.build.ID(role)
	there, err := f.ours(ctx)
	if err != nil {
		return err
	}
	if s := there[id]; s == nil || s.Stop {
		return fmt.Errorf("scale %s: %w: there is no job %s that runs: apply the cluster first", role, nomad.ErrNotExist, id)
	}
	job, _, err := f.nomad.Jobs().Info(id, nomad.Query(ctx))
	if err != nil {
		return f.nomad.Fail("read job "+id, err)
	}
	for _, g := range job.TaskGroups {
		if nomad.Deref(g.Name) != role {
			continue
		}
		if g.Scaling == nil {
			return fmt.Errorf("scale %s: its count is fixed at %d: set roles.%s.max above it in the file, and apply", role, nomad.Deref(g.Count), role)
		}
		if low, high := nomad.Deref(g.Scaling.Min), nomad.Deref(g.Scaling.Max); int64(count) < low || int64(count) > high {
			return fmt.Errorf("scale %s: %d is outside of %d to %d: change roles.%s.count or max in the file, and apply", role, count, low, high, role)
		}
	}
	_, _, err = f.nomad.Jobs().Scale(id, role, &count, reason, false, map[string]any{"by": "temper cluster scale"}, nomad.Write(ctx))
	return f.nomad.Fail("scale job "+id, err)
}

// node finds a node by its name, or by the beginning of its id.
func (f *Fleet) node(ctx context.Context, name string) (*api.NodeListStub, error) {
	nodes, _, err := f.nomad.Nodes().List(nomad.Query(ctx))
	if err != nil {
		return nil, f.nomad.Fail("list nodes", err)
	}
	var found []*api.NodeListStub
	var known []string
	for _, n := range nodes {
		known = append(known, n.Name)
		if n.Name == name || len(name) >= 4 && strings.HasPrefix(n.ID, name) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		slices.Sort(known)
		return nil, fmt.Errorf("node %s: %w (there are: %s)", name, nomad.ErrNotExist, strings.Join(known, ", "))
	default:
		return nil, fmt.Errorf("node %s: %d nodes are called so: name one by the beginning of its id", name, len(found))
	}
}

// Drain moves all allocations off a node and waits until they are gone. After deadline it
// kills the remaining ones.
func (f *Fleet) Drain(ctx context.Context, name string, deadline time.Duration, say func(string)) error {
	n, err := f.node(ctx, name)
	if err != nil {
		return err
	}
	answer, err := f.nomad.Nodes().UpdateDrainOpts(n.ID, &api.DrainOptions{DrainSpec: &api.DrainSpec{Deadline: deadline}}, nomad.Write(ctx))
	if err != nil {
		return f.nomad.Fail("drain node "+n.Name, err)
	}
	say("node " + n.Name + " takes nothing new")
	if err := reportStuck(ctx, f.nomad, n, say); err != nil {
		return err
	}
	var failed error
	for m := range f.nomad.Nodes().MonitorDrain(ctx, n.ID, answer.NodeModifyIndex, false) {
		switch m.Level {
		case api.MonitorMsgLevelError:
			failed = fmt.Errorf("drain node %s: %s", n.Name, m.Message)
		case api.MonitorMsgLevelInfo, api.MonitorMsgLevelNormal, api.MonitorMsgLevelWarn:
			say(strings.ReplaceAll(m.Message, n.ID, n.Name))
		}
	}
	return errors.Join(failed, ctx.Err())
}

// reportStuck names allocations that got a stop before the drain and still run: the drain
// waits for them.
func reportStuck(ctx context.Context, client *nomad.Client, n *api.NodeListStub, say func(string)) error {
	allocs, _, err := client.Nodes().Allocations(n.ID, nomad.Query(ctx))
	if err != nil {
		return client.Fail("list what is on node "+n.Name, err)
	}
	for _, a := range allocs {
		if a.DesiredStatus == api.AllocDesiredStatusStop && a.ClientStatus == api.AllocClientStatusRunning {
			say(fmt.Sprintf("%s (%.8s) was told to stop before and is still there; if it does not end, restart the Nomad agent of %s", a.Name, a.ID, n.Name))
		}
	}
	return nil
}

// Undrain lets a node take work again.
func (f *Fleet) Undrain(ctx context.Context, name string) error {
	n, err := f.node(ctx, name)
	if err != nil {
		return err
	}
	_, err = f.nomad.Nodes().UpdateDrainOpts(n.ID, &api.DrainOptions{MarkEligible: true}, nomad.Write(ctx))
	return f.nomad.Fail("undrain node "+n.Name, err)
}
