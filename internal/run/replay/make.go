package replay

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/sampling"
	"temper/trainer/checkpoint"
)

// making is a step that is made again.
type making struct {
	*target
	bench    *Bench
	base     blob.Store
	scratch  *memblob.Store
	over     *memblob.Overlay
	sampling *sampling.Service
	learner  *learner.Service
	// spans are the policies that sample, one after another, as many as the step may need.
	spans   []run.PolicySpan
	used    int      // so many of them had something to sample
	ids     []string // of the problems, in the order of the step
	kept    map[string]string
	notes   notes
	how     string // what a repair is made of
	kernels []string
	// close says how near groups came out that were sampled by other kernels; far are
	// those that are outside of the bounds.
	close map[string]string
	far   map[string]bool
}

func (b *Bench) begin(t *target) *making {
	m := &making{target: t, bench: b, base: b.Store, scratch: memblob.New(), kept: map[string]string{}, close: map[string]string{}, far: map[string]bool{}}
	m.over = memblob.NewOverlay(b.Store, m.scratch)
	m.sampling, m.learner = b.NewSampling(m.over), b.NewLearner(m.over)
	return m
}

func (m *making) end() {
	m.sampling.Close()
	m.learner.Close(0)
}

// notes are lines for the report.
type notes []string

func (n *notes) add(format string, args ...any) {
	*n = append(*n, fmt.Sprintf(format, args...))
}

// prepare brings the learner to the state before the step and the engine to the
// policy of that state.
func (m *making) prepare(ctx context.Context) error {
	if err := m.learner.Prepare(ctx, learner.PublishInput{Run: m.ref, Step: m.before}); err != nil {
		return err
	}
	if err := (samplers{m}).loadPolicies(ctx); err != nil {
		return err
	}
	var selector sampling.Selector
	var err error
	m.ids, err = selector.Select(ctx, m.over, sampling.SelectInput{Run: m.ref, Stage: m.stage.Source(), Step: m.step, StageStep: m.stageStep})
	return err
}

// samplers sample the step with one policy after another.
type samplers struct{ *making }

// loadPolicies finds the policies that sample the step.
func (m samplers) loadPolicies(ctx context.Context) error {
	for _, s := range m.versions() {
		p, err := m.loadPolicy(ctx, s.Version)
		if err != nil {
			return err
		}
		m.spans = append(m.spans, run.PolicySpan{Until: s.Until, Policy: p})
	}
	return nil
}

// loadPolicy loads a policy. One that is deleted or damaged is published again, from the
// learner's state.
func (m samplers) loadPolicy(ctx context.Context, version int64) (run.Policy, error) {
	stored, ok, err := artifact.Lookup[run.Policy](ctx, m.base, m.layout.Policy(version).Ref())
	if err == nil && ok {
		err = m.sampling.Prepare(ctx, m.ref, stored)
	}
	switch {
	case err == nil && ok:
		return stored, nil
	case err == nil:
		m.notes.add("policy %d is not stored any more: it was made again from the state before the step", version)
	case isDamage(err):
		m.notes.add("policy %d is damaged, and was made again from the state before the step: %v", version, err)
	default:
		return stored, err
	}
	shards, err := checkpoint.FolderShards(ctx, m.base, m.layout.Policy(version).Dir())
	if err != nil {
		return stored, err
	}
	for _, ref := range shards { // any of them may be the one that is damaged
		m.over.Hide(ref.Key)
	}
	m.over.Hide(m.layout.Policy(version).Dir()+"/", m.layout.Policy(version).Ref())
	made, err := m.learner.Republish(ctx, learner.PublishInput{Run: m.ref, Step: int(version)})
	if err != nil {
		return made, err
	}
	if ok && made != stored {
		m.notes.add("policy %d, made again, has the manifest %.12s, and the run names %.12s", version, made.Ref.SHA256, stored.Ref.SHA256)
	}
	return made, m.sampling.Prepare(ctx, m.ref, made)
}

// isDamage tells an object that is wrong or gone from a store that fails.
func isDamage(err error) bool { return blob.IsDamage(err) || fault.Of(err) == fault.Corrupt }

