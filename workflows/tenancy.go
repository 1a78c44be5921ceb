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
	// Now interrupts what is in flight; Lost says that nobody is left who could save.
	Now  bool `json:"now,omitempty"`
	Lost bool `json:"lost,omitempty"`
	// Parked says that the run gives up its room since it is paused, and asks for it again
	// when it is resumed.
	Parked bool `json:"parked,omitempty"`
}

// tenancy is the room of a run on a cluster. Without a spec it has none, and its work
// goes to the workers that all runs share.
type tenancy struct {
	spec     *placement.Spec
	run      string
	holder   string
	priority int

	// epoch is that of the newest grant, given that of the newest one that was given back.
	epoch int
	given int
	holds bool
	// waits says what the run waits for while it has no room.
	waits string
	// changed is called when the cluster gives room or wants it back.
	changed func(workflow.Context, placement.Decision)
}

// queues are where the run's work goes.
func (t *tenancy) queues() placement.Queues {
	if t.spec == nil {
		return placement.Queues{}
	}
	return placement.QueuesOf(t.run)
}

// ask asks the cluster for room, or tells it that the run has it.
func (t *tenancy) ask(ctx workflow.Context) error {
	var placing *activities.Placement
	return bookkeep(ctx, "ask for room on the cluster", placing.AcquirePlacement, placement.Request{
		Run: t.run, Holder: t.holder, Need: *t.spec, Priority: t.priority, Epoch: t.epoch, Holds: t.holds,
	}, nil)
}

// giveBack returns the room; keep says that the run will ask again and keeps its place.
func (t *tenancy) giveBack(ctx workflow.Context, keep bool) error {
	var placing *activities.Placement
	t.holds, t.given = false, t.epoch
	t.waits = "its room was given back"
	return bookkeep(ctx, "give back the room on the cluster", placing.ReleasePlacement,
		activities.ReleasePlacementInput{Run: t.run, Epoch: t.epoch, Keep: keep}, nil)
}

// take acts on what the cluster has decided.
func (t *tenancy) take(ctx workflow.Context, content letter) error {
	var d placement.Decision
	if err := content.decode(&d); err != nil {
		return err
	}
	if t.spec == nil {
		return nil // the cluster asks all runs who they are
	}
	switch d.Do {
	case placement.Grant:
		if d.Epoch <= t.given {
			return nil // it crossed the release of that room
		}
		t.epoch, t.holds, t.waits = d.Epoch, true, ""
	case placement.Tell:
		if !t.holds {
			t.waits = d.Why
		}
	case placement.Yield:
		if d.Epoch <= t.given {
			return nil
		}
		if t.epoch = d.Epoch; !t.holds { // it was never told that it has room
			t.answer(ctx, true)
			return nil
		}
	case placement.Ask:
		t.answer(ctx, false)
		return nil
	case placement.Start, placement.Stop, placement.Shrink, placement.CloseNode, placement.EmptyNode, placement.OpenNode:
		return fmt.Errorf("%s is not for a run", d.Do)
	default:
		return fmt.Errorf("the run does not know %q", brief(string(d.Do)))
	}
	t.changed(ctx, d)
	return nil
}

// answer tells the cluster how things are, beside whatever the run does.
func (t *tenancy) answer(ctx workflow.Context, giveBack bool) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		var err error
		if giveBack {
			err = t.giveBack(ctx, true)
		}
		if err == nil {
			err = t.ask(ctx)
		}
		if err != nil {
			workflow.GetLogger(ctx).Warn("the cluster is not told", "run_id", t.run, "err", err)
		}
	})
}

// shown is the room of the run in one line; "" for a run without any.
func (t *tenancy) shown() string {
	switch {
	case t.spec == nil:
		return ""
	case t.holds:
		return fmt.Sprintf("has its room, admission %d", t.epoch)
	case t.waits == "":
		return "waits for room"
	default:
		return "waits for room: " + t.waits
	}
}

// lodging is what a run does about its room.
type lodging struct{ *runFlow }

