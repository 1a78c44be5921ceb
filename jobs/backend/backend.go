// Package backend places the jobs of runs on Nomad: it implements placement.Backend. It owns
// the mapping of the port's terms to jobs, allocations and nodes. It does not decide which run gets room.
//
// Invariant: a job of a run is written only over the version that was read, and its epoch
// is part of it, so that a repeated call finds the job that it made.
package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/placement"
	"temper/jobs"
	"temper/jobs/nomad"
)

// Backend is one Nomad cluster.
type Backend struct {
	nomad *nomad.Client
	build jobs.Build
}

var _ placement.Backend = (*Backend)(nil)

// New returns a backend whose jobs follow the cluster's file for trainers and rollouts.
func New(client *nomad.Client, build jobs.Build) *Backend {
	return &Backend{nomad: client, build: build}
}

// fail maps the error of a call to an error of the port.
func (b *Backend) fail(doing string, err error) error { return mapError(b.nomad.Fail(doing, err)) }

// mapError maps an error of package nomad to an error of the port.
func mapError(err error) error {
	for from, to := range map[error]error{
		nomad.ErrUnreachable: placement.ErrUnavailable, nomad.ErrBusy: placement.ErrUnavailable, nomad.ErrDenied: placement.ErrDenied, nomad.ErrNotExist: placement.ErrNotExist,
	} {
		if errors.Is(err, from) {
			return fmt.Errorf("%w: %w", to, err)
		}
	}
	return err
}

// info reads a job; nil when it does not exist.
func (b *Backend) info(ctx context.Context, id string) (*api.Job, error) {
	job, _, err := b.nomad.Jobs().Info(id, nomad.Query(ctx))
	if err == nil {
		return job, nil
	}
	if err = b.fail("read job "+id, err); errors.Is(err, placement.ErrNotExist) {
		return nil, nil //nolint:nilnil // none
	}
	return nil, err
}

// epochOf returns the admission of a job; 0 for a job that belongs to no run.
func epochOf(meta map[string]string) int {
	epoch, err := strconv.Atoi(meta[jobs.MetaEpoch])
	if err != nil {
		return 0
	}
	return epoch
}

// Start implements placement.Backend.
func (b *Backend) Start(ctx context.Context, job placement.Job, index uint64) (uint64, error) {
	for try := range startTries {
		there, err := b.info(ctx, job.ID)
		if err != nil {
			return 0, err
		}
		if there == nil && try > 0 {
			return 0, &placement.ConflictError{Job: job.ID, Text: "it was removed meanwhile"}
		}
		if there != nil {
			if done, found, err := compareJob(there, job, index); done || err != nil {
				return found, err
			}
			index = nomad.Deref(there.JobModifyIndex)
		}
		found, err := b.register(ctx, job, index)
		if !errors.Is(err, nomad.ErrChanged) {
			return found, err
		}
	}
	return 0, &placement.ConflictError{Job: job.ID, Have: index, Text: "it changes all the time"}
}

// startTries bounds how often Start tries again when a job has changed meanwhile, perhaps
// by an earlier call of Start.
const startTries = 3

// register writes the job of a run over the version with that index.
func (b *Backend) register(ctx context.Context, job placement.Job, index uint64) (uint64, error) {
	wanted := b.build.Run(job)
	if err := b.refuse(ctx, wanted, job); err != nil {
		return 0, err
	}
	if err := b.writeSecrets(ctx, wanted); err != nil {
		return 0, err
	}
	answer, _, err := b.nomad.Jobs().RegisterOpts(wanted, &api.RegisterOptions{EnforceIndex: true, ModifyIndex: index}, nomad.Write(ctx))
	if err != nil {
		return 0, b.fail("register job "+job.ID, err)
	}
	return answer.JobModifyIndex, b.writeSecrets(ctx, wanted) // its secrets may have been replaced meanwhile
}

// compareJob compares job with an existing job. done reports that they are the same.
func compareJob(there *api.Job, job placement.Job, index uint64) (done bool, found uint64, err error) {
	found = nomad.Deref(there.JobModifyIndex)
	if nomad.Deref(there.Stop) {
		return false, found, nil
	}
	epoch := epochOf(there.Meta)
	if epoch == job.Epoch {
		return true, found, nil
	}
	text := fmt.Sprintf("it is of epoch %d, and epoch %d with index %d was to be started", epoch, job.Epoch, index)
	if epoch == 0 {
		text = "it belongs to no run"
	}
	return false, found, &placement.ConflictError{Job: job.ID, Have: found, Epoch: epoch, Text: text}
}

// refuse returns an error for a job that would not be placed as a whole. The count of this
// package gives the reason; the scheduler's plan also knows constraints that it does not
// count.
func (b *Backend) refuse(ctx context.Context, wanted *api.Job, job placement.Job) error {
	left, err := b.capacity(ctx)
	if err != nil {
		return err
	}
	if missing, why := left.Place(wanted, wanted.TaskGroups[0]); missing > 0 {
		return &placement.NoCapacityError{Job: job.ID, Why: append([]string{fmt.Sprintf("%d of %d instances find no node", missing, job.Instances)}, why...)}
	}
	plan, _, err := b.nomad.Jobs().Plan(wanted, false, nomad.Write(ctx))
	if err != nil {
		return b.fail("plan job "+job.ID, err)
	}
	if failed := plan.FailedTGAllocs[nomad.Deref(wanted.TaskGroups[0].Name)]; failed != nil {
		return &placement.NoCapacityError{Job: job.ID, Why: reasons(failed)}
	}
	return nil
}

