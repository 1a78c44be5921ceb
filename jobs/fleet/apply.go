package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// ApplyOptions say how far an apply may go.
type ApplyOptions struct {
	// Take overwrites jobs that somebody else has changed.
	Take bool
	// Patience is how long one job may take until all its instances are well.
	Patience time.Duration
	// Say is told of each step.
	Say func(string)
}

// ErrForeign says that a job was changed by somebody else.
var ErrForeign = errors.New("changed by somebody else")

// Apply makes the cluster what the plan says, one job after another: each is well before
// the next one starts. Where it stops it says what was done, and another Apply goes on from there.
func (f *Fleet) Apply(ctx context.Context, plan Plan, o ApplyOptions) error {
	if err := refuse(plan, o.Take); err != nil {
		return err
	}
	var done []string
	for i, c := range plan.Changes {
		if err := (applier{f}).applyOne(ctx, c, o); err != nil {
			return fmt.Errorf("%w%s", err, progress(done, plan.Changes[i+1:]))
		}
		if c.Kind != Same {
			done = append(done, c.Job)
		}
	}
	return nil
}

// refuse finds what must not be applied, before anything is.
func refuse(plan Plan, take bool) error {
	var wrong []error
	for _, c := range plan.Changes {
		if c.Kind == Foreign && !take {
			wrong = append(wrong, fmt.Errorf("job %s: %w since it was applied (%s): look with temper cluster plan; apply --take writes ours over it",
				c.Job, ErrForeign, names(c.Fields)))
		}
		if len(c.NoRoom) > 0 {
			wrong = append(wrong, fmt.Errorf("job %s: no room for %s", c.Job, strings.Join(c.NoRoom, "; ")))
		}
	}
	return errors.Join(wrong...)
}

func names(fields []Field) string {
	var out []string
	for _, f := range fields {
		out = append(out, f.Path)
	}
	return strings.Join(out, ", ")
}

// progress tells what an apply did before it stopped.
func progress(done []string, rest []Change) string {
	var left []string
	for _, c := range rest {
		if c.Kind != Same {
			left = append(left, c.Job)
		}
	}
	return fmt.Sprintf(" (applied: %s; not yet: %s; apply again to go on)", orNone(done), orNone(left))
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// applier makes one job after another what a plan says.
type applier struct{ *Fleet }

func (f applier) applyOne(ctx context.Context, c Change, o ApplyOptions) error {
	if c.Kind == Remove {
		o.Say("remove " + c.Job)
		return f.stop(ctx, c.Job, false)
	}
	if c.Kind != Same {
		verb := "start "
		if c.Kind != Add {
			verb = "change "
		}
		o.Say(verb + c.Job)
		if _, _, err := f.nomad.Jobs().RegisterOpts(c.job, &api.RegisterOptions{EnforceIndex: true, ModifyIndex: c.index}, write(ctx)); err != nil {
			return f.nomad.Fail("register job "+c.Job, err)
		}
	}
	began := time.Now()
	if err := f.await(ctx, c, o.Patience); err != nil {
		return err
	}
	if c.Kind != Same {
		o.Say(fmt.Sprintf("%s is well after %.1f s", c.Job, time.Since(began).Seconds()))
	}
	return nil
}

// await waits until every instance of a job's newest version is well.
func (f applier) await(ctx context.Context, c Change, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var index uint64
	state := "its state is unknown"
	for {
		job, _, err := f.nomad.Jobs().Info(c.Job, query(ctx))
		if err != nil {
			return f.unwell(ctx, c, state, err)
		}
		q := query(ctx)
		q.WaitIndex, q.WaitTime = index, time.Second
		allocs, meta, err := f.nomad.Jobs().Allocations(c.Job, false, q)
		if err != nil {
			return f.unwell(ctx, c, state, err)
		}
		index = meta.LastIndex
		missing := 0
		missing, state = wellness(job, allocs)
		if missing == 0 {
			return nil
		}
	}
}

func (f applier) unwell(ctx context.Context, c Change, state string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("job %s is not well: %s: look with temper cluster logs %s", c.Job, state, strings.TrimPrefix(c.Job, f.build.Name+"-"))
	}
	return f.nomad.Fail("watch job "+c.Job, err)
}

// wellness counts the instances of a job's version that are missing or not well yet, and
// says of one why.
func wellness(job *api.Job, allocs []*api.AllocationListStub) (missing int, state string) {
	state = "no node has taken it yet"
	for _, g := range job.TaskGroups {
		well := 0
		for _, a := range allocs {
			if a.TaskGroup != value(g.Name) || a.DesiredStatus != api.AllocDesiredStatusRun || a.JobVersion != value(job.Version) {
				continue
			}
			if isWell(a, g) {
				well++
				continue
			}
			state = condition(a)
		}
		missing += max(0, value(g.Count)-well)
	}
	return missing, state
}

func isWell(a *api.AllocationListStub, g *api.TaskGroup) bool {
	if a.ClientStatus != api.AllocClientStatusRunning {
		return a.ClientStatus == api.AllocClientStatusComplete && a.JobType == api.JobTypeBatch
	}
	watched := g.Update != nil && a.JobType == api.JobTypeService
	return !watched || a.DeploymentStatus != nil && value(a.DeploymentStatus.Healthy)
}

// condition is what an allocation does, with the last thing that happened to its task.
func condition(a *api.AllocationListStub) string {
	text := fmt.Sprintf("%s on %s is %s", a.Name, a.NodeName, a.ClientStatus)
	for _, t := range a.TaskStates {
		for i, e := range t.Events[max(0, len(t.Events)-2):] { // the last but one often has the cause
			text += []string{", lately: ", ", "}[i] + strings.Join(strings.Fields(e.DisplayMessage), " ")
		}
	}
	return text
}
