package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/nomad"
)

// ApplyOptions control an apply.
type ApplyOptions struct {
	// Take allows Apply to overwrite jobs that others have changed.
	Take bool
	// Patience is how long one job may take until all its instances are healthy.
	Patience time.Duration
	// Say is called with a line for each step.
	Say func(string)
}

// Errors of an apply.
var (
	// ErrForeign means that others have changed a job.
	ErrForeign = errors.New("changed by others")
	// ErrGivenUp means that Nomad has ended the change of a job before its instances were healthy.
	ErrGivenUp = errors.New("given up")
)

// Apply changes the cluster to the plan, one job after another, and waits until each is
// healthy before the next one. The error lists the finished jobs; another Apply continues
// from there.
func (f *Fleet) Apply(ctx context.Context, plan Plan, o ApplyOptions) error {
	if err := refuse(plan, o.Take); err != nil {
		return err
	}
	p := application{nomad: f.nomad, cluster: f.build.Name, options: o}
	var done []string
	for i, c := range plan.Changes {
		if err := p.apply(ctx, c); err != nil {
			return fmt.Errorf("%w%s", err, progress(done, plan.Changes[i+1:]))
		}
		if c.Kind != Same {
			done = append(done, c.Job)
		}
	}
	return nil
}

// refuse returns an error for a plan that must not be applied, before any job is changed.
func refuse(plan Plan, take bool) error {
	var wrong []error
	for _, c := range plan.Changes {
		if c.Kind == Foreign && !take {
			wrong = append(wrong, fmt.Errorf("job %s: %w since it was applied (%s): look with temper cluster plan; apply --take writes ours over it",
				c.Job, ErrForeign, strings.Join(c.Theirs, ", ")))
		}
		if len(c.NoRoom) > 0 {
			wrong = append(wrong, fmt.Errorf("job %s: no room for %s", c.Job, strings.Join(c.NoRoom, "; ")))
		}
	}
	return errors.Join(wrong...)
}

// progress describes the part of an apply that was done before it stopped.
func progress(done []string, rest []Change) string {
	var left []string
	for _, c := range rest {
		if c.Kind != Same {
			left = append(left, c.Job)
		}
	}
	return fmt.Sprintf(" (applied: %s; not yet: %s; apply again to continue)", orNone(done), orNone(left))
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// application writes the jobs of a plan, one after another.
type application struct {
	nomad   *nomad.Client
	cluster string // name of the cluster
	options ApplyOptions
}

// apply writes one job and waits until it is healthy.
func (p application) apply(ctx context.Context, c Change) error {
	o := p.options
	if c.Kind == Remove {
		o.Say("remove " + c.Job)
		return stopJob(ctx, p.nomad, c.Job, false)
	}
	if c.Kind != Same {
		verb := "start "
		if c.Kind != Add {
			verb = "change "
		}
		o.Say(verb + c.Job)
		if _, _, err := p.nomad.Jobs().RegisterOpts(c.job, &api.RegisterOptions{EnforceIndex: true, ModifyIndex: c.index}, nomad.Write(ctx)); err != nil {
			return p.nomad.Fail("register job "+c.Job, err)
		}
	}
	began := time.Now()
	if err := p.await(ctx, c, o.Patience); err != nil {
		return err
	}
	if c.Kind != Same {
		o.Say(fmt.Sprintf("%s is well after %.1f s", c.Job, time.Since(began).Seconds()))
	}
	return nil
}

// await waits until every instance of a job's newest version is healthy and Nomad has
// recorded it: before that, Nomad neither reverts to that version nor scales the job.
func (p application) await(ctx context.Context, c Change, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var index uint64
	state, wait := "its state is unknown", time.Second
	for {
		job, _, err := p.nomad.Jobs().Info(c.Job, nomad.Query(ctx))
		if err != nil {
			return p.unwell(ctx, c, state, err)
		}
		deployments, _, err := p.nomad.Jobs().Deployments(c.Job, false, nomad.Query(ctx))
		if err != nil {
			return p.unwell(ctx, c, state, err)
		}
		if err := p.halted(c, job, deployments); err != nil {
			return err
		}
		q := nomad.Query(ctx)
		q.WaitIndex, q.WaitTime = index, wait
		allocs, meta, err := p.nomad.Jobs().Allocations(c.Job, false, q)
		if err != nil {
			return p.unwell(ctx, c, state, err)
		}
		index = meta.LastIndex
		missing := 0
		changing := slices.ContainsFunc(deployments, isRunning)
		missing, state = countUnhealthy(job, allocs, func(a *api.AllocationListStub, g *api.TaskGroup) bool {
			return isWell(a, g) || !changing && p.recovered(ctx, a, g)
		})
		if missing == 0 {
			if !changing {
				return nil
			}
			state, wait = "Nomad has not ended its change yet", verdictPause
		}
	}
}

// verdictPause is how long Nomad gets to end the change of a job whose instances are
// healthy.
const verdictPause = 100 * time.Millisecond

func isRunning(d *api.Deployment) bool { return d.Status == api.DeploymentStatusRunning }

func (p application) unwell(ctx context.Context, c Change, state string, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("job %s is not well: %s: look with temper cluster logs %s", c.Job, state, p.role(c.Job))
	}
	return p.nomad.Fail("watch job "+c.Job, err)
}

