package series

import (
	"time"

	"temper/internal/rl"
)

// Step is the input of a step's series.
type Step struct {
	Rollouts      Rollouts
	Train         rl.TrainMetrics
	PolicyVersion int64 // published by the step
	Staleness     int   // updates between the policy that sampled and the one that learned
	// TokenStaleness is the mean of that over sampled tokens, whose policies may differ.
	TokenStaleness float64
	Tokens         int // of all responses
	// Wall is the whole step. Sampling, Training and Saving are parts of it, and
	// Tools is the part of Sampling in which the rollouts waited for tools.
	Wall, Sampling, Tools, Training, Saving time.Duration
	Publishing                              time.Duration // a part of Training
	// SamplingBusy has a part for each process that sampled; TrainingBusy describes the
	// trainer, nil when not measured.
	SamplingBusy []Busy
	TrainingBusy *Busy
}

// training returns the sum of TrainingBusy.
func (s *Step) training() machines {
	if s.TrainingBusy == nil {
		return machines{}
	}
	return sumBusy([]Busy{*s.TrainingBusy})
}

// peak is the most memory of any process, bytes.
func (s *Step) peak() float64 {
	most := int64(0)
	for i := range s.SamplingBusy {
		most = max(most, s.SamplingBusy[i].PeakMemory)
	}
	if s.TrainingBusy != nil {
		most = max(most, s.TrainingBusy.PeakMemory)
	}
	return float64(most)
}

// utilisation returns the share of the peak that training reached, 0 when unknown.
func (s *Step) utilisation() float64 {
	took := (s.Training - s.Publishing).Seconds()
	if s.TrainingBusy == nil || s.TrainingBusy.Work == nil || took <= 0 {
		return 0
	}
	return s.TrainingBusy.Work.FLOPs / (took * s.TrainingBusy.Work.Peak)
}

// Values returns the series that the step has.
func (s *Step) Values() Values {
	out := make(Values, len(table))
	for _, r := range table {
		if value, ok := r.of(s); ok {
			out[r.Name] = value
		}
	}
	return out
}
