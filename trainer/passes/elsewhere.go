package passes

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"temper/trainer/device"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
	"temper/trainer/qwen3"
	"temper/trainer/weights/tensor"
)

// Elsewhere makes passes over microbatches in other processes. They yield the same bits
// as here, so it does not matter who makes which.
type Elsewhere interface {
	// Enlist returns how many passes the other processes could make at the same time, and
	// what gets them ready: gather offers the lanes of each process once it has the
	// weights, and returns when no process is waited for any more. A process that fails is
	// left out.
	Enlist(at Standing) (lanes int, gather func(ctx context.Context, offer func(Lane)))
}

// Lane makes one pass at a time in another process.
type Lane interface {
	// Make makes a pass over inputs of a shape. After an error the lane is gone, and the
	// pass was not made.
	Make(ctx context.Context, p Program, shape packing.Shape, args []any) ([]device.Value, error)
}

// Standing is what another process must have in common with this one.
type Standing struct {
	Config   Config
	Revision int      // of the weights
	Trained  []string // the tensors that gradients are of
	// Weights copies them. It may be called while Gather runs.
	Weights func() ([]tensor.Named, error)
	// Pace is how long the slowest pass of this process took in the call; 0 before one has
	// ended. It tells a process that is slow from one that will never answer.
	Pace func() time.Duration

	gradients []qwen3.TensorSpec // of Trained
}

// crew makes the passes of one call of Each, here and elsewhere.
type crew struct {
	elsewhere int
	muster    func(context.Context, func(Lane))
	free      chan Lane    // nil is a lane of this process
	slowest   atomic.Int64 // of the passes made here, in nanoseconds
}

// enlist returns who makes passes over so many microbatches; nil where this process
// makes all. The reference policy is known here alone.
func (p *Passes) enlist(program Program, micros, lanes int) *crew {
	if p.cfg.Elsewhere == nil || micros < 2 || program.Kind == Reference {
		return nil
	}
	c := &crew{}
	at := standingOf(p.cfg, p.state)
	at.Pace = c.pace
	if c.elsewhere, c.muster = p.cfg.Elsewhere.Enlist(at); c.elsewhere == 0 {
		return nil
	}
	c.free = make(chan Lane, lanes+c.elsewhere)
	for range lanes {
		c.free <- nil
	}
	return c
}

func standingOf(cfg Config, s *optimizer.State) Standing {
	out := Standing{Config: cfg, Revision: s.Revision, Weights: s.Weights}
	out.gradients = s.Tuning().Trained
	for _, spec := range out.gradients {
		out.Trained = append(out.Trained, spec.Name)
	}
	return out
}

func (c *crew) pace() time.Duration { return time.Duration(c.slowest.Load()) }

// timed makes a pass here, and notes how long it took.
func (c *crew) timed(here func() ([]device.Value, error)) ([]device.Value, error) {
	begin := time.Now()
	out, err := here()
	for took := int64(max(time.Since(begin), 1)); ; {
		if known := c.slowest.Load(); took <= known || c.slowest.CompareAndSwap(known, took) {
			return out, err
		}
	}
}

// gather gets the other processes ready beside the passes. What it returns waits until
// none of them reads weights any more.
func (c *crew) gather(ctx context.Context) (wait func()) {
	var done sync.WaitGroup
	done.Go(func() { c.muster(ctx, func(l Lane) { c.free <- l }) })
	return done.Wait
}

// take waits for a lane. Those of this process come back always.
func (c *crew) take(ctx context.Context) (Lane, error) {
	select {
	case lane := <-c.free:
		if ctx.Err() != nil {
			c.free <- lane
			return nil, ctx.Err()
		}
		return lane, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// make makes a pass wherever a lane is free. A pass that is lost with its process is made
// again: every lane yields the same bits.
func (c *crew) make(ctx context.Context, here func() ([]device.Value, error), there func(Lane) ([]device.Value, error)) ([]device.Value, error) {
	for {
		lane, err := c.take(ctx)
		if err != nil {
			return nil, err
		}
		if lane == nil {
			out, err := c.timed(here)
			c.free <- nil
			return out, err
		}
		out, err := there(lane)
		if err == nil {
			c.free <- lane
			return out, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}
