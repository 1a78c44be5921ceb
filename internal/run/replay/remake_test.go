package replay_test

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/chain"
	"temper/internal/run/replay"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/sandbox/sandboxtest"
)

// maker makes the steps of a run as its workflows do.
type maker struct {
	*runtest.Run
	trainer  *runtest.Machine
	sampling *sampling.Service
	policy   run.Policy
	earlier  []run.Policy // before policy
	chain    run.Chain
	madeBy   chain.Maker
}

// newMaker makes a run up to its policy 0.
func newMaker(t *testing.T, set map[string]string) *maker {
	t.Helper()
	m := &maker{Run: runtest.New(t, set)}
	m.trainer = runtest.Boot(m.Store, &runtest.Fate{})
	m.sampling, _ = m.NewSampling(t)
	runtest.CarryOut(t, m.trainer, m.Script(t))
	var err error
	if m.policy, err = m.trainer.Publish(t.Context(), learner.PublishInput{Run: m.Ref}); err != nil {
		t.Fatal(err)
	}
	return m
}

// makeSteps makes the next steps of the run, up to a number.
func (m *maker) makeSteps(t *testing.T, last int) {
	t.Helper()
	for step := int(m.policy.Version) + 1; step <= last; step++ {
		m.makeStep(t, step, func() {})
	}
}