// halted returns an error when waiting does not help: Nomad has given up the change, which
// it never resumes, or an operator has halted it.
func (p application) halted(c Change, job *api.Job, deployments []*api.Deployment) error {
	ours := job.Meta[jobs.MetaSpec] == c.job.Meta[jobs.MetaSpec]
	slices.SortFunc(deployments, func(a, b *api.Deployment) int { return cmp.Compare(b.CreateIndex, a.CreateIndex) })
	for _, d := range deployments {
		current := d.JobVersion == nomad.Deref(job.Version)
		switch {
		case d.Status == api.DeploymentStatusFailed && (current || !ours):
			return fmt.Errorf("job %s: Nomad has %w its change: %s: look with temper cluster logs %s", c.Job, ErrGivenUp, d.StatusDescription, p.role(c.Job))
		case current && d.Status == api.DeploymentStatusPaused:
			return fmt.Errorf("job %s: %w: its change is paused: nomad deployment resume %s", c.Job, nomad.ErrBusy, d.ID[:8])
		case current && d.Status == api.DeploymentStatusRunning && awaitsPromotion(job, d):
			return fmt.Errorf("job %s: %w: its change waits for a promotion: nomad deployment promote %s", c.Job, nomad.ErrBusy, d.ID[:8])
		}
	}
	if !ours {
		return fmt.Errorf("job %s: %w while it was applied: look with temper cluster plan", c.Job, ErrForeign)
	}
	return nil
}

// awaitsPromotion reports whether the canaries of an operator's job are healthy and wait
// for their promotion.
func awaitsPromotion(job *api.Job, d *api.Deployment) bool {
	return slices.ContainsFunc(job.TaskGroups, func(g *api.TaskGroup) bool {
		s := d.TaskGroups[nomad.Deref(g.Name)]
		return s != nil && s.DesiredCanaries > 0 && s.HealthyAllocs >= s.DesiredCanaries && !s.Promoted && (g.Update == nil || !nomad.Deref(g.Update.AutoPromote))
	})
}

// role returns the role of a job, as the argument of temper cluster logs.
func (p application) role(job string) string { return strings.TrimPrefix(job, p.cluster+"-") }

// countUnhealthy counts the instances of a job's version that are missing or not yet healthy, and
// returns the reason for one of them.
func countUnhealthy(job *api.Job, allocs []*api.AllocationListStub, judge func(*api.AllocationListStub, *api.TaskGroup) bool) (missing int, state string) {
	state = "no node has taken it yet"
	for _, g := range job.TaskGroups {
		well := 0
		for _, a := range allocs {
			if a.TaskGroup != nomad.Deref(g.Name) || a.DesiredStatus != api.AllocDesiredStatusRun || a.JobVersion != nomad.Deref(job.Version) {
				continue
			}
			if judge(a, g) {
				well++
				continue
			}
			state = condition(a)
		}
		missing += max(0, nomad.Deref(g.Count)-well)
	}
	return missing, state
}

func isWell(a *api.AllocationListStub, g *api.TaskGroup) bool {
	if a.ClientStatus != api.AllocClientStatusRunning {
		return a.ClientStatus == api.AllocClientStatusComplete && a.JobType == api.JobTypeBatch
	}
	watched := g.Update != nil && a.JobType == api.JobTypeService
	return !watched || a.DeploymentStatus != nil && nomad.Deref(a.DeploymentStatus.Healthy)
}

// recovered reports whether an instance that was not healthy by its deadline is healthy
// now. Nomad judges each instance once and keeps that verdict, so recovered reads its
// checks. Without checks, its tasks have to run for as long as Nomad requires of a healthy
// one.
func (p application) recovered(ctx context.Context, a *api.AllocationListStub, g *api.TaskGroup) bool {
	if a.ClientStatus != api.AllocClientStatusRunning || a.DeploymentStatus == nil || a.DeploymentStatus.Healthy == nil || g.Update == nil {
		return false
	}
	for _, t := range a.TaskStates {
		ended := t.State == "dead" && !t.Failed // a task that only prepares the others
		if !ended && (t.State != "running" || time.Since(t.StartedAt) < nomad.Deref(g.Update.MinHealthyTime)) {
			return false
		}
	}
	checks, err := p.nomad.Allocations().Checks(a.ID, nomad.Query(ctx))
	if err != nil { // its node does not answer, so its health is unknown
		return false
	}
	for _, c := range checks {
		if c.Status != "success" {
			return false
		}
	}
	return true
}

// condition describes an allocation, with the last events of its tasks.
func condition(a *api.AllocationListStub) string {
	text := fmt.Sprintf("%s on %s is %s", a.Name, a.NodeName, a.ClientStatus)
	for _, t := range a.TaskStates {
		for i, e := range t.Events[max(0, len(t.Events)-2):] { // the event before the last often has the cause
			text += []string{", lately: ", ", "}[i] + strings.Join(strings.Fields(e.DisplayMessage), " ")
		}
	}
	return text
}
