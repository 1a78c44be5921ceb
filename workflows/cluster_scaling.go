package workflows

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/placement"
)

// scaler keeps groups at their size.
type scaler struct {
	in *ClusterInput
	// loads were measured with the last look and not used yet.
	loads []placement.Load
	// do calls an activity of the cluster.
	do func(ctx workflow.Context, summary string, activity, in, out any) error
}

// shrink takes the engines back that a run has beyond its need.
func (s *scaler) shrink(ctx workflow.Context, d placement.Decision) {
	job := d.Jobs[0]
	s.scaleTo(ctx, placement.Scaling{Job: job.ID, Group: string(job.Role), From: -1, To: job.Instances, Reason: d.Why})
	s.in.Floor.Shrunk()
}

// scale applies the rules to the loads that were measured with the last look.
func (s *scaler) scale(ctx workflow.Context) {
	loads := s.loads
	s.loads = nil // each measurement counts once
	now := workflow.Now(ctx)
	for _, load := range loads {
		rule, ok := s.ruleOf(now, load.Job)
		if !ok {
			continue
		}
		state := s.scalingState(load.Job)
		if to, ok := rule.Decide(now, state, load); ok {
			s.scaleTo(ctx, to)
		}
	}
}

// ruleOf is the rule of a group: the operator's, or that of a run's engines, which may
// grow while no run waits for room.
func (s *scaler) ruleOf(now time.Time, job string) (placement.Rule, bool) {
	for _, r := range s.in.Settings.Rules {
		if r.Job == job {
			return r, true
		}
	}
	role, run, _ := strings.Cut(job, "-")
	t, ok := s.in.Floor.Find(run)
	if !ok || role != string(placement.RoleEngine) || t.Phase != placement.Holding || t.Need.Engine == nil || t.Need.Engine.Most == 0 {
		return placement.Rule{}, false
	}
	rule := placement.Rule{Job: job, Group: role, Kind: placement.BySlots, Least: t.Need.Engine.Count, Most: t.Need.Engine.Most, Target: 1}
	if len(s.in.Floor.Queue(now)) > 0 {
		rule.Most = rule.Least
	}
	return rule, true
}

func (s *scaler) scalingState(job string) *placement.State {
	i := slices.IndexFunc(s.in.Scaling, func(state placement.State) bool { return state.Job == job })
	if i < 0 {
		i = len(s.in.Scaling)
		s.in.Scaling = append(s.in.Scaling, placement.State{Job: job})
	}
	return &s.in.Scaling[i]
}

func (s *scaler) scaleTo(ctx workflow.Context, to placement.Scaling) {
	var placing *activities.Placement
	var out placement.Outcome
	if err := s.do(ctx, shorten("scale "+to.String()), placing.ScaleGroup, to, &out); err != nil {
		out.Refused = failureText(err)
	}
	s.in.Done = append(s.in.Done, ScaledGroup{Scaling: to, At: workflow.Now(ctx), Refused: out.Refused})
	s.in.Done = s.in.Done[max(0, len(s.in.Done)-numScaled):]
}
