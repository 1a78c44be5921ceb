package replay

import (
	"context"
	"fmt"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/sampling"
)

// Repaired is what became of a damaged object.
type Repaired struct {
	Key string `json:"key"`
	// Done says that the object has the bytes of its reference again.
	Done bool `json:"done"`
	// How says what it was made of, or why it could not be.
	How string `json:"how"`
}

// Repair makes damaged or missing objects of a run again, in the order of the run, and
// puts back those that come out with the bytes of their reference. Each leaves an
// event. Other objects are not touched. With dry it changes nothing.
func (b *Bench) Repair(ctx context.Context, runID string, damaged []blob.Ref, dry bool) ([]Repaired, error) {
	layout := artifact.Layout{RunID: runID}
	plan, ok, err := run.StoredPlan(ctx, b.Store, runID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "no run %q is stored (temper run list shows what there is)", runID)
	}
	if err != nil {
		return nil, err
	}
	if dry { // each place is made of what the one before has put back
		on := *b
		on.Store = memblob.NewOverlay(b.Store, memblob.New())
		b = &on
	}
	byPlace := map[place][]blob.Ref{}
	for _, ref := range damaged {
		at, err := b.placeOf(ctx, layout, ref.Key)
		if err != nil {
			return nil, err
		}
		byPlace[at] = append(byPlace[at], ref)
	}
	var out []Repaired
	for _, at := range sortedPlaces(byPlace) {
		r := repair{bench: b, plan: plan, at: at, damaged: byPlace[at]}
		done, err := r.carryOut(ctx)
		if err != nil {
			return out, err
		}
		out = append(out, done...)
	}
	for i := range out {
		if dry && out[i].Done {
			out[i] = Repaired{Key: out[i].Key, How: "can be " + out[i].How}
		}
	}
	return out, nil
}

// repair makes the objects of one place again.
type repair struct {
	bench   *Bench
	plan    run.Plan
	at      place
	damaged []blob.Ref
}

func (r *repair) carryOut(ctx context.Context) ([]Repaired, error) {
	if r.at.part == unmade {
		return r.failed(r.at.why), nil
	}
	m, err := r.bench.beginAt(ctx, r.plan, r.at)
	if err == nil {
		defer m.end()
		for _, ref := range r.damaged {
			m.over.Hide(ref.Key)
		}
		m.how, err = m.remakePart(ctx, r.at.part)
	}
	if isDamage(err) || fault.Of(err) != "" {
		return r.failed(fmt.Sprintf("it is made of what is damaged or gone, too: %v", err)), nil
	}
	if err != nil {
		return nil, err
	}
	return r.putBack(ctx, m)
}

// beginAt begins to make a part of a step.
func (b *Bench) beginAt(ctx context.Context, plan run.Plan, at place) (*making, error) {
	t, err := b.find(ctx, plan.RunID, at.step)
	if at.part == policies && fault.Of(err) == fault.InvalidConfig { // that of no step, or of a parent's
		ref := run.Ref{RunID: plan.RunID, Config: plan.Config}
		t, err = &target{ref: ref, layout: artifact.Layout{RunID: plan.RunID}, plan: plan, step: at.step}, nil
	}
	if err != nil {
		return nil, err
	}
	return b.begin(t), nil
}

// remakePart makes a part of the step and says of what.
func (m *making) remakePart(ctx context.Context, p part) (how string, err error) {
	if p == groups {
		return m.remakeGroups(ctx)
	}
	return m.remakePolicy(ctx)
}

func (r *repair) failed(why string) []Repaired {
	var out []Repaired
	for _, ref := range r.damaged {
		out = append(out, Repaired{Key: ref.Key, How: why})
	}
	return out
}

// remakePolicy publishes the policy of the step again.
func (m *making) remakePolicy(ctx context.Context) (how string, err error) {
	m.over.Hide(m.layout.Policy(int64(m.step)).Dir()+"/", m.layout.Policy(int64(m.step)).Ref())
	_, err = m.learner.Republish(ctx, learner.PublishInput{Run: m.ref, Step: m.step})
	return "published again from the nearest checkpoint and the stored batches since", err
}

