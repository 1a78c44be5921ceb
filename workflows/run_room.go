package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/workflow"

	"temper/activities"
	"temper/internal/placement"
)

// signalPlacement brings what the cluster has decided of a run: a placement.Decision.
const signalPlacement = "placement"

// defaultRelease is how long a paused run keeps its room unless it says otherwise.
const defaultRelease = 30 * time.Minute

// Yield holds a gate until the run has room on the cluster again. It is not lifted by a
// command.
type Yield struct {
	// Reason says who wants the room, and Waits what the run waits for meanwhile.
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	// Now interrupts what is in flight; Lost says that the trainer is gone, so that nothing can be saved.
	Now  bool `json:"now,omitempty"`
	Lost bool `json:"lost,omitempty"`
	// Parked means that the run gives up its room since it is paused, and asks for it again
	// when it is resumed.
	Parked bool `json:"parked,omitempty"`
}

// clusterRoom is the room of a run on a cluster. Without a spec it has none, and its work
// goes to the workers that all runs share.
type clusterRoom struct {
	spec     *placement.Spec
	run      string
	holder   string
	priority int
	gate     *gate
	state    *runState

	// epoch is the number of the newest grant, given the number of the newest one given back.
	epoch int
	given int
	holds bool
	// waits tells what the run waits for while it has no room.
	waits string
	// asked is true once the run has asked for room, parking while a timer decides whether
	// the paused run gives it back.
	asked, parking bool
}

// queues are where the run's work goes.
func (c *clusterRoom) queues() placement.Queues {
	if c.spec == nil {
		return placement.Queues{}
	}
	return placement.QueuesOf(c.run)
}

// ask asks the cluster for room, or tells it that the run has it.
func (c *clusterRoom) ask(ctx workflow.Context) error {
	var placing *activities.Placement
	return doControl(ctx, "ask for room on the cluster", placing.AcquirePlacement, placement.Request{
		Run: c.run, Holder: c.holder, Need: *c.spec, Priority: c.priority, Epoch: c.epoch, Holds: c.holds,
	}, nil)
}

// giveBack returns the room; keep says that the run will ask again and keeps its place.
func (c *clusterRoom) giveBack(ctx workflow.Context, keep bool) error {
	var placing *activities.Placement
	c.holds, c.given = false, c.epoch
	c.waits = "its room was given back"
	return doControl(ctx, "give back the room on the cluster", placing.ReleasePlacement,
		activities.ReleasePlacementInput{Run: c.run, Epoch: c.epoch, Keep: keep}, nil)
}

// takeDecision acts on what the cluster has decided.
func (c *clusterRoom) takeDecision(ctx workflow.Context, content signalContent) error {
	var d placement.Decision
	if err := content.decode(&d); err != nil {
		return err
	}
	if c.spec == nil {
		return nil // the cluster asks all runs who they are
	}
	switch d.Do {
	case placement.Grant:
		if d.Epoch <= c.given {
			return nil // it crossed the release of that room
		}
		c.epoch, c.holds, c.waits = d.Epoch, true, ""
	case placement.Tell:
		if !c.holds {
			c.waits = d.Why
		}
	case placement.Yield:
		if d.Epoch <= c.given {
			return nil
		}
		if c.epoch = d.Epoch; !c.holds { // it was never told that it has room
			c.answer(ctx, true)
			return nil
		}
	case placement.Ask:
		c.answer(ctx, false)
		return nil
	case placement.Start, placement.Stop, placement.Shrink, placement.CloseNode, placement.EmptyNode, placement.OpenNode:
		return fmt.Errorf("%s is not for a run", d.Do)
	default:
		return fmt.Errorf("the run does not know %q", shorten(string(d.Do)))
	}
	c.apply(ctx, d)
	return nil
}

// answer tells the cluster how things are, beside whatever the run does.
func (c *clusterRoom) answer(ctx workflow.Context, giveBack bool) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		var err error
		if giveBack {
			err = c.giveBack(ctx, true)
		}
		if err == nil {
			err = c.ask(ctx)
		}
		if err != nil {
			workflow.GetLogger(ctx).Warn("the cluster is not told", "run_id", c.run, "err", err)
		}
	})
}

