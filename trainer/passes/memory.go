package passes

import (
	"fmt"
	"runtime"

	"temper/internal/fault"
	"temper/trainer/device"
	"temper/trainer/packing"
)

// ErrTooLarge means that a step was not started because one of its passes needs too much
// memory. The state is unchanged.
var ErrTooLarge = fault.Newf(fault.TooLarge, "step does not fit the memory")

// StepBytes estimates the peak of device memory, in bytes, of a number of concurrent passes,
// each over rows of length tokens, including padding. accumulate reports that the gradients of
// several passes are added before the update.
type StepBytes func(rows, length, passes int, accumulate bool) (int64, error)

// Memory bounds the device memory of passes. Without a limit, or without an estimate,
// every pass fits.
type Memory struct {
	Limit int64 // bytes of device memory
	Bytes StepBytes
}

// Check refuses the passes of a step when the largest alone needs more than the
// limit. parts are the microbatches of each of its updates.
func (m Memory) Check(parts [][]packing.Microbatch) error {
	most, at := int64(0), packing.Shape{}
	for _, micros := range parts {
		need, largest, err := m.need(micros, 1)
		if err != nil {
			return err
		}
		if need > most {
			most, at = need, largest
		}
	}
	if most > m.Limit {
		const gib = 1 << 30
		return fmt.Errorf("%w: a pass of %d x %d tokens needs about %.2f GiB of %.2f GiB; lower the microbatch tokens, or the response tokens where a pass has one row",
			ErrTooLarge, at.Rows, at.Length, float64(most)/gib, float64(m.Limit)/gib)
	}
	return nil
}

// need returns the memory of a number of concurrent passes of the largest shape, and that
// shape; 0 without an estimate.
func (m Memory) need(micros []packing.Microbatch, lanes int) (most int64, at packing.Shape, err error) {
	if m.Limit == 0 || m.Bytes == nil {
		return 0, packing.Shape{}, nil
	}
	for _, mb := range micros {
		n, err := m.Bytes(mb.Rows, mb.Length, lanes, len(micros) > 1)
		if err != nil {
			return 0, packing.Shape{}, fmt.Errorf("memory of a pass of %d x %d tokens: %w", mb.Rows, mb.Length, err)
		}
		if n > most {
			most, at = n, mb.Shape
		}
	}
	return most, at, nil
}

// numLanes returns the number of concurrent passes. On the CPU backend it is one a core, or as
// many as fit the memory. Other devices make one pass after another.
func (p *Passes) numLanes(micros []packing.Microbatch) (int, error) {
	most := p.cfg.Lanes
	if most == 0 {
		most = runtime.GOMAXPROCS(0)
	}
	if !device.Threads(p.cfg.Backend) {
		most = 1
	}
	for n := min(most, len(micros)); n > 1; n-- {
		need, _, err := p.cfg.Memory.need(micros, n)
		if err != nil {
			return 0, err
		}
		if need <= p.cfg.Memory.Limit {
			return n, nil
		}
	}
	return 1, nil
}
