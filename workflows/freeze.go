package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"
)

// Freeze is a pause by the server itself, which is what the button "Pause Workflow"
// of the web UI does. It takes the workflow tasks from one workflow, which then
// answers no query, while its parent and its child run. Package freeze tells those two,
// and their gates hold them at the next safe point.
type Freeze struct {
	// Workflow is the id of the paused workflow.
	Workflow string    `json:"workflow"`
	Reason   string    `json:"reason,omitempty"`
	By       string    `json:"by,omitempty"`
	Since    time.Time `json:"since"`
	// Below says that the paused workflow is the child of the one that holds this.
	Below bool `json:"below,omitempty"`
}

// String says what is paused, by whom and why.
func (f *Freeze) String() string {
	return fmt.Sprintf("workflow %s is paused on the server%s", f.Workflow, byWhom(f.Reason, f.By))
}

// Same reports whether two gates are held by the same pause; nil is none.
func (f *Freeze) Same(other *Freeze) bool {
	if f == nil || other == nil {
		return f == other
	}
	return f.Workflow == other.Workflow && f.Below == other.Below && f.Since.Equal(other.Since)
}

// freezeSignal is the signal to a gate: what holds it from now on.
type freezeSignal struct {
	Freeze *Freeze `json:"freeze,omitempty"`
}

// held reports whether the gate holds its workflow at safe points.
func (g *gateState) held() bool { return g.Paused || g.Frozen != nil || g.Yield != nil }

// cause is what holds a gate, for comparison.
func (g *gateState) cause() gateCause { return gateCause{g.Paused, g.Frozen, g.Yield} }

type gateCause struct {
	paused bool
	frozen *Freeze
	yield  *Yield
}

// why says who holds the gate, by which command or on the server, and why.
func (g *gateState) why() string {
	if g.Frozen != nil && !g.Paused {
		return ": " + g.Frozen.String()
	}
	if g.Yield != nil && !g.Paused {
		return ": " + g.Yield.Reason
	}
	return byWhom(g.Reason, g.By)
}

// reasons returns why, by whom and since when the gate is held: by the command, or else by
// the server's pause.
func (g *gateState) reasons() (reason, by string, since *time.Time) {
	f := g.Frozen
	if g.Yield != nil && f == nil && !g.Paused && !g.Stopping {
		return g.Yield.Reason, byCluster, &g.Yield.Since
	}
	if f == nil || g.Paused || g.Stopping {
		return g.Reason, g.By, g.Since
	}
	return fmt.Sprintf("workflow %s is paused on the server%s", f.Workflow, because(f.Reason)), f.By, &f.Since
}

// byCluster is who holds a run that has to make room.
const byCluster = "the cluster"

// unreachable refuses a command that would be handed to a stage which hears nothing.
func (g *gate) unreachable() error {
	if g.Frozen == nil || !g.Frozen.Below {
		return nil
	}
	return fmt.Errorf("%s: let it go on first, by Unpause on its page in the web UI or by temper run resume", g.Frozen)
}

// takeFreezeSignal takes one signal of the watcher. It returns whether that began or ended a
// freeze.
func (g *gate) takeFreezeSignal(content signalContent) (turned bool, err error) {
	var news freezeSignal
	if err := content.decode(&news); err != nil {
		return false, err
	}
	if f := news.Freeze; f != nil && f.Workflow == "" {
		return false, errors.New("it does not say which workflow is paused")
	}
	turned = (g.Frozen == nil) != (news.Freeze == nil)
	if !g.Frozen.Same(news.Freeze) {
		g.Frozen = news.Freeze
	}
	return turned, nil
}

// takeFreeze holds the stage while the server has paused its run, or releases it.
func (s *stage) takeFreeze(ctx workflow.Context, content signalContent) error {
	_, err := s.gate.takeFreezeSignal(content)
	if err == nil {
		s.show(ctx)
	}
	return err
}

// takeFreeze shows that the server has paused the stage, or has released it. The run waits
// for its stage in any case.
func (r *runFlow) takeFreeze(ctx workflow.Context, content signalContent) error {
	turned, err := r.gate.takeFreezeSignal(content)
	if err != nil || !turned {
		return err
	}
	r.state.show(ctx)
	r.state.tryPublish(ctx)
	if r.link.child == nil {
		return nil // the gate says it at the next safe point
	}
	frozen, why := r.gate.Frozen != nil, r.gate.why()
	workflow.Go(ctx, func(ctx workflow.Context) { // a store that is away holds up no other signal
		if err := logPause(ctx, r.at.ref, frozen, why, fmt.Sprintf("while %s", r.state.doing)); err != nil {
			workflow.GetLogger(ctx).Warn("freeze not recorded", "run_id", r.at.ref.RunID, "err", err)
		}
	})
	return nil
}