// text is the room of the run in one line; "" for a run without any.
func (c *clusterRoom) text() string {
	switch {
	case c.spec == nil:
		return ""
	case c.holds:
		return fmt.Sprintf("has its room, admission %d", c.epoch)
	case c.waits == "":
		return "waits for room"
	default:
		return "waits for room: " + c.waits
	}
}

// enter asks for room and waits until there is, or the run is to stop.
func (c *clusterRoom) enter(ctx workflow.Context) error {
	if c.spec == nil {
		return nil
	}
	if err := c.state.set(ctx, StateQueued); err != nil {
		return err
	}
	c.asked = true
	if err := c.ask(ctx); err != nil {
		return err
	}
	if err := workflow.Await(ctx, func() bool { return c.holds || c.gate.Stopping }); err != nil {
		return err
	}
	return c.gate.pass(ctx)
}

// apply holds the run, or lets it continue, as the cluster has decided.
func (c *clusterRoom) apply(ctx workflow.Context, d placement.Decision) {
	switch d.Do { //nolint:exhaustive // the others do not come here
	case placement.Grant:
		c.gate.Yield = nil
	case placement.Yield:
		c.gate.Yield = &Yield{Reason: d.Why, Since: workflow.Now(ctx), Now: d.Now, Lost: d.Lost}
	}
	if d.Do == placement.Tell {
		c.state.show(ctx)
		return
	}
	c.gate.changed(ctx) // interrupts where that is asked for, and tells the stage
}

// vacate gives back the room of a run that stands at a safe point and has saved, and
// asks for it again: at once, or when a pause is over.
func (c *clusterRoom) vacate(ctx workflow.Context) error {
	y := c.gate.Yield
	if y == nil || !c.holds {
		return nil
	}
	if err := c.giveBack(ctx, !y.Parked); err != nil {
		return err
	}
	if err := logEvent(ctx, c.state.at.ref, eventYield, "the room on the cluster was given back: "+y.Reason); err != nil {
		return err
	}
	c.state.show(ctx)
	if y.Parked {
		if err := workflow.Await(ctx, func() bool { return !c.gate.Paused || c.gate.Stopping }); err != nil || c.gate.Stopping {
			return err
		}
	}
	return c.ask(ctx)
}

// eventYield is the kind of the event of a run that has given back its room.
const eventYield = "yield"

// vacateBeside is vacate while the stage stands at its safe point.
func (c *clusterRoom) vacateBeside(ctx workflow.Context) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		if err := c.vacate(ctx); err != nil && ctx.Err() == nil {
			workflow.GetLogger(ctx).Warn("room not given back", "run_id", c.state.at.ref.RunID, "err", err)
		}
	})
}

// parkWhenPaused gives back the room of a run that stays paused for long.
func (c *clusterRoom) parkWhenPaused(ctx workflow.Context) {
	if c.spec == nil || c.spec.ReleaseAfterMinutes < 0 || !c.holds || c.parking {
		return
	}
	after := defaultRelease
	if n := c.spec.ReleaseAfterMinutes; n > 0 {
		after = time.Duration(n) * time.Minute
	}
	c.parking = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { c.parking = false }()
		over := func() bool { return !c.gate.Paused || c.gate.Stopping || !c.holds || c.state.closing }
		ok, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{Timeout: after, TimerOptions: workflow.TimerOptions{Summary: "until the paused run gives back its room"}}, over)
		if err != nil || ok || over() || c.gate.Yield != nil {
			return
		}
		c.gate.Yield = &Yield{Reason: fmt.Sprintf("paused for %s", after), Since: workflow.Now(ctx), Parked: true}
		c.gate.changed(ctx)
	})
}

// leave gives back the room of a run that ends, in whatever way. A cluster that cannot be
// told finds out by itself.
func (c *clusterRoom) leave(ctx workflow.Context) {
	if c.spec == nil || !c.asked {
		return
	}
	ctx, cancel := finalWrite(ctx, "give back the room on the cluster")
	defer cancel()
	var placing *activities.Placement
	c.holds, c.given = false, c.epoch
	err := workflow.ExecuteLocalActivity(ctx, placing.ReleasePlacement,
		activities.ReleasePlacementInput{Run: c.run, Epoch: c.epoch}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Warn("room not given back", "run_id", c.run, "err", err)
	}
}