// enter asks for room and waits until there is, or the run is to stop.
func (r lodging) enter(ctx workflow.Context) error {
	if r.room.spec == nil {
		return nil
	}
	if err := r.showState(ctx, StateQueued); err != nil {
		return err
	}
	r.asked = true
	if err := r.room.ask(ctx); err != nil {
		return err
	}
	if err := workflow.Await(ctx, func() bool { return r.room.holds || r.gate.Stopping }); err != nil {
		return err
	}
	return r.gate.pass(ctx)
}

// changed acts on a decision of the cluster.
func (r lodging) changed(ctx workflow.Context, d placement.Decision) {
	switch d.Do { //nolint:exhaustive // the others do not come here
	case placement.Grant:
		r.gate.Yield = nil
	case placement.Yield:
		r.gate.Yield = &Yield{Reason: d.Why, Since: workflow.Now(ctx), Now: d.Now, Lost: d.Lost}
	}
	if d.Do == placement.Tell {
		r.show(ctx)
		return
	}
	r.gate.changed(ctx) // interrupts where that is asked for, and tells the stage
}

// vacate gives back the room of a run that stands at a safe point and has saved, and
// asks for it again: at once, or when a pause is over.
func (r lodging) vacate(ctx workflow.Context) error {
	y := r.gate.Yield
	if y == nil || !r.room.holds {
		return nil
	}
	if err := r.room.giveBack(ctx, !y.Parked); err != nil {
		return err
	}
	if err := logEvent(ctx, r.ref, eventYield, "the room on the cluster was given back: "+y.Reason); err != nil {
		return err
	}
	r.show(ctx)
	if y.Parked {
		if err := workflow.Await(ctx, func() bool { return !r.gate.Paused || r.gate.Stopping }); err != nil || r.gate.Stopping {
			return err
		}
	}
	return r.room.ask(ctx)
}

// eventYield is the kind of the event of a run that has given back its room.
const eventYield = "yield"

// vacateBeside is vacate while the stage stands at its safe point.
func (r lodging) vacateBeside(ctx workflow.Context) {
	workflow.Go(ctx, func(ctx workflow.Context) {
		if err := r.vacate(ctx); err != nil && ctx.Err() == nil {
			workflow.GetLogger(ctx).Warn("room not given back", "run_id", r.ref.RunID, "err", err)
		}
	})
}

// parkWhenPaused gives back the room of a run that stays paused for long.
func (r lodging) parkWhenPaused(ctx workflow.Context) {
	if r.room.spec == nil || r.room.spec.ReleaseAfterMinutes < 0 || !r.room.holds || r.parking {
		return
	}
	after := defaultRelease
	if n := r.room.spec.ReleaseAfterMinutes; n > 0 {
		after = time.Duration(n) * time.Minute
	}
	r.parking = true
	workflow.Go(ctx, func(ctx workflow.Context) {
		defer func() { r.parking = false }()
		over := func() bool { return !r.gate.Paused || r.gate.Stopping || !r.room.holds || r.closing }
		ok, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{Timeout: after, TimerOptions: workflow.TimerOptions{Summary: "until the paused run gives back its room"}}, over)
		if err != nil || ok || over() || r.gate.Yield != nil {
			return
		}
		r.gate.Yield = &Yield{Reason: fmt.Sprintf("paused for %s", after), Since: workflow.Now(ctx), Parked: true}
		r.gate.changed(ctx)
	})
}

// leave gives back the room of a run that ends, in whatever way. A cluster that cannot be
// told finds out by itself.
func (r lodging) leave(ctx workflow.Context) {
	if r.room.spec == nil || !r.asked {
		return
	}
	ctx, cancel := farewell(ctx, "give back the room on the cluster")
	defer cancel()
	var placing *activities.Placement
	r.room.holds, r.room.given = false, r.room.epoch
	err := workflow.ExecuteLocalActivity(ctx, placing.ReleasePlacement,
		activities.ReleasePlacementInput{Run: r.room.run, Epoch: r.room.epoch}).Get(ctx, nil)
	if err != nil {
		workflow.GetLogger(ctx).Warn("room not given back", "run_id", r.room.run, "err", err)
	}
}
