package trainer

import (
	"errors"
	"fmt"
)

// ErrTooLarge means that a step was not started because one of its passes needs
// more memory than there is. The state is as it was.
var ErrTooLarge = errors.New("step does not fit the memory")

// StepBytes estimates the peak of device memory of a pass, in bytes, over rows
// of length tokens, padding included. accumulate says that the gradients of
// several passes are added up before the update.
type StepBytes func(rows, length int, accumulate bool) (int64, error)

// fits refuses a step whose largest pass needs more than the limit.
func (t *Trainer) fits(parts [][]*row) error {
	if t.cfg.MemoryLimit == 0 || t.cfg.StepBytes == nil {
		return nil
	}
	most, at := int64(0), shape{}
	for _, part := range parts {
		micros := t.microbatches(part)
		for _, mb := range micros {
			need, err := t.cfg.StepBytes(mb.rows, mb.length, len(micros) > 1)
			if err != nil {
				return fmt.Errorf("memory of a pass of %d x %d tokens: %w", mb.rows, mb.length, err)
			}
			if need > most {
				most, at = need, mb.shape
			}
		}
	}
	if most > t.cfg.MemoryLimit {
		const gib = 1 << 30
		return fmt.Errorf("%w: a pass of %d x %d tokens needs about %.2f GiB of %.2f GiB; lower the microbatch tokens, or the response tokens where a pass has one row",
			ErrTooLarge, at.rows, at.length, float64(most)/gib, float64(t.cfg.MemoryLimit)/gib)
	}
	return nil
}
