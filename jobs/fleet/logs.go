package fleet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"temper/internal/placement"
	"temper/jobs/nomad"
)

// LogOptions select a part of the logs.
type LogOptions struct {
	// Stdout asks for standard output in place of the log, which is standard error.
	Stdout bool
	// Follow continues until the context ends.
	Follow bool
	// Bytes is how much of the end is shown.
	Bytes int64
}

// Logs writes the end of the log of every instance of a role, of a run's own jobs, or of one job.
func (f *Fleet) Logs(ctx context.Context, name string, o LogOptions, out io.Writer) error {
	ids := []string{name}
	if f.build.Has(name) {
		ids[0] = f.build.ID(name)
	} else {
		for _, role := range placement.Roles() {
			ids = append(ids, placement.JobID(role, name))
		}
	}
	read := logReader{f.nomad, o}
	allocs, err := read.allocations(ctx, ids)
	if err != nil {
		return err
	}
	if len(allocs) == 0 {
		return fmt.Errorf("logs of %s: %w: no instance of %s is known: a run without dedicated workers is in the logs of trainer and control; temper cluster status lists the jobs",
			name, nomad.ErrNotExist, strings.Join(ids, ", "))
	}
	if o.Follow {
		return newFollower(read, ids, out).run(ctx, allocs)
	}
	all := streamsOf(allocs)
	var failed error // error of an ended instance
	shown := false
	for _, s := range all {
		if len(all) > 1 {
			fmt.Fprintf(out, "==> %s\n", s)
		}
		switch err := read.copy(ctx, s, false, out); {
		case err == nil:
			shown = true
		case !s.over():
			return err
		default: // a node that needs room removes the logs of ended instances
			fmt.Fprintf(out, "%v\n", err)
			failed = cmp.Or(failed, err)
		}
	}
	if shown {
		return nil
	}
	return failed
}

// allocations lists the allocations of jobs.
func (r logReader) allocations(ctx context.Context, ids []string) (allocs []*api.AllocationListStub, err error) {
	for _, id := range ids {
		found, _, err := r.nomad.Jobs().Allocations(id, false, nomad.Query(ctx))
		if err != nil {
			return nil, r.nomad.Fail("find the instances of "+id, err)
		}
		allocs = append(allocs, found...)
	}
	return allocs, nil
}

// streamsOf returns the logs of instances.
func streamsOf(allocs []*api.AllocationListStub) (all []stream) {
	for _, a := range relevantInstances(allocs) {
		for _, task := range slices.Sorted(maps.Keys(a.TaskStates)) {
			all = append(all, stream{a, task})
		}
	}
	return all
}

// relevantInstances returns the instances whose logs describe the state of jobs: the live ones
// and the failed ones that they replace, or the newest of each job if none is alive.
func relevantInstances(allocs []*api.AllocationListStub) []*api.AllocationListStub {
	slices.SortFunc(allocs, func(a, b *api.AllocationListStub) int { return int(b.CreateIndex) - int(a.CreateIndex) })
	live := slices.DeleteFunc(slices.Clone(allocs), func(a *api.AllocationListStub) bool { return !lives(a) })
	if len(live) == 0 { // the log of the newest of each job
		last := map[string]bool{}
		for _, a := range allocs {
			if !last[a.JobID] {
				last[a.JobID], live = true, append(live, a)
			}
		}
	}
	for _, a := range allocs { // a new instance does not show why the one that it replaces failed
		if a.ClientStatus == api.AllocClientStatusFailed && slices.ContainsFunc(live, func(b *api.AllocationListStub) bool { return b.ID == a.NextAllocation }) {
			live = append(live, a)
		}
	}
	return live
}

// stream is the log of one task of an instance.
type stream struct {
	*api.AllocationListStub
	task string
}

// String returns the name of the instance as other commands show it.
func (s stream) String() string {
	name := fmt.Sprintf("%s on %s (%.8s)", s.Name, s.NodeName, s.ID)
	if len(s.TaskStates) > 1 {
		name += " " + s.task
	}
	return name
}

// logReader reads the logs of allocations.
type logReader struct {
	nomad   *nomad.Client
	options LogOptions
}

// copy writes the end of one log, and with follow the later output until the context ends.
func (r logReader) copy(ctx context.Context, s stream, follow bool, out io.Writer) error {
	alloc, _, err := r.nomad.Allocations().Info(s.ID, nomad.Query(ctx))
	if err != nil {
		return r.nomad.Fail("read allocation "+s.ID, err)
	}
	kind := "stderr"
	if r.options.Stdout {
		kind = "stdout"
	}
	frames, errs := r.nomad.AllocFS().Logs(alloc, follow, s.task, kind, api.OriginEnd, r.options.Bytes, ctx.Done(), nomad.Query(ctx))
	if err := copyFrames(frames, errs, out); err != nil && !(follow && ctx.Err() != nil) { // a user ends following this way
		return r.nomad.Fail("read the log of "+s.Name, err)
	}
	return nil
}

func copyFrames(frames <-chan *api.StreamFrame, errs <-chan error, out io.Writer) error {
	for {
		select {
		case frame, open := <-frames:
			if !open {
				return nil
			}
			if _, err := out.Write(frame.Data); err != nil {
				return err
			}
		case err := <-errs:
			for len(frames) > 0 { // frames before the error
				if _, failed := out.Write((<-frames).Data); failed != nil {
					return failed
				}
			}
			return err
		}
	}
}
