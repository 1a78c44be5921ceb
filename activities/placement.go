package activities

import (
	"context"

	"temper/internal/fault"
	"temper/internal/placement"
)

// Messages to the workflow of the cluster, by which it knows what Announce brings.
const (
	// MessageAsk brings a placement.Request, MessageRelease a ReleasePlacementInput.
	MessageAsk     = "ask_room"
	MessageRelease = "release_room"
	// MessageNews means that something has changed on the cluster.
	MessageNews = "cluster_news"
)

// ReleasePlacementInput gives back the room of a run.
type ReleasePlacementInput struct {
	Run   string `json:"run"`
	Epoch int    `json:"epoch"`
	// Keep means that the run will ask again and keeps its place in the queue.
	Keep bool `json:"keep,omitempty"`
}

// errNoCluster is the answer of a control worker that knows no cluster.
func errNoCluster() error {
	return toTemporal(fault.Newf(fault.InvalidConfig, "placement: this service has no cluster: start temper role control with --cluster FILE, or leave placement out of the run's input"))
}

// AcquirePlacement asks for the room of a run. The answer comes to the run as a signal,
// when there is room. Errors: InvalidConfig where there is no cluster.
func (p *Placement) AcquirePlacement(ctx context.Context, in placement.Request) error {
	defer keepAlive(ctx)()
	if p.Cluster == nil {
		return errNoCluster()
	}
	return toTemporal(p.Announce(ctx, MessageAsk, in))
}

// ReleasePlacement gives back the room of a run. Errors: InvalidConfig where there is no cluster.
func (p *Placement) ReleasePlacement(ctx context.Context, in ReleasePlacementInput) error {
	defer keepAlive(ctx)()
	if p.Cluster == nil {
		return errNoCluster()
	}
	return toTemporal(p.Announce(ctx, MessageRelease, in))
}

// ObserveCluster looks at the cluster.
func (p *Placement) ObserveCluster(ctx context.Context, in placement.ObserveInput) (placement.Observed, error) {
	defer keepAlive(ctx)()
	if p.Cluster == nil {
		return placement.Observed{}, errNoCluster()
	}
	out, err := p.Cluster.Observe(ctx, in)
	return out, toTemporal(err)
}

// StartGang starts all jobs of a run, or none.
func (p *Placement) StartGang(ctx context.Context, in placement.Decision) (placement.Outcome, error) {
	return onCluster(ctx, p, (*placement.Service).Start, in)
}

// StopGang tells all jobs of a run to end.
func (p *Placement) StopGang(ctx context.Context, in placement.Decision) (placement.Outcome, error) {
	return onCluster(ctx, p, (*placement.Service).Stop, in)
}

// ScaleGroup sets the size of a group.
func (p *Placement) ScaleGroup(ctx context.Context, in placement.Scaling) (placement.Outcome, error) {
	return onCluster(ctx, p, (*placement.Service).Scale, in)
}

// MoveNode closes, empties or opens a node.
func (p *Placement) MoveNode(ctx context.Context, in placement.Decision) (placement.Outcome, error) {
	return onCluster(ctx, p, (*placement.Service).Move, in)
}

func onCluster[In any](ctx context.Context, p *Placement, do func(*placement.Service, context.Context, In) (placement.Outcome, error), in In) (placement.Outcome, error) {
	defer keepAlive(ctx)()
	if p.Cluster == nil {
		return placement.Outcome{}, errNoCluster()
	}
	out, err := do(p.Cluster, ctx, in)
	return out, toTemporal(err)
}