// remakeGroups makes what is hidden of the groups of the step: it samples those
// without trajectories and records all of them.
func (m *making) remakeGroups(ctx context.Context) (how string, err error) {
	m.over.Hide(m.layout.Step(m.step).Batch(), m.layout.Step(m.step).BatchStats())
	var selector sampling.Selector
	m.ids, err = selector.Select(ctx, m.over, sampling.SelectInput{Run: m.ref, Stage: m.stage.Source(), Step: m.step, StageStep: m.stageStep})
	if err != nil {
		return "", err
	}
	in := sampling.BatchInput{Run: m.ref, Stage: m.stage.Source(), Step: m.step, ProblemIDs: m.ids}
	absent, err := m.numAbsent(ctx)
	if err != nil {
		return "", err
	}
	how = "recorded again from the trajectories of the step"
	if absent > 0 {
		how = fmt.Sprintf("sampled again with policy %d: %d of %d groups", m.sampler, absent, len(m.ids))
		if err := (samplers{m}).loadPolicies(ctx); err != nil {
			return "", err
		}
		sampled, err := samplers{m}.sampleSpans(ctx)
		if err != nil {
			return "", err
		}
		in.Shards = sampled.Shards
	}
	_, err = sampling.BuildBatch(ctx, m.over, in)
	return how, err
}

// numAbsent counts the groups of the step whose trajectories are gone, or not those that
// the stored batch names.
func (m *making) numAbsent(ctx context.Context) (int, error) {
	named, err := m.namedByBatch(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, id := range m.ids {
		key := m.layout.Step(m.step).Group(id)
		_, have, err := run.ReadTrajectoriesRef(ctx, m.over, key)
		if want, ok := named[key]; err == nil && (!ok || want == have) {
			continue
		}
		if err == nil {
			err = blob.ErrCorrupt
		}
		if !isDamage(err) {
			return n, err
		}
		m.over.Hide(key)
		n++
	}
	return n, nil
}

// namedByBatch are the trajectories and samples that the stored batch names, by key;
// none where it cannot be read.
func (m *making) namedByBatch(ctx context.Context) (map[string]blob.Ref, error) {
	batch, _, err := artifact.Lookup[run.StoredBatch](ctx, m.base, m.layout.Step(m.step).Batch())
	if err != nil && !isDamage(err) {
		return nil, err
	}
	out := map[string]blob.Ref{}
	for i := range batch.Groups {
		for _, ref := range []blob.Ref{batch.Groups[i].Trajectories, batch.Groups[i].Samples} {
			if !ref.IsZero() {
				out[ref.Key] = ref
			}
		}
	}
	return out, nil
}

// putBack stores the objects that have come out with the bytes of their references.
func (r *repair) putBack(ctx context.Context, m *making) ([]Repaired, error) {
	var out []Repaired
	for _, ref := range r.damaged {
		data, made, err := read(ctx, m.scratch, ref.Key)
		if err != nil {
			return nil, err
		}
		one := Repaired{Key: ref.Key, How: m.how}
		got := blob.RefOf(ref.Key, data)
		switch {
		case !made:
			one.How = "the step does not make it: bring it back from a copy of the store"
		case got.SHA256 != ref.SHA256:
			one.How = fmt.Sprintf("%s, it has sha256 %.12s, and %.12s is recorded: another build or kind of processor makes other bits; bring it back from a copy of the store", m.how, got.SHA256, ref.SHA256)
		default:
			if err := blob.Restore(ctx, r.bench.Store, ref.Key, data); err != nil {
				return out, err
			}
			one.Done = true
			if err := m.recordRepair(ctx, ref.Key); err != nil {
				return out, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// recordRepair leaves an event of an object that was put back.
func (m *making) recordRepair(ctx context.Context, key string) error {
	return run.LogEvent(ctx, m.base, run.Event{
		Run: m.ref, Time: m.bench.Now(), Kind: run.EventRepair, Text: fmt.Sprintf("%s was damaged or missing; %s", key, m.how),
	})
}