// make makes the step: sample, then learn.
func (m *making) make(ctx context.Context) error {
	sampled, err := m.sample(ctx)
	if err != nil {
		return err
	}
	built, err := sampling.BuildBatch(ctx, m.over, sampling.BatchInput{
		Run: m.ref, Stage: m.stage.Source(), Step: m.step, ProblemIDs: m.ids, Shards: sampled.Shards,
	})
	if err != nil {
		return err
	}
	in := learner.StepInput{Run: m.ref, Step: m.step, Save: m.saved}
	if built.Samples > 0 {
		in.Batch = built.Batch
	}
	trained, err := m.learner.TrainStep(ctx, in)
	if err != nil {
		return err
	}
	log := run.StepInput{
		Run: m.ref, Stage: m.stage.Index, StageName: m.stage.Name, Step: m.step, NumSteps: m.record.NumSteps,
		Sample: sampled, Rollouts: built.Stats, Train: trained, Started: m.record.Started, Ended: m.record.Ended,
		Staleness: m.staleness,
	}
	if m.staleness > 0 {
		log.SampledBy = m.spans[0].Policy
	}
	if len(m.spans) > 1 {
		log.Spans = m.spans
	}
	cfg, err := run.ReadConfig(ctx, m.over, m.ref)
	if err != nil {
		return err
	}
	_, err = run.LogStep(ctx, m.over, cfg, log)
	return err
}

// sample samples all groups of the step.
func (m *making) sample(ctx context.Context) (run.Sampled, error) {
	out, err := samplers{m}.sampleSpans(ctx)
	if err != nil {
		return out, err
	}
	if len(m.kernels) > 0 {
		err = bounds{m}.compareGroups(ctx)
	} else {
		err = m.settleAllLost(ctx)
	}
	if err != nil {
		return out, err
	}
	if len(m.kept)+len(m.close) == 0 {
		return out, nil
	}
	again, err := samplers{m}.sampleSpan(ctx, m.used-1)
	again.Wall, again.SampleTime, again.ToolTime = out.Wall, out.SampleTime, out.ToolTime
	again.Busy = out.Busy
	return again, err
}

// sampleSpans samples with one policy after another, until every trajectory has ended.
func (m samplers) sampleSpans(ctx context.Context) (run.Sampled, error) {
	var out run.Sampled
	for m.used = 0; m.used == 0 || out.Open > 0; m.used++ {
		before := out
		var err error
		if out, err = m.sampleSpan(ctx, m.used); err != nil {
			return out, err
		}
		out = before.Then(out)
	}
	return out, nil
}

func (m samplers) sampleSpan(ctx context.Context, i int) (run.Sampled, error) {
	return m.sampling.SampleGroups(ctx, sampling.GroupsInput{
		Run: m.ref, Stage: m.stage.Source(), Step: m.step, ProblemIDs: m.ids,
		Policy: m.spans[i].Policy, Until: m.spans[i].Until, Before: m.spans[:i],
	}, m.sampling.NewProgress())
}

func (m *making) settleAllLost(ctx context.Context) error {
	for _, id := range m.ids {
		key := m.layout.Step(m.step).Group(id)
		why, err := settleLost(ctx, m.base, m.over, key)
		if err != nil {
			return err
		}
		if why != "" {
			m.kept[key] = why
		}
	}
	return nil
}

// settleLost looks for trajectories that the infrastructure lost from the group at key.
// A stored group that lost some cannot come out the same again: where the others are
// equal, it puts the stored group over the made one and returns why. A loss in the made
// group is an error, since another attempt makes it.
func settleLost(ctx context.Context, base, over blob.Store, key string) (why string, err error) {
	made, err := run.ReadTrajectories(ctx, over, key)
	if err != nil {
		return "", err
	}
	stored, err := run.ReadTrajectories(ctx, base, key)
	if err != nil && !isDamage(err) {
		return "", err
	}
	if slices.ContainsFunc(made, isLost) && (len(stored) != len(made) || numLost(stored) == 0) {
		return "", fmt.Errorf("%s: the infrastructure lost trajectories of this group while its step was made again: see that the sandbox is well, then repeat this", key)
	}
	if numLost(stored) == 0 || !equalBut(stored, made, isLost) || equalBut(stored, made, nil) {
		return "", nil // the comparison reports it
	}
	data, err := blob.ReadKey(ctx, base, key)
	if err == nil {
		_, err = blob.PutBytes(ctx, over, key, data, blob.Always)
	}
	return fmt.Sprintf("the infrastructure lost %d of its %d trajectories; the others are equal", numLost(stored), len(stored)), err
}

func isLost(t rl.Trajectory) bool { return t.StopReason == rl.StopInfraError }

func numLost(ts []rl.Trajectory) int {
	n := 0
	for i := range ts {
		if isLost(ts[i]) {
			n++
		}
	}
	return n
}

// equalBut compares trajectories, except those that are left out of the stored ones.
func equalBut(stored, made []rl.Trajectory, leaveOut func(rl.Trajectory) bool) bool {
	return slices.EqualFunc(stored, made, func(a, b rl.Trajectory) bool {
		return leaveOut != nil && leaveOut(a) || reflect.DeepEqual(a, b)
	})
}
