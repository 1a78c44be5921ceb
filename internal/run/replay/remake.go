// Package replay makes steps of a run again from what they name - configuration,
// problems, the policy before, the nearest checkpoint and the stored batches since -
// and compares what comes of it with what is stored, object by object. It owns no
// part of a step: the packages that make runs make them here, too, on a store that
// shows them the run without the objects of the step.
//
// Invariant: the store of the run is only read; what is made lies in a scratch.
package replay

import (
	"context"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/learner"
	"temper/internal/run/chain"
	"temper/internal/sampling"
)

// Bench is where steps are made again.
type Bench struct {
	Store blob.Store
	// NewSampling makes a service that samples for the runs of a store.
	NewSampling func(blob.Store) *sampling.Service
	// NewLearner makes a service that trains the runs of a store, as a rehearsal.
	NewLearner func(blob.Store) *learner.Service
	Now        func() time.Time
	// Makers describe this program and machine as makers of a run's parts; nil takes
	// them for those that made the run.
	Makers func(config.Run) []chain.Maker
}

// Verdict is the result of comparing an object.
type Verdict string

// Verdicts. Differs and Missing are damage, the others are not.
const (
	// Equal is the same bits, or the same values but for clocks and writers.
	Equal Verdict = "equal"
	// Close is other bits within the bounds between kernels that are not the same.
	Close Verdict = "close"
	// Differs is other bits, or an object that the step does not make.
	Differs Verdict = "differs"
	// Missing is an object that the step makes and the store does not have.
	Missing Verdict = "missing"
	// Deleted is a missing one that the run's configuration deletes in time.
	Deleted Verdict = "deleted"
	// Kept is an object that cannot be made again, and was taken as it is stored.
	Kept Verdict = "kept"
)

// Damage reports whether a verdict means that the run is not what it claims to be.
func (v Verdict) Damage() bool { return v == Differs || v == Missing }

// Object is one object of a step and what was found of it.
type Object struct {
	Key     string  `json:"key"`
	Verdict Verdict `json:"verdict"`
	// Note tells where it differs, or why it was kept.
	Note string `json:"note,omitempty"`
}

// Report is the result of making a step again.
type Report struct {
	RunID string `json:"run_id"`
	Step  int    `json:"step"`
	// Policy is the version that the step sampled with.
	Policy int `json:"policy"`
	// Checkpoint is the step of the nearest one before; -1 for one among the
	// supervised updates, or none.
	Checkpoint int      `json:"checkpoint"`
	Objects    []Object `json:"objects"`
	Notes      []string `json:"notes,omitempty"`
	// Kernels tell which kernels that decide bits are not those of the run. Then objects
	// are held to bounds.
	Kernels []string `json:"kernels,omitempty"`
	// Original is how long the step took when the run made it; Took is how long it
	// took here, without Prepared: loading, and the updates since the checkpoint.
	Original time.Duration `json:"original_ns"`
	Prepared time.Duration `json:"prepared_ns"`
	Took     time.Duration `json:"took_ns"`
}

// Damaged are the objects that are not what the step makes.
func (r *Report) Damaged() []Object {
	var out []Object
	for _, o := range r.Objects {
		if o.Verdict.Damage() {
			out = append(out, o)
		}
	}
	return out
}

// Step makes a step of a run again and compares its objects. Errors: InvalidConfig for
// a step that the run has not made.
func (b *Bench) Step(ctx context.Context, runID string, step int) (Report, error) {
	t, err := b.find(ctx, runID, step)
	if err == nil {
		err = t.checkMade(ctx, b.Store)
	}
	if err != nil {
		return Report{}, err
	}
	m := b.begin(t)
	defer m.end()
	m.over.Hide(t.objects()...)
	r := Report{RunID: runID, Step: step, Policy: t.sampler, Checkpoint: t.nearest}
	if t.recorded {
		r.Original = t.record.Ended.Sub(t.record.Started)
	}
	if m.kernels, err = (bounds{m}).apart(ctx); err != nil {
		return r, err
	}
	started := b.Now()
	if err := m.prepare(ctx); err != nil {
		return r, err
	}
	prepared := b.Now()
	if err := m.make(ctx); err != nil {
		return r, err
	}
	r.Prepared, r.Took = prepared.Sub(started), b.Now().Sub(prepared)
	r.Notes, r.Kernels = m.notes, m.kernels
	r.Objects, err = m.compare(ctx)
	return r, err
}
