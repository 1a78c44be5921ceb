package trainer

import (
	"context"
	"runtime"

	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
)

// DefaultLaneTokens are few, so that a minibatch of the usual size has a pass for
// each of several cores and none of them waits long for the last one.
const DefaultLaneTokens = 512

// passTokens bounds the padded tokens of a device pass. It is a matter of the
// configuration alone, so that how a minibatch is cut, and with it every bit of
// the sum of its gradients, depends on neither cores nor memory.
func (c Config) passTokens() int {
	switch {
	case !device.Threads(c.Backend):
		return c.MicrobatchTokens
	case c.LaneTokens > 0:
		return min(c.MicrobatchTokens, c.LaneTokens)
	}
	return min(c.MicrobatchTokens, DefaultLaneTokens)
}

// lanes is how many of the passes run side by side: one on each core of the CPU
// backend, fewer where so many do not fit the memory. Other devices work off one
// pass after the other.
func (t *Trainer) lanes(micros []microbatch) (int, error) {
	most := t.cfg.Lanes
	if most == 0 {
		most = runtime.GOMAXPROCS(0)
	}
	if !device.Threads(t.cfg.Backend) {
		most = 1
	}
	for n := min(most, len(micros)); n > 1; n-- {
		need, _, err := t.need(micros, n)
		if err != nil {
			return 0, err
		}
		if need <= t.cfg.MemoryLimit {
			return n, nil
		}
	}
	return 1, nil
}

// outcome is what a pass ends with.
type outcome struct {
	out []*tensors.Tensor
	err error
}

// passes runs a program on the microbatches, several at the same time, and gives
// take what each of them yields in their order: what take adds up depends neither
// on the number of lanes nor on which is faster. take owns the tensors. After an
// error no more passes start; the first error counts.
func (t *Trainer) passes(ctx context.Context, p program, micros []microbatch, feed func(microbatch) []any,
	take func(microbatch, []*tensors.Tensor) error) error {
	if t.spread != nil {
		return t.oneByOne(ctx, p, micros, feed, take)
	}
	lanes, err := t.lanes(micros)
	if err != nil {
		return err
	}
	exec, err := t.exec(p)
	if err != nil {
		return err
	}
	if lanes > 1 {
		t.helpers.Rest()
		defer t.helpers.Work()
	}
	under := make([]chan outcome, len(micros)) // way; at most one for each lane
	start := func(i int) {
		t.graphs[graphKey{p, micros[i].shape}] = true
		under[i] = make(chan outcome, 1)
		args := feed(micros[i])
		go func() {
			out, err := run(p, exec, args...)
			under[i] <- outcome{out, err}
		}()
	}
	started := 0
	fill := func(most int) {
		for err == nil && started < min(most, len(micros)) {
			if err = ctx.Err(); err == nil {
				start(started)
				started++
			}
		}
	}
	fill(lanes)
	for i, mb := range micros {
		if i == started {
			break // only after an error
		}
		o := <-under[i]
		if o.err == nil {
			fill(i + 1 + lanes) // before take, which would leave a core idle
		}
		switch {
		case err != nil:
			finalize(o.out)
		case o.err != nil:
			err = o.err
		default:
			err = take(mb, o.out)
		}
	}
	if err != nil {
		t.checkState()
	}
	return err
}

// oneByOne is passes on several devices, which share the work of each pass.
func (t *Trainer) oneByOne(ctx context.Context, p program, micros []microbatch, feed func(microbatch) []any,
	take func(microbatch, []*tensors.Tensor) error) error {
	for _, mb := range micros {
		if err := ctx.Err(); err != nil {
			return err
		}
		out, err := t.call(p, mb.shape, feed(mb)...)
		if err == nil {
			err = take(mb, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
