package backend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/placement"
	"temper/jobs/nomad"
)

// Nomad changes no count while an earlier change, a deployment, is under way. The deployment of a
// count ends when its new instances are well.
const (
	deploymentTime  = 30 * time.Second
	deploymentPause = 200 * time.Millisecond
	// verdictTime is how long Nomad may take to report an instance as healthy before Scale does it.
	verdictTime = 5 * time.Second
)

// Scale implements placement.Backend.
func (b *Backend) Scale(ctx context.Context, s placement.Scaling) error {
	request, err := b.scaling(ctx, s)
	if err != nil {
		return err
	}
	for begin, judged := time.Now(), false; ; {
		_, _, err = b.nomad.Jobs().ScaleWithRequest(s.Job, request, nomad.Write(ctx))
		if err = b.fail("scale job "+s.Job, err); !errors.Is(err, nomad.ErrBusy) || time.Since(begin) > deploymentTime {
			return err
		}
		if !judged && time.Since(begin) > verdictTime {
			judged = true
			if err := b.confirmHealthy(ctx, s.Job); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(deploymentPause):
		}
	}
}

// scaling checks a change against the job that is there.
func (b *Backend) scaling(ctx context.Context, s placement.Scaling) (*api.ScalingRequest, error) {
	job, err := b.info(ctx, s.Job)
	if err != nil {
		return nil, err
	}
	if job == nil || nomad.Deref(job.Stop) {
		return nil, fmt.Errorf("scale %s: %w", s.Job, placement.ErrNotExist)
	}
	g := groupOf(job, s.Group)
	if g == nil {
		return nil, fmt.Errorf("scale group %s of %s: %w", s.Group, s.Job, placement.ErrNotExist)
	}
	least, most := bounds(g)
	if s.To < least || s.To > most {
		return nil, fmt.Errorf("scale %s to %d: %w (%d to %d)", s.Job, s.To, placement.ErrOutOfBounds, least, most)
	}
	if have := nomad.Deref(g.Count); s.From >= 0 && have != s.From {
		return nil, &placement.ConflictError{Job: s.Job, Have: nomad.Deref(job.JobModifyIndex), Epoch: epochOf(job.Meta), Text: fmt.Sprintf("its count is %d and not %d", have, s.From)}
	}
	meta := map[string]any{}
	for name, figure := range s.Figures {
		meta[name] = figure
	}
	to := int64(s.To)
	return &api.ScalingRequest{Count: &to, Target: map[string]string{"Job": s.Job, "Group": nomad.Deref(g.Name)}, Message: s.Reason, Meta: meta}, nil
}

// confirmHealthy reports instances as healthy that existed before the running change and
// continue through it. A client that checks a migrated instance while the count changes
// never reports it (Nomad 1.6.3), and the change would then run until its progress deadline
// of minutes. Nomad itself checks new instances.
func (b *Backend) confirmHealthy(ctx context.Context, job string) error {
	d, _, err := b.nomad.Jobs().LatestDeployment(job, nomad.Query(ctx))
	if err != nil {
		return b.fail("read the change of job "+job, err)
	}
	if d == nil || d.Status != api.DeploymentStatusRunning {
		return nil
	}
	allocs, _, err := b.nomad.Deployments().Allocations(d.ID, nomad.Query(ctx))
	if err != nil {
		return b.fail("list the instances of the change of job "+job, err)
	}
	var well []string
	for _, a := range allocs {
		judged := a.DeploymentStatus != nil && a.DeploymentStatus.Healthy != nil
		if !judged && a.CreateIndex < d.CreateIndex && a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			well = append(well, a.ID)
		}
	}
	if len(well) == 0 {
		return nil
	}
	_, _, err = b.nomad.Deployments().SetAllocHealth(d.ID, well, nil, nomad.Write(ctx))
	return b.fail("end the change of job "+job, err)
}

// groupOf returns a group by its name; the name is optional for a job with one group.
func groupOf(job *api.Job, name string) *api.TaskGroup {
	for _, g := range job.TaskGroups {
		if nomad.Deref(g.Name) == name || len(job.TaskGroups) == 1 {
			return g
		}
	}
	return nil
}

func bounds(g *api.TaskGroup) (least, most int) {
	if g.Scaling == nil {
		return nomad.Deref(g.Count), nomad.Deref(g.Count)
	}
	return int(nomad.Deref(g.Scaling.Min)), int(nomad.Deref(g.Scaling.Max))
}
