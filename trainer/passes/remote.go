package passes

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/optimizer"
	"temper/trainer/packing"
	"temper/trainer/weights/tensor"
)

// RemotePasses makes passes over microbatches in other processes, with the same bits as
// in this process.
type RemotePasses interface {
	// Acquire returns the number of passes that other processes can make at the same time,
	// and a function that prepares them. connect calls offer for each lane of a process that
	// has the weights, and returns when it waits for no process. It skips a process that
	// fails.
	Acquire(s RemoteSetup) (lanes int, connect func(ctx context.Context, offer func(Lane)))
}

// Lane makes one pass at a time in another process.
type Lane interface {
	// Make makes a pass over inputs of a shape. After an error the lane is unusable, and the
	// pass has no result.
	Make(ctx context.Context, p Program, shape packing.Shape, args []any) ([]device.Value, error)
}

// RemoteSetup holds the settings and weights that another process needs for its passes.
type RemoteSetup struct {
	Config   Config
	Revision int      // of the weights
	Trained  []string // the tensors that have gradients
	// Weights copies the weights. It may be called while connect runs.
	Weights func() ([]tensor.Named, error)
	// Pace returns the time of the slowest pass of this process in the call; 0 before the
	// first one ends. It separates a slow process from one that never answers.
	Pace func() time.Duration

	gradients []model.TensorSpec // of Trained
}

// dispatcher makes the passes of one call of Each, in this process and in others.
type dispatcher struct {
	numRemote int
	connect   func(context.Context, func(Lane))
	free      chan Lane    // a nil Lane is one of this process
	slowest   atomic.Int64 // pass of this process, in nanoseconds
}

// newDispatcher returns a dispatcher of the passes over a number of microbatches, nil when
// this process makes all of them. Other processes do not have the reference policy.
func (p *Passes) newDispatcher(program Program, micros, lanes int) *dispatcher {
	if p.cfg.Remote == nil || micros < 2 || program.Kind == Reference {
		return nil
	}
	c := &dispatcher{}
	setup := remoteSetup(p.cfg, p.state)
	setup.Pace = c.pace
	if c.numRemote, c.connect = p.cfg.Remote.Acquire(setup); c.numRemote == 0 {
		return nil
	}
	c.free = make(chan Lane, lanes+c.numRemote)
	for range lanes {
		c.free <- nil
	}
	return c
}

func remoteSetup(cfg Config, s *optimizer.State) RemoteSetup {
	out := RemoteSetup{Config: cfg, Revision: s.Revision, Weights: s.Weights}
	out.gradients = s.Tuning().Trained
	for _, spec := range out.gradients {
		out.Trained = append(out.Trained, spec.Name)
	}
	return out
}

func (c *dispatcher) pace() time.Duration { return time.Duration(c.slowest.Load()) }

// timed makes a pass in this process and records its time.
func (c *dispatcher) timed(here func() ([]device.Value, error)) ([]device.Value, error) {
	begin := time.Now()
	out, err := here()
	for took := int64(max(time.Since(begin), 1)); ; {
		if known := c.slowest.Load(); took <= known || c.slowest.CompareAndSwap(known, took) {
			return out, err
		}
	}
}

// start prepares the other processes in the background. wait returns when none of them
// reads weights.
func (c *dispatcher) start(ctx context.Context) (wait func()) {
	var done sync.WaitGroup
	done.Go(func() { c.connect(ctx, func(l Lane) { c.free <- l }) })
	return done.Wait
}

// acquire waits for a lane. A lane of this process always becomes free again.
func (c *dispatcher) acquire(ctx context.Context) (Lane, error) {
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

// make makes a pass on the first free lane. It repeats a pass that is lost with its
// process: every lane yields the same bits.
func (c *dispatcher) make(ctx context.Context, here func() ([]device.Value, error), there func(Lane) ([]device.Value, error)) ([]device.Value, error) {
	for {
		lane, err := c.acquire(ctx)
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
