package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// A call whose interpreter dies may be the cause or only a victim. After deathsToSuspect
// deaths it shares an interpreter with at most suspectsTogether-1 other suspects and no
// other call, and if that one dies too, it gets one for itself. After deathsToBlame deaths
// of such an interpreter the call is the cause.
const (
	deathsToSuspect  = 2
	suspectsTogether = 8
	deathsToBlame    = 2
	quarantineRatio  = 4 // interpreters for suspects per ordinary interpreter
)

// quarantineWait is how long a suspect waits for interpreters in total. Then the call fails
// as unavailable, since it may not be the cause.
const quarantineWait = 30 * time.Second

// run executes req on an interpreter, and repeats it when the interpreter dies.
func (p *Pool) run(ctx context.Context, req sandbox.Request, pl *place) (sandbox.Result, error) {
	starved := false
	for deaths := 0; deaths < deathsToSuspect; {
		w, in, err := p.pick(ctx)
		if err != nil {
			return sandbox.Result{}, err
		}
		res, err := in.Run(ctx, req)
		p.release(w)
		switch {
		case err == nil:
			return res, nil
		case errors.Is(err, jail.ErrStarved) && !starved && ctx.Err() == nil && !p.isClosing():
			// A program leaves no state, so it can run again, now beside fewer others.
			starved = true
			p.starved.Add(1)
			if err := pl.waitForFewer(ctx); err != nil {
				return sandbox.Result{}, err
			}
			continue
		}
		if err := p.final(ctx, err); err != nil {
			return sandbox.Result{}, err
		}
		deaths++
	}
	return p.suspect(ctx, req, pl)
}

// final turns an error of Run into the error of the call, or nil to repeat the call.
func (p *Pool) final(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.isClosing():
		return fmt.Errorf("%w: shutting down", sandbox.ErrUnavailable)
	case errors.Is(err, jail.ErrDied):
		return nil
	case errors.Is(err, sandbox.ErrOverloaded):
		return err
	default:
		return fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
}

// suspect runs a call during which interpreters died where it can harm only other suspects,
// and then alone.
func (p *Pool) suspect(ctx context.Context, req sandbox.Request, pl *place) (sandbox.Result, error) {
	patience := time.NewTimer(quarantineWait)
	defer patience.Stop()
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.life, cancel) //nolint:contextcheck // the end of the pool also ends these interpreters
	defer stop()
	alone := false
	for deaths := 0; deaths < deathsToBlame; {
		pl.observe(jail.Demand{}) // it does not compute while it waits
		c, err := p.quarantine.enter(life, patience.C, alone)
		pl.observe(jail.Demand{Core: true})
		if err != nil {
			return sandbox.Result{}, p.final(ctx, err)
		}
		res, err := c.in.Run(life, req)
		p.quarantine.leave(c)
		if err == nil {
			return res, nil
		}
		if err := p.final(ctx, err); err != nil {
			return sandbox.Result{}, err
		}
		if alone {
			deaths++
		}
		alone = true
	}
	return sandbox.Result{
		ID: req.ID, Status: sandbox.StatusKilled, ExitCode: 137,
		Reason: "ends the interpreter that runs it, again and again",
	}, nil
}
