package trainer

import (
	"fmt"

	"temper/internal/fault"
)

// ErrTooLarge means that a step was not started because one of its passes needs
// more memory than there is. The state is as it was.
var ErrTooLarge = fault.Newf(fault.TooLarge, "step does not fit the memory")

// StepBytes estimates the peak of device memory, in bytes, while passes over rows
// of length tokens each, padding included, run side by side. accumulate says that
// the gradients of several passes are added up before the update.
type StepBytes func(rows, length, passes int, accumulate bool) (int64, error)

// need is the memory of the largest of the passes with so many beside one another,
// and the shape of that pass; 0 where nobody estimates it.
func (t *Trainer) need(micros []microbatch, lanes int) (most int64, at shape, err error) {
	if t.cfg.MemoryLimit == 0 || t.cfg.StepBytes == nil {
		return 0, shape{}, nil
	}
	for _, mb := range micros {
		n, err := t.cfg.StepBytes(mb.rows, mb.length, lanes, len(micros) > 1)
		if err != nil {
			return 0, shape{}, fmt.Errorf("memory of a pass of %d x %d tokens: %w", mb.rows, mb.length, err)
		}
		if n > most {
			most, at = n, mb.shape
		}
	}
	return most, at, nil
}

// fits refuses a step whose largest pass alone needs more than the limit.
func (t *Trainer) fits(parts [][]*row) error {
	most, at := int64(0), shape{}
	for _, part := range parts {
		need, largest, err := t.need(t.microbatches(part), 1)
		if err != nil {
			return err
		}
		if need > most {
			most, at = need, largest
		}
	}
	if most > t.cfg.MemoryLimit {
		const gib = 1 << 30
		return fmt.Errorf("%w: a pass of %d x %d tokens needs about %.2f GiB of %.2f GiB; lower the microbatch tokens, or the response tokens where a pass has one row",
			ErrTooLarge, at.rows, at.length, float64(most)/gib, float64(t.cfg.MemoryLimit)/gib)
	}
	return nil
}
