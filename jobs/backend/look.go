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
	nodes, allocs, err := b.holdings(ctx)
	if err != nil {
		return nil, err
	}
	members, err := b.members(ctx, allocs)
	if err != nil {
		return nil, err
	}
	var out []placement.Node
	for _, n := range jobs.NewRoom(nodes, allocs).Nodes() {
		out = append(out, placement.Node{
			ID: n.ID, Name: n.Name, Pool: n.NodePool, State: nodeState(b.build, n),
			Has:     placement.Room{Cores: int(n.Cores[1]), MemoryMiB: int(n.Memory[1]), Devices: n.AllDevices},
			Free:    placement.Room{Cores: int(n.Cores[1] - n.Cores[0]), MemoryMiB: int(n.Memory[1] - n.Memory[0]), Devices: n.FreeDevices},
			Members: members[n.ID],
		})
	}
	slices.SortFunc(out, func(x, y placement.Node) int { return strings.Compare(x.ID, y.ID) })
	return out, nil
}

func nodeState(build jobs.Build, n jobs.NodeRoom) placement.NodeState {
	switch {
	case n.Status != api.NodeStatusReady:
		return placement.NodeDown
	case n.Drain:
		return placement.NodeDraining
	case n.SchedulingEligibility != api.NodeSchedulingEligible, !jobs.Within(build, n.Datacenter): // where no job of a run gets
		return placement.NodeClosed
	default:
		return placement.NodeReady
	}
}

// members are those of runs that hold room, by their nodes.
func (b *Backend) members(ctx context.Context, allocs []*api.AllocationListStub) (map[string][]placement.Member, error) {
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
	out := map[string][]placement.Member{}
	for _, a := range allocs {
		if epoch, ours := epochs[a.JobID]; ours {
			if m := member(a, epoch); m.State != placement.MemberEnded {
				out[a.NodeID] = append(out[a.NodeID], m)
			}
		}
	}
	return out, nil
}

// member is an allocation in the words of the port.
func member(a *api.AllocationListStub, epoch int) placement.Member {
	m := placement.Member{
		ID: a.ID, Job: a.JobID, Epoch: epoch, Index: indexOf(a.Name), Node: a.NodeID, State: memberState(a.ClientStatus),
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

func memberState(status string) placement.MemberState {
	switch status {
	case api.AllocClientStatusPending:
		return placement.MemberPending
	case api.AllocClientStatusRunning:
		return placement.MemberRunning
	case api.AllocClientStatusLost, api.AllocClientStatusUnknown:
		return placement.MemberLost
	default:
		return placement.MemberEnded
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
		return s, b.fail("list the members of "+id, err)
	}
	epochs, err := b.epochs(ctx, job, allocs)
	if err != nil {
		return s, err
	}
	for _, a := range allocs {
		m := member(a, epochs[a.JobVersion])
		if s.Stopped {
			m.Wanted = false
		}
		s.Members = append(s.Members, m)
	}
	slices.SortFunc(s.Members, func(x, y placement.Member) int { return strings.Compare(x.ID, y.ID) })
	return s, nil
}

// epochs are those of the versions of a job that its allocations have.
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

// Member implements placement.Records.
func (b *Backend) Member(ctx context.Context, id string) (placement.Member, error) {
	a, _, err := b.nomad.Allocations().Info(id, nomad.Query(ctx))
	if err != nil {
		return placement.Member{}, b.fail("read allocation "+id, err)
	}
	epoch := 0
	if a.Job != nil {
		epoch = epochOf(a.Job.Meta)
	}
	return member(a.Stub(), epoch), nil
}
