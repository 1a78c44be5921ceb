package temporalclient

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"temper/workflows"
)

const (
	// interval lies between two looks at what the server has paused: one request
	// while there is nothing.
	interval = time.Second
	// searchEvery is how often all that runs is asked whether something holds it: for
	// what another process told it and did not live to take back.
	searchEvery = time.Minute
	// askTimeout bounds one look, searchTimeout one search.
	askTimeout, searchTimeout = 5 * time.Second, 15 * time.Second
	// maxTries bounds what is told to a gate that does not take it. Each try is an
	// event of its history.
	maxTries = 3
)

const ours = "WorkflowType IN ('" + workflows.TypeRetrain + "', '" + workflows.TypeAblate + "', '" + workflows.TypeRun + "', '" + workflows.TypeStage + "')"

// Watch keeps the gates of all runs of a namespace at what the server has paused.
type Watch struct {
	client client.Client
	log    *slog.Logger
	// roots are workflows below which something is held, as far as this process knows.
	roots map[string]bool
	tries map[string]try
	// searched is when all that runs was asked last.
	searched time.Time
}

// NewWatch returns a watch that has seen nothing yet.
func NewWatch(c client.Client, log *slog.Logger) *Watch {
	return &Watch{client: c, log: log, roots: map[string]bool{}, tries: map[string]try{}}
}

// try counts what a gate was told.
type try struct {
	freeze *workflows.Freeze
	n      int
}

// Run watches until ctx ends. It returns sooner on a server that has no such pause.
func (w *Watch) Run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	silent := false
	for {
		err := w.Step(ctx)
		var unknown *serviceerror.InvalidArgument
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &unknown):
			w.log.Info("the server cannot pause workflows", "err", err)
			return
		case err != nil && !silent:
			w.log.Warn("what the server has paused is unknown", "err", err)
		}
		silent = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Step is one look at the server. It asks all that runs first where that was not done
// for a while.
func (w *Watch) Step(ctx context.Context) error {
	if time.Since(w.searched) >= searchEvery {
		if err := w.search(ctx); err != nil {
			return err
		}
		w.searched = time.Now()
	}
	return w.look(ctx)
}

// look finds what the server has paused, and settles each run that it concerns or
// that is held from before.
func (w *Watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	paused, err := workflows.ListAll(ctx, w.client, ours+" AND ExecutionStatus = 'Paused'")
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range paused {
		root, err := rootOf(ctx, w.client, e.GetExecution().GetWorkflowId())
		if err == nil {
			w.roots[root] = true
		}
		errs = append(errs, err)
	}
	for root := range w.roots {
		held, err := w.settle(ctx, root)
		if err == nil && !held {
			delete(w.roots, root)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// search asks all that runs whether something holds it.
func (w *Watch) search(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	running, err := workflows.ListAll(ctx, w.client, ours+" AND ExecutionStatus = 'Running'")
	if err != nil {
		return err
	}
	for _, e := range running {
		if (&node{kind: e.GetType().GetName()}).hasGate() {
			w.askWhetherHeld(ctx, e.GetExecution().GetWorkflowId())
		}
	}
	return nil
}

// askWhetherHeld notes the root of a workflow whose gate is held by the server's pause.
// One that does not answer now is asked in the next search.
func (w *Watch) askWhetherHeld(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if got, err := workflows.HeldBy(ctx, w.client, id); err != nil || got == nil {
		return
	}
	if root, err := rootOf(ctx, w.client, id); err == nil {
		w.roots[root] = true
	}
}

// settle brings the gates below a root to what the server says. It reports whether
// anything there is held still.
func (w *Watch) settle(ctx context.Context, root string) (held bool, err error) {
	tree, err := readTree(ctx, w.client, root, 1)
	if err != nil || tree == nil {
		return false, err
	}
	tree.each(func(n *node) { held = held || n.paused != nil })
	tree.eachGate(nil, func(n *node, want *workflows.Freeze) {
		got, failed := workflows.HeldBy(ctx, w.client, n.id)
		if failed != nil {
			held, err = true, errors.Join(err, failed) // asked again
			return
		}
		held = held || got != nil
		if got.Same(want) {
			delete(w.tries, n.id)
			return
		}
		err = errors.Join(err, w.sendFreeze(ctx, n.id, want))
	})
	return held, err
}

// sendFreeze sends a gate the pause that holds it, at most maxTries times: a gate that does
// not accept it runs an older program.
func (w *Watch) sendFreeze(ctx context.Context, id string, want *workflows.Freeze) error {
	t := w.tries[id]
	if !t.freeze.Same(want) || t.n == 0 {
		t = try{freeze: want}
		if want == nil {
			w.log.Info("workflow goes on: the server's pause is over", "workflow", id)
		} else {
			w.log.Info("workflow is held: the server has paused another", "workflow", id, "paused", want.Workflow, "by", want.By)
		}
	}
	if t.n >= maxTries {
		return nil
	}
	t.n++
	w.tries[id] = t
	return workflows.TellFreeze(ctx, w.client, id, want)
}