// makeStep makes a step; between sampling and the batch it calls spoil.
func (m *maker) makeStep(t *testing.T, step int, spoil func()) {
	t.Helper()
	stage := m.Plan.Stages[0]
	if step > stage.Steps {
		stage = m.Plan.Stages[1]
	}
	if stage.Filter && step == stage.FirstStep {
		if _, err := m.sampling.Filter(t.Context(), sampling.FilterInput{Run: m.Ref, Stage: stage.Index, Policy: m.policy}, m.sampling.NewProgress()); err != nil {
			t.Fatal(err)
		}
	}
	sampler, staleness := m.policy, min(m.Plan.Window, step-stage.FirstStep)
	if staleness > 0 {
		sampler = m.earlier[len(m.earlier)-staleness]
	}
	in := sampling.GroupsInput{Run: m.Ref, Stage: stage.Index, Step: step, ProblemIDs: m.Selected(t, stage.Index, step), Policy: sampler}
	spans := m.spansOf(stage, step, staleness)
	used := 0
	sample := func() (out run.Sampled) {
		for used = 0; used == 0 || out.Open > 0; used++ {
			in.Policy, in.Until, in.Before = spans[used].Policy, spans[used].Until, spans[:used]
			var err error
			if out, err = m.sampling.SampleGroups(t.Context(), in, m.sampling.NewProgress()); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	sample()
	spoil()
	sampled := sample()
	built, err := sampling.BuildBatch(t.Context(), m.Store, sampling.BatchInput{Run: m.Ref, Stage: stage.Index, Step: step, ProblemIDs: in.ProblemIDs, Shards: sampled.Shards})
	if err != nil {
		t.Fatal(err)
	}
	trained, err := m.trainer.TrainStep(t.Context(), m.StepInput(t, step, step%2 == 0))
	if err != nil {
		t.Fatal(err)
	}
	log := run.StepInput{
		Run: m.Ref, Stage: stage.Index, StageName: stage.Name, Step: step, NumSteps: m.Plan.NumSteps(),
		Sample: sampled, Rollouts: built.Stats, Train: trained, Started: runtest.Still(), Ended: runtest.Still(), Staleness: staleness,
	}
	if staleness > 0 {
		log.SampledBy = sampler
	}
	if len(spans) > 1 {
		log.Spans = spans
	}
	if _, err := run.LogStep(t.Context(), m.Store, m.Config, log); err != nil {
		t.Fatal(err)
	}
	log.Sample.MadeBy = chain.AddMaker(nil, m.madeBy)
	if err := m.chain.AddStep(t.Context(), m.Store, log); err != nil {
		t.Fatal(err)
	}
	m.earlier, m.policy = append(m.earlier, m.policy), trained.Policy
}

// spansOf are the policies that may sample a step, as its number says.
func (m *maker) spansOf(stage run.Stage, step, staleness int) []run.PolicySpan {
	all := append(slices.Clip(m.earlier), m.policy)
	out := []run.PolicySpan{{Policy: all[len(all)-1-staleness]}}
	if m.Plan.PartialTokens == 0 {
		return out
	}
	skipped := max(0, stage.FirstStep-step+m.Plan.Window)
	for i := range staleness {
		out[i].Until = (skipped + i + 1) * m.Plan.PartialTokens
		out = append(out, run.PolicySpan{Policy: all[len(all)-staleness+i]})
	}
	return out
}

// bench makes steps of a store again by the means of the test.
func (m *maker) bench(t *testing.T, store blob.Store) *replay.Bench {
	return &replay.Bench{
		Store: store, Now: runtest.Still,
		NewSampling: func(store blob.Store) *sampling.Service {
			engine := m.NewScripted(t)
			return sampling.New(sampling.Config{
				Store: store, Executor: &sandboxtest.Fake{Func: runtest.Python}, MaxConcurrent: 4, Now: runtest.Still,
				NewEngine: func(*run.Loaded) (sampling.Engine, error) { return engine, nil },
			})
		},
		NewLearner: func(store blob.Store) *learner.Service {
			return learner.NewService(learner.Config{
				Store: store, Now: runtest.Still, Background: func(task func()) { task() }, Rehearsal: true,
				New: func(r *run.Loaded) (learner.Learner, error) {
					return &runtest.Chain{Fate: &runtest.Fate{}, Model: r.Model}, nil
				},
			})
		},
	}
}

// remade makes a step again.
func (m *maker) remade(t *testing.T, store blob.Store, step int) replay.Report {
	t.Helper()
	r, err := m.bench(t, store).Step(t.Context(), "demo", step)
	if err != nil {
		t.Fatalf("step %d: %v", step, err)
	}
	return r
}

// TestStepsComeOutAgain: all steps of a run, from fresh processes, with every object
// of theirs; and the run itself is not touched.
func TestStepsComeOutAgain(t *testing.T) {
	m := newMaker(t, map[string]string{"checkpoint.keep": "9"})
	m.makeSteps(t, 6)
	before := runtest.Dump(t, m.Store)
	for step := 1; step <= 6; step++ {
		r := m.remade(t, m.Store, step)
		compared := map[string]bool{}
		for _, o := range r.Objects {
			compared[o.Key] = true
			if o.Verdict != replay.Equal {
				t.Errorf("step %d: %s %s: %s", step, o.Key, o.Verdict, o.Note)
			}
		}
		for key := range before {
			if of, ok := strings.CutPrefix(key, m.Layout.Step(step).Dir()+"/"); ok && !compared[key] && !m.Layout.Chain().Contains(key) {
				t.Errorf("step %d: %s was not compared", step, of)
			}
		}
		for _, key := range []string{m.Layout.Policy(int64(step)).Ref(), path.Join(m.Layout.Policy(int64(step)).Dir(), "model.safetensors")} {
			if !compared[key] {
				t.Errorf("step %d: %s was not compared", step, key)
			}
		}
		if saved := slices.ContainsFunc(r.Objects, func(o replay.Object) bool { return strings.HasSuffix(o.Key, "/manifest.json") }); saved != (step%2 == 0) {
			t.Errorf("step %d: its checkpoint was compared: %v", step, saved)
		}
		if want := (step - 1) / 2 * 2; r.Checkpoint != want || r.Policy != step-1 {
			t.Errorf("step %d was made of policy %d from checkpoint %d, want the nearest, %d", step, r.Policy, r.Checkpoint, want)
		}
	}
	if diff := cmp.Diff(runtest.Dump(t, m.Store), before); diff != "" {
		t.Errorf("the run was changed: got -, want +\n%s", diff)
	}
}

// TestStepsSampledAheadComeOutAgain from the policy that sampled them, also where that
// is not stored any more.
func TestStepsSampledAheadComeOutAgain(t *testing.T) {
	m := newMaker(t, map[string]string{"checkpoint.keep": "9", "rl.window": "1", "rl.loss.old_logprobs": "rollout"})
	m.makeSteps(t, 6)
	first := m.Plan.Stages[1].FirstStep
	for _, gone := range []bool{false, true} {
		for step := 1; step <= 6; step++ {
			want := step - 2
			if step == 1 || step == first {
				want = step - 1
			}
			r := m.remade(t, m.Store, step)
			if r.Policy != want || len(r.Notes) > 0 != (gone && want == 3) {
				t.Errorf("step %d was sampled by policy %d, want %d; notes %q", step, r.Policy, want, r.Notes)
			}
			for _, o := range r.Objects {
				if o.Verdict != replay.Equal && !strings.Contains(o.Key, "policies/v000003") {
					t.Errorf("step %d: %s %s: %s", step, o.Key, o.Verdict, o.Note)
				}
			}
		}
		if err := m.Store.Delete(t.Context(), m.Layout.Policy(3).Ref()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStepsInSpansComeOutAgain from the policies that sampled them one after another, also
// where one of those is not stored any more.
func TestStepsInSpansComeOutAgain(t *testing.T) {
	m := newMaker(t, map[string]string{"checkpoint.keep": "9", "rl.window": "2", "rl.partial_rollout_tokens": "15", "rl.loss.old_logprobs": "rollout"})
	m.makeSteps(t, 4)
	for step, want := range map[int]int{1: 0, 2: 2, 3: 3, 4: 3} {
		if got := runtest.ReadLines[run.StepRecord](t, m.Store, m.Layout.Step(step).Log())[0]; len(got.Spans) != want {
			t.Errorf("step %d names spans %+v, want %d", step, got.Spans, want)
		}
	}
	for _, gone := range []bool{false, true} {
		for step := 1; step <= 4; step++ {
			r := m.remade(t, m.Store, step)
			if r.Policy != max(0, step-3) || len(r.Notes) > 0 != (gone && step > 2) {
				t.Errorf("step %d was sampled by policy %d first; notes %q", step, r.Policy, r.Notes)
			}
			for _, o := range r.Objects {
				if o.Verdict != replay.Equal && !(gone && strings.Contains(o.Key, "policies/v000002")) {
					t.Errorf("step %d: %s %s: %s", step, o.Key, o.Verdict, o.Note)
				}
			}
		}
		if err := m.Store.Delete(t.Context(), m.Layout.Policy(2).Ref()); err != nil {
			t.Fatal(err)
		}
	}
}

// damagedKeys are those that a report names.
func damagedKeys(r replay.Report) []string {
	var out []string
	for _, o := range r.Damaged() {
		out = append(out, o.Key)
	}
	return out
}

// TestEveryFlipIsNamed: a bit of any object of a step, and that object alone.
func TestEveryFlipIsNamed(t *testing.T) {
	m := newMaker(t, map[string]string{"checkpoint.keep": "9"})
	m.makeSteps(t, 2)
	whole := runtest.Dump(t, m.Store)
	for _, o := range m.remade(t, m.Store, 2).Objects {
		for name, at := range map[string]int{"first": 0, "middle": len(whole[o.Key]) / 2} {
			if name == "middle" && path.Ext(o.Key) == ".json" {
				continue // it may be in a time
			}
			data := []byte(whole[o.Key])
			data[at] ^= 1
			broken := maps.Clone(whole)
			broken[o.Key] = string(data)
			r := m.remade(t, runtest.Fill(t, broken), 2)
			if got := damagedKeys(r); !slices.Equal(got, []string{o.Key}) {
				t.Errorf("%s byte of %s flipped: found %q", name, o.Key, got)
			}
		}
	}
}

// TestAbsentObjects are missing, unless the configuration deletes them in time.
func TestAbsentObjects(t *testing.T) {
	for keep, want := range map[string]replay.Verdict{"0": replay.Missing, "1": replay.Deleted} {
		m := newMaker(t, map[string]string{"checkpoint.keep_trajectories": keep, "checkpoint.keep": "9"})
		m.makeSteps(t, 2)
		key := m.Layout.Step(1).Group(m.Selected(t, 1, 1)[0])
		if err := m.Store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		r := m.remade(t, m.Store, 1)
		i := slices.IndexFunc(r.Objects, func(o replay.Object) bool { return o.Key == key })
		if i < 0 || r.Objects[i].Verdict != want || len(r.Damaged()) > 1 {
			t.Errorf("keep_trajectories %s: found %+v, want %s to be %s", keep, r.Objects, key, want)
		}
	}
}

// TestLostTrajectoriesAreKept: what the infrastructure lost does not come out again,
// and everything that followed from the loss does.
func TestLostTrajectoriesAreKept(t *testing.T) {
	m := newMaker(t, nil)
	key := m.Layout.Step(1).Group(m.Selected(t, 1, 1)[1])
	lose := func() {
		ts := runtest.ReadLines[rl.Trajectory](t, m.Store, key)
		ts[2].StopReason, ts[2].Err, ts[2].Reward = rl.StopInfraError, "sandbox unavailable", 0
		var lines strings.Builder
		for _, one := range ts {
			if err := json.NewEncoder(&lines).Encode(one); err != nil {
				t.Fatal(err)
			}
		}
		runtest.Put(t, m.Store, key, lines.String())
	}
	m.makeStep(t, 1, lose)
	for _, o := range m.remade(t, m.Store, 1).Objects {
		want := replay.Equal
		if o.Key == key {
			want = replay.Kept
		}
		if o.Verdict != want {
			t.Errorf("%s is %s (%s), want %s", o.Key, o.Verdict, o.Note, want)
		}
	}
}

// TestStepsThatCannotBeMadeAgain are the user's mistake.
func TestStepsThatCannotBeMadeAgain(t *testing.T) {
	m := newMaker(t, nil)
	m.makeSteps(t, 2)
	b := m.bench(t, m.Store)
	for step, want := range map[int]string{3: "has not made step 3", 7: "has the steps 1 to 6", 0: "has the steps"} {
		_, err := b.Step(t.Context(), "demo", step)
		runtest.WantFault(t, err, fault.InvalidConfig, want)
	}
	_, err := b.Step(t.Context(), "other", 1)
	runtest.WantFault(t, err, fault.InvalidConfig, `no run "other"`)
	m.Fork(t, "child", run.ForkFrom{RunID: "demo", From: run.FromLast}, nil)
	_, err = b.Step(t.Context(), "child", 2)
	runtest.WantFault(t, err, fault.InvalidConfig, "made by run demo")
}

// TestChoosingSteps: by number, by range, by a share that is the same for a seed.
func TestChoosingSteps(t *testing.T) {
	got, err := replay.ParseSteps([]string{"7", "2-4", "3"})
	if err != nil || !slices.Equal(got, []int{2, 3, 4, 7}) {
		t.Errorf("steps %v (%v)", got, err)
	}
	for _, bad := range []string{"", "x", "0", "4-2", "-1", "1-999999999"} {
		if _, err := replay.ParseSteps([]string{bad}); err == nil {
			t.Errorf("steps %q were taken", bad)
		}
	}
	if share, err := replay.ParseShare("1%"); err != nil || share != 0.01 {
		t.Errorf("share %v (%v)", share, err)
	}
	for _, bad := range []string{"", "0", "101%", "1.1", "NaN", "-1%", "%"} {
		if _, err := replay.ParseShare(bad); err == nil {
			t.Errorf("share %q was taken", bad)
		}
	}
	steps := make([]int, 300)
	for i := range steps {
		steps[i] = i + 1
	}
	a, b := replay.Sample(steps, 0.01, 1), replay.Sample(steps, 0.01, 2)
	if len(a) != 3 || !slices.Equal(a, replay.Sample(steps, 0.01, 1)) || slices.Equal(a, b) || len(replay.Sample(steps[:5], 0.01, 1)) != 1 {
		t.Errorf("chose %v and %v of 300 steps", a, b)
	}
	m := newMaker(t, nil)
	m.makeSteps(t, 3)
	if made, err := replay.Made(t.Context(), m.Store, "demo"); err != nil || !slices.Equal(made, []int{1, 2, 3}) {
		t.Errorf("made steps %v (%v)", made, err)
	}
}
