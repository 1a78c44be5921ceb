package backend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/internal/placement"
	"temper/jobs"
	"temper/jobs/nomad"
)

// Nodes implements placement.Backend.
func (b *Backend) Nodes(ctx context.Context) ([]placement.Node, error) {
	held, err := b.inventory(ctx)
	if err != nil {
		return nil, err
	}
	instances, err := b.instances(ctx, held.Allocs)
	if err != nil {
		return nil, err
	}
	var out []placement.Node
	for _, n := range jobs.NewCapacity(held.Nodes, held.Allocs).Nodes() {
		out = append(out, placement.Node{
			ID: n.ID, Name: n.Name, Pool: n.NodePool, State: nodeState(b.build, n),
			Has:       placement.Resources{Cores: int(n.Cores[1]), MemoryMiB: int(n.Memory[1]), Devices: n.AllDevices},
			Free:      placement.Resources{Cores: int(n.Cores[1] - n.Cores[0]), MemoryMiB: int(n.Memory[1] - n.Memory[0]), Devices: n.FreeDevices},
			Instances: instances[n.ID],
		})
	}
	slices.SortFunc(out, func(x, y placement.Node) int { return strings.Compare(x.ID, y.ID) })
	return out, nil
}

func nodeState(build jobs.Build, n jobs.NodeUsage) placement.NodeState {
	switch {
	case n.Status != api.NodeStatusReady:
		return placement.NodeDown
	case n.Drain:
		return placement.NodeDraining
	case n.SchedulingEligibility != api.NodeSchedulingEligible, !jobs.Within(build, n.Datacenter): // no job of a run gets there
		return placement.NodeClosed
	default:
		return placement.NodeReady
	}
}

// instances returns the instances of runs that hold resources, by node.
func (b *Backend) instances(ctx context.Context, allocs []*api.AllocationListStub) (map[string][]placement.Instance, error) {
	q := nomad.Query(ctx)
	q.Params = map[string]string{"meta": "true"}
	stubs, _, err := b.nomad.Jobs().List(q)
	if err != nil {
		return nil, b.fail("list jobs", err)
	}
	epochs := map[string]int{}
	for _, s := range stubs {
		if epoch := epochOf(s.Meta); epoch > 0 {
			epochs[s.ID] = epoch
		}
	}
	out := map[string][]placement.Instance{}
	for _, a := range allocs {
		if epoch, ours := epochs[a.JobID]; ours {
			if m := instance(a, epoch); m.State != placement.InstanceEnded {
				out[a.NodeID] = append(out[a.NodeID], m)
			}
		}
	}
	return out, nil
}

// instance translates an allocation.
func instance(a *api.AllocationListStub, epoch int) placement.Instance {
	m := placement.Instance{
		ID: a.ID, Job: a.JobID, Epoch: epoch, Index: indexOf(a.Name), Node: a.NodeID, State: instanceState(a.ClientStatus),
		Wanted: a.DesiredStatus == api.AllocDesiredStatusRun && a.NextAllocation == "",
	}
	if a.AllocatedResources != nil {
		for _, t := range a.AllocatedResources.Tasks {
			m.Each.MemoryMiB += int(t.Memory.MemoryMB)
			for _, d := range t.Devices {
				if m.Each.Devices == nil {
					m.Each.Devices = map[string]int{}
				}
				m.Each.Devices[d.Vendor+"/"+d.Type+"/"+d.Name] += len(d.DeviceIDs)
			}
		}
	}
	return m
}

func instanceState(status string) placement.InstanceState {
	switch status {
	case api.AllocClientStatusPending:
		return placement.InstancePending
	case api.AllocClientStatusRunning:
		return placement.InstanceRunning
	case api.AllocClientStatusLost, api.AllocClientStatusUnknown:
		return placement.InstanceLost
	default:
		return placement.InstanceEnded
	}
}

// Job implements placement.Backend.
func (b *Backend) Job(ctx context.Context, id string) (placement.JobState, error) {
	job, err := b.info(ctx, id)
	if err != nil {
		return placement.JobState{}, err
	}
	if job == nil {
		return placement.JobState{}, fmt.Errorf("job %s: %w", id, placement.ErrNotExist)
	}
	s := placement.JobState{ID: id, Epoch: epochOf(job.Meta), Index: nomad.Deref(job.JobModifyIndex), Stopped: nomad.Deref(job.Stop)}
	for _, g := range job.TaskGroups {
		s.Count += nomad.Deref(g.Count)
		least, most := bounds(g)
		s.Least, s.Most = s.Least+least, s.Most+most
	}
	q := nomad.Query(ctx)
	q.Params = map[string]string{"resources": "true"}
	allocs, _, err := b.nomad.Jobs().Allocations(id, true, q)
	if err != nil {
		return s, b.fail("list the instances of "+id, err)
	}
	epochs, err := b.epochs(ctx, job, allocs)
	if err != nil {
		return s, err
	}
	for _, a := range allocs {
		m := instance(a, epochs[a.JobVersion])
		if s.Stopped {
			m.Wanted = false
		}
		s.Instances = append(s.Instances, m)
	}
	slices.SortFunc(s.Instances, func(x, y placement.Instance) int { return strings.Compare(x.ID, y.ID) })
	return s, nil
}

// epochs returns the epoch of each version of a job that its allocations have.
func (b *Backend) epochs(ctx context.Context, job *api.Job, allocs []*api.AllocationListStub) (map[uint64]int, error) {
	out := map[uint64]int{nomad.Deref(job.Version): epochOf(job.Meta)}
	if !slices.ContainsFunc(allocs, func(a *api.AllocationListStub) bool { return a.JobVersion != nomad.Deref(job.Version) }) {
		return out, nil
	}
	versions, _, _, err := b.nomad.Jobs().Versions(*job.ID, false, nomad.Query(ctx))
	if err != nil {
		return nil, b.fail("read the versions of "+*job.ID, err)
	}
	for _, v := range versions {
		out[nomad.Deref(v.Version)] = epochOf(v.Meta)
	}
	return out, nil
}

// Instance implements placement.Records.
func (b *Backend) Instance(ctx context.Context, id string) (placement.Instance, error) {
	a, _, err := b.nomad.Allocations().Info(id, nomad.Query(ctx))
	if err != nil {
		return placement.Instance{}, b.fail("read allocation "+id, err)
	}
	epoch := 0
	if a.Job != nil {
		epoch = epochOf(a.Job.Meta)
	}
	return instance(a.Stub(), epoch), nil
}
