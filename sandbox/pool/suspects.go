package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// A call that sees interpreters die may be to blame, or only have been there. After
// suspicious deaths it runs beside at most together-1 other suspects on an interpreter
// that no other call has, and when that dies too, on one for itself. One that ends so
// many of these is to blame.
const (
	deathsToSuspect  = 2
	suspectsTogether = 8
	deathsToBlame    = 2
	quarantineRatio  = 4 // interpreters of suspects for each ordinary one
)

// wardWait is how long a suspect waits for an interpreter, in all. Then the call fails
// as unavailable: it may not be to blame.
const quarantineWait = 30 * time.Second

// run executes req on an interpreter, again when that one dies under it.
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
			// A program leaves nothing behind, so it can run again, now beside few.
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

// final turns an error of Run into the answer of the call, or nil when the call
// is to be repeated.
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

// suspect runs a call during which interpreters died where it can harm few, and then
// nobody.
func (p *Pool) suspect(ctx context.Context, req sandbox.Request, pl *place) (sandbox.Result, error) {
	patience := time.NewTimer(quarantineWait)
	defer patience.Stop()
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.life, cancel) //nolint:contextcheck // the life of the pool is no caller's, and ends these interpreters
	defer stop()
	alone := false
	for deaths := 0; deaths < deathsToBlame; {
		pl.observe(jail.Demand{}) // while it waits
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