// reasons returns the scheduler's reasons.
func reasons(m *api.AllocationMetric) []string {
	out := []string{fmt.Sprintf("the scheduler leaves out %d instances", m.CoalescedFailures+1)}
	for reason, n := range m.ConstraintFiltered {
		out = append(out, fmt.Sprintf("%d nodes: %s", n, reason))
	}
	for reason, n := range m.DimensionExhausted {
		out = append(out, fmt.Sprintf("%d nodes: no %s is left", n, reason))
	}
	slices.Sort(out[1:])
	return out
}

// capacity returns the free resources of the nodes.
func (b *Backend) capacity(ctx context.Context) (*jobs.Capacity, error) {
	held, err := b.inventory(ctx)
	return jobs.NewCapacity(held.Nodes, held.Allocs), err
}

func (b *Backend) inventory(ctx context.Context) (nomad.Inventory, error) {
	held, err := b.nomad.Inventory(ctx)
	return held, mapError(err)
}

// writeSecrets gives the job of a run its secrets, in a variable that only this job may
// read.
func (b *Backend) writeSecrets(ctx context.Context, wanted *api.Job) error {
	own := jobs.RunVariable(*wanted.ID)
	names := jobs.Secrets(wanted)[own]
	if len(names) == 0 {
		return nil
	}
	from := b.build.RunsVariable()
	held, _, err := b.nomad.Variables().GetVariableItems(from, nomad.Query(ctx))
	if err != nil && !errors.Is(err, api.ErrVariablePathNotFound) {
		return b.fail("read the variable "+from, err)
	}
	items := map[string]string{}
	for _, name := range names {
		if held[name] == "" { // the instances would wait for it for ever
			return fmt.Errorf("start %s: %w: item %s of the variable %s: make it with temper cluster init", *wanted.ID, placement.ErrNotExist, name, from)
		}
		items[name] = held[name]
	}
	_, _, err = b.nomad.Variables().Update(&api.Variable{Path: own, Items: items}, nomad.Write(ctx))
	return b.fail("write the variable "+own, err)
}

// Stop implements placement.Backend.
func (b *Backend) Stop(ctx context.Context, id string, epoch int) error {
	there, err := b.info(ctx, id)
	if err != nil || there == nil || nomad.Deref(there.Stop) {
		return err
	}
	if has := epochOf(there.Meta); has == 0 || has > epoch {
		return nil
	}
	_, _, err = b.nomad.Jobs().Deregister(id, false, nomad.Write(ctx))
	if err = b.fail("stop job "+id, err); errors.Is(err, placement.ErrNotExist) {
		return nil
	}
	return err
}

// SetEligible implements placement.Backend.
func (b *Backend) SetEligible(ctx context.Context, node string, eligible bool, why string) error {
	info, _, err := b.nomad.Nodes().Info(node, nomad.Query(ctx))
	if err != nil {
		return b.fail("read node "+node, err)
	}
	if eligible && info.DrainStrategy != nil {
		_, err = b.nomad.Nodes().UpdateDrainOpts(node, &api.DrainOptions{MarkEligible: true, Meta: map[string]string{"reason": why}}, nomad.Write(ctx))
	} else {
		_, err = b.nomad.Nodes().ToggleEligibility(node, eligible, nomad.Write(ctx))
	}
	return b.fail("open or close node "+info.Name, err)
}

// Drain implements placement.Backend.
func (b *Backend) Drain(ctx context.Context, node string, deadline time.Duration) error {
	if _, _, err := b.nomad.Nodes().Info(node, nomad.Query(ctx)); err != nil {
		return b.fail("read node "+node, err)
	}
	_, err := b.nomad.Nodes().UpdateDrainOpts(node, &api.DrainOptions{DrainSpec: &api.DrainSpec{Deadline: deadline}}, nomad.Write(ctx))
	return b.fail("drain node "+node, err)
}

// Watch implements placement.Backend. Nodes and allocations have indices of one sequence.
func (b *Backend) Watch(ctx context.Context, index uint64) (uint64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		index uint64
		err   error
	}
	answers := make(chan answer, 2)
	ask := func(doing string, list func(*api.QueryOptions) (*api.QueryMeta, error)) {
		q := nomad.Query(ctx)
		q.WaitIndex, q.WaitTime, q.Namespace = index, watchTime, "*"
		meta, err := list(q)
		if err != nil {
			answers <- answer{0, b.fail(doing, err)}
			return
		}
		answers <- answer{meta.LastIndex, nil}
	}
	for {
		go ask("watch nodes", func(q *api.QueryOptions) (*api.QueryMeta, error) { _, m, err := b.nomad.Nodes().List(q); return m, err })
		go ask("watch allocations", func(q *api.QueryOptions) (*api.QueryMeta, error) {
			_, m, err := b.nomad.Allocations().List(q)
			return m, err
		})
		first := <-answers
		if index > 0 && (first.err != nil || first.index > index) {
			cancel() // the other query is no longer needed
			<-answers
			return first.index, first.err
		}
		second := <-answers
		if first.err == nil {
			first.err = second.err
		}
		if latest := max(first.index, second.index); first.err != nil || index == 0 || latest > index {
			return latest, first.err
		}
	}
}

// watchTime bounds one query of a Watch.
const watchTime = 30 * time.Second

// indexOf returns the index of an allocation in its group, from its name "job.group[3]".
func indexOf(name string) int {
	_, rest, _ := strings.Cut(name, "[")
	n, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
	if err != nil {
		return 0
	}
	return n
}
