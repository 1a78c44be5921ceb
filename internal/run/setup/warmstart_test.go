package setup_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
	"temper/internal/run/setup"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

// newTrainer trains for real.
func newTrainer(store blob.Store) *learner.Service {
	return learner.NewService(learner.Config{Store: store, Now: runtest.Still, New: func(r *run.Loaded) (learner.Learner, error) {
		return trainer.New(trainer.Config{Model: r.Model, MicrobatchTokens: 1024, Temperature: 1, Loss: r.Config.RL.Loss})
	}})
}

// TestRunStartsFromAPolicyOfAnotherRun: policy 0 of the child is the parent's
// policy bit for bit, with its tokenizer and its files, also when the parent is
// gone after the data was prepared.
func TestRunStartsFromAPolicyOfAnotherRun(t *testing.T) {
	parent := newStart(t, runtest.WriteModel(t, runtest.StartModel(), nil))
	learn(t, parent)
	child := runtest.PrepareConfig(t, parent.Store, "child", runtest.StartRecipe, map[string]string{"model.run": "demo@0", "sft.steps": "0"})
	want := map[string]string{}
	for key, data := range runtest.Dump(t, parent.Store) {
		if name, ok := strings.CutPrefix(key, parent.Layout.Policy(0).Dir()+"/"); ok && name != "policy.json" {
			want[name] = data
		}
		if strings.HasPrefix(key, parent.Layout.Dir()+"/") {
			if err := parent.Store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	policy, err := newTrainer(child.Store).Publish(t.Context(), learner.PublishInput{Run: child.Ref})
	if err != nil || policy.Version != 0 {
		t.Fatalf("policy %+v, error %v", policy, err)
	}
	got := map[string]string{}
	for name := range want {
		data, err := blob.ReadKey(t.Context(), child.Store, child.Layout.Policy(0).Dir()+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(data)
	}
	if diff := cmp.Diff(got, want); diff != "" || len(want) != 5 {
		t.Errorf("%d files: got -, want +\n%s", len(want), diff)
	}
	ready, _, err := artifact.Lookup[run.Prepared](t.Context(), child.Store, child.Layout.Data().Ready())
	if err != nil || ready.Dialogues != 0 || ready.VocabSize != runtest.StartModel().VocabSize {
		t.Errorf("prepared %+v, error %v: want no dialogues and the policy's vocabulary", ready, err)
	}
}

// TestForkOfARunWithAStartStandsAlone: the fork has the model, the files and the
// bits of its parent when that is gone.
func TestForkOfARunWithAStartStandsAlone(t *testing.T) {
	parent := newStart(t, runtest.WriteModel(t, runtest.StartModel(), nil))
	learn(t, parent)
	child := parent.Fork(t, "again", run.ForkFrom{RunID: "demo"}, nil)
	want := map[string]string{}
	for key, data := range runtest.Dump(t, parent.Store) {
		if name, ok := strings.CutPrefix(key, parent.Layout.Policy(0).Dir()+"/"); ok && name != "policy.json" {
			want[name] = data
		}
		if strings.HasPrefix(key, parent.Layout.Dir()+"/") {
			if err := parent.Store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := newTrainer(child.Store).Publish(t.Context(), learner.PublishInput{Run: child.Ref}); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		got, err := blob.ReadKey(t.Context(), child.Store, child.Layout.Policy(0).Dir()+"/"+name)
		if err != nil || string(got) != want[name] {
			t.Errorf("%s is not the parent's (%v)", name, err)
		}
	}
	ready, _, err := artifact.Lookup[run.Prepared](t.Context(), child.Store, child.Layout.Data().Ready())
	if err != nil || ready.Start == nil {
		t.Fatalf("prepared %+v, error %v", ready, err)
	}
	if p, err := checkpoint.LoadWeights(t.Context(), child.Store, ready.Start.Policy); err != nil || len(p.Weights) == 0 || len(p.Files) != len(runtest.Descriptions) {
		t.Errorf("the fork's start: %d tensors, %d files, error %v", len(p.Weights), len(p.Files), err)
	}
}

// TestWarmStartsThatCannotBe are refused when the run is opened.
func TestWarmStartsThatCannotBe(t *testing.T) {
	parent := newStart(t, runtest.WriteModel(t, runtest.StartModel(), nil))
	learn(t, parent)
	for name, c := range map[string]struct {
		set  map[string]string
		want string
	}{
		"no such run":        {map[string]string{"model.run": "nobody@0"}, "model.run: is nobody@0, but"},
		"no such policy":     {map[string]string{"model.run": "demo@7"}, "model.run: is demo@7, but run demo has no policy 7: it has 0, the nearest is 0"},
		"no version":         {map[string]string{"model.run": "demo"}, `model.run: is "demo", want RUN@POLICY`},
		"two starts":         {map[string]string{"model.run": "demo@0", "model.path": "/x"}, "model.run: is demo@0 beside model.path (/x)"},
		"stated dimension":   {map[string]string{"model.run": "demo@0", "model.num_layers": "3"}, "model.num_layers: is 3, but model.run (demo@0) has its own"},
		"too many positions": {map[string]string{"model.run": "demo@0", "model.max_context": "513"}, "model.max_context: is 513, but the model in demo@0 has 512 positions"},
		"format untaught":    {map[string]string{"model.path": "", "sft.steps": "0"}, "sft.steps: is 0, want at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runtest.Open(t, parent.Store, run.Input{RunID: "child", Config: runtest.Text(t, runtest.StartRecipe), Set: c.set})
			runtest.WantFault(t, err, fault.InvalidConfig, c.want)
			if _, err := parent.Store.Stat(t.Context(), artifact.Layout{RunID: "child"}.Plan()); err == nil {
				t.Error("the run id is taken")
			}
		})
	}
}

// TestProblemsFromTheStore: a stage takes its problems from a blob as it does
// from a file; one that is not there is an error of the data.
func TestProblemsFromTheStore(t *testing.T) {
	store := runtest.Fill(t, map[string]string{"sets/a.jsonl": runtest.ProblemLines(8)})
	h := runtest.Prepare(t, store, "demo", map[string]string{"stages[0].data.path": config.StorePath("sets/a.jsonl")})
	if n, m := len(h.Problems(t, h.Layout.Stage(1).Train())), len(h.Problems(t, h.Layout.Stage(1).HeldOut())); n != 4 || m != 4 {
		t.Errorf("%d problems to train on and %d held out, want 4 and 4", n, m)
	}
	empty := memblob.New()
	plan, err := runtest.Open(t, empty, run.Input{
		RunID: "x", Config: runtest.Text(t, runtest.Recipe), Set: map[string]string{"stages[0].data.path": config.StorePath("sets/none.jsonl")},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = setup.Prepare(t.Context(), empty, run.Ref{RunID: plan.RunID, Config: plan.Config}, func(string) {})
	runtest.WantFault(t, err, fault.Dataset, "sets/none.jsonl")
}

// TestPolicyThatVanishesBeforeTheCopy: a warm start that was accepted, and whose
// policy was deleted before its data was prepared, says which there are.
func TestPolicyThatVanishesBeforeTheCopy(t *testing.T) {
	parent := newStart(t, runtest.WriteModel(t, runtest.StartModel(), nil))
	learn(t, parent)
	plan, err := runtest.Open(t, parent.Store, run.Input{
		RunID: "child", Config: runtest.Text(t, runtest.StartRecipe), Set: map[string]string{"model.run": "demo@0", "sft.steps": "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range runtest.Dump(t, parent.Store) {
		if strings.HasPrefix(key, parent.Layout.Policy(0).Dir()) {
			if err := parent.Store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	runtest.Put(t, parent.Store, parent.Layout.Policy(4).Ref(), "{}")
	_, err = setup.Prepare(t.Context(), parent.Store, run.Ref{RunID: plan.RunID, Config: plan.Config}, func(string) {})
	runtest.WantFault(t, err, fault.InvalidConfig, "model.run: is demo@0, but run demo has no policy 0: it has 4, the nearest is 4")
}
