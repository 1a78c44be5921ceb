package retrain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/retrain"
	"temper/internal/run/runtest"
)

// nightly is a schedule on a folder of files.
type nightly struct {
	*testing.T
	store blob.Store
	dir   string
	input retrain.Input
}

func newNightly(t *testing.T, store blob.Store) *nightly {
	n := &nightly{T: t, store: store, dir: t.TempDir()}
	n.input = retrain.Input{ID: "nightly", Config: runtest.Text(t, runtest.Recipe), Data: []string{n.dir}, Stages: []string{"first"}}
	return n
}

// file writes problems from to to-1 into a file of the folder.
func (n *nightly) file(name string, from, to int) {
	n.Helper()
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `{"id": "p%d", "env": "chase", "prompt": "k%d?", "answer": "1"}`+"\n", i, i)
	}
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(b.String()), 0o600); err != nil {
		n.Fatal(err)
	}
}

func (n *nightly) plan(runID string) retrain.Plan {
	n.Helper()
	plan, err := retrain.MakePlan(n.Context(), n.store, retrain.PlanInput{Retrain: n.input, RunID: runID})
	if err != nil {
		n.Fatal(err)
	}
	return plan
}

// train stands for a run: it leaves what JudgeRetrain reads.
func (n *nightly) train(plan retrain.Plan, before, after float64) run.Policy {
	n.Helper()
	layout := artifact.Layout{RunID: plan.RunID}
	policy := run.Policy{Version: 6, Ref: blob.RefOf(layout.Policy(6).Dir(), nil)}
	made := run.Plan{RunID: plan.RunID}
	for i, name := range []string{"first", "second"} {
		made.Stages = append(made.Stages, run.Stage{Index: i + 1, Name: name})
		for key, accuracy := range map[string]float64{layout.Eval(i+1, "before", 0).Result(): before, layout.Eval(i+1, []string{"final", "after"}[i], 6).Result(): after} {
			n.put(key, run.Evaluation{NumProblems: 4, Accuracy: accuracy})
		}
	}
	n.put(layout.Plan(), run.Opened{Plan: made, Format: run.Format})
	return policy
}

func (n *nightly) put(key string, v any) {
	n.Helper()
	if _, err := blob.PutJSON(n.Context(), n.store, key, v, blob.Always); err != nil {
		n.Fatal(err)
	}
}

func (n *nightly) judgement(plan retrain.Plan, policy run.Policy) retrain.JudgeInput {
	return retrain.JudgeInput{ID: "nightly", Gate: n.input.Gate, Plan: plan, Policy: policy, Now: time.Unix(1e9, 0).UTC()}
}

func (n *nightly) judge(plan retrain.Plan, policy run.Policy) retrain.Outcome {
	n.Helper()
	out, err := retrain.Judge(n.Context(), n.store, n.judgement(plan, policy))
	if err != nil {
		n.Fatal(err)
	}
	return out
}

func (n *nightly) good() (retrain.GoodPolicy, bool) {
	n.Helper()
	good, ok, err := retrain.ReadGood(n.Context(), n.store, "nightly")
	if err != nil {
		n.Fatal(err)
	}
	return good, ok
}

// TestRetrainingsInSequence: the first starts as the recipe says, the second from
// what the first published, on a snapshot of all data; without anything new, or
// with what was refused, there is nothing to do.
func TestRetrainingsInSequence(t *testing.T) {
	n := newNightly(t, memblob.New())
	n.input.Gate = []string{"accuracy>=+0.1"}
	if got := n.plan("n1").Nothing; !strings.HasPrefix(got, "no problems at "+n.dir) {
		t.Errorf("empty folder: %q", got)
	}
	n.file("a.jsonl", 0, 4)
	if got, want := n.plan("n1").Nothing, "4 problems leave 2 to train on, rl.problems_per_step is 3"; got != want {
		t.Errorf("too few: %q, want %q", got, want)
	}
	n.file("b.jsonl", 3, 12) // p3 is the same in both
	n.file("empty.jsonl", 0, 0)
	first := n.plan("n1")
	if first.NumProblems != 12 || first.From != "" || first.Nothing != "" {
		t.Fatalf("first plan %+v, want 12 problems from the recipe's start", first)
	}
	n.checkConfig(first, "", 4)
	if out := n.judge(first, n.train(first, 0, 0.5)); out.Outcome != retrain.Published {
		t.Fatalf("first: %+v", out)
	}
	if got := n.plan("n2").Nothing; got != "nothing new: run n1 was published on the same 12 problems and recipe" {
		t.Errorf("same data: %q", got)
	}
	n.file("c.jsonl", 12, 14)
	second := n.plan("n2")
	n.checkConfig(second, "n1@6", 0)
	out := n.judge(second, n.train(second, 0.5, 0.55))
	if out.Outcome != retrain.Refused || out.Reason != "accuracy 0.55, want at least 0.6 (last good 0.5)" {
		t.Errorf("second: %s: %s", out.Outcome, out.Reason)
	}
	if good, _ := n.good(); good.RunID != "n1" {
		t.Errorf("last good policy of %s, want n1", good.RunID)
	}
	if got := n.plan("n3").Nothing; !strings.HasPrefix(got, "nothing new: run n2 was refused") {
		t.Errorf("refused data: %q", got)
	}
	n.input.Set = map[string]string{"seed": "9"}
	if got := n.plan("n3"); got.Nothing != "" || got.From != "n1@6" {
		t.Errorf("another recipe: %+v", got)
	}
}

// TestWorsePolicyIsRefused under the gate that holds when none is stated.
func TestWorsePolicyIsRefused(t *testing.T) {
	n := newNightly(t, memblob.New())
	n.input.Gate = nil
	n.file("a.jsonl", 0, 12)
	first := n.plan("n1")
	if out := n.judge(first, n.train(first, 0, 0.5)); out.Outcome != retrain.Published {
		t.Fatalf("first: %+v", out)
	}
	n.file("b.jsonl", 12, 14)
	second := n.plan("n2")
	out := n.judge(second, n.train(second, 0.5, 0.48))
	if good, _ := n.good(); out.Outcome != retrain.Refused || good.RunID != "n1" || out.Reason != "accuracy 0.48, want at least 0.5 (last good 0.5)" {
		t.Errorf("%s: %s; last good policy of %s", out.Outcome, out.Reason, good.RunID)
	}
}

// checkConfig looks at the configuration of a planned run and at the data it names.
func (n *nightly) checkConfig(plan retrain.Plan, from string, sft int) {
	n.Helper()
	cfg, err := config.Load("plan", []byte(plan.Config), nil)
	if err != nil {
		n.Fatal(err)
	}
	if cfg.Model.Run != from || cfg.SFT.Steps != sft || plan.From != from {
		n.Errorf("run starts from %q with %d supervised updates, want %q and %d", cfg.Model.Run, cfg.SFT.Steps, from, sft)
	}
	key, stored := config.StoreKey(cfg.Stages[0].Data.Path)
	if !stored || key != plan.Data.Key || cfg.Stages[1].Data.Path != "" {
		n.Errorf("stages read %q and %q, want %s and generated problems", cfg.Stages[0].Data.Path, cfg.Stages[1].Data.Path, plan.Data.Key)
	}
	data, err := blob.ReadRef(n.Context(), n.store, plan.Data)
	if err != nil || strings.Count(string(data), "\n") != plan.NumProblems {
		n.Errorf("snapshot of %d lines (%v), want %d", strings.Count(string(data), "\n"), err, plan.NumProblems)
	}
}

// TestRetryKeepsThePlan, although a file came meanwhile.
func TestRetryKeepsThePlan(t *testing.T) {
	n := newNightly(t, memblob.New())
	n.file("a.jsonl", 0, 9)
	first := n.plan("n1")
	n.file("b.jsonl", 9, 12)
	if diff := cmp.Diff(n.plan("n1"), first); diff != "" {
		t.Errorf("second attempt: got -, want +\n%s", diff)
	}
	if n.plan("n2").NumProblems != 12 {
		t.Error("the next re-training does not see the new file")
	}
}

// TestJudgementDiesAnywhere: whatever is written when a judgement dies, its retry
// ends with the same store as one that nothing happened to.
func TestJudgementDiesAnywhere(t *testing.T) {
	judged := func(f *runtest.Fate) (map[string]string, error) {
		store := memblob.New()
		n := newNightly(t, store)
		n.input.Data = []string{"store:sets/"}
		runtest.Put(t, store, "sets/a.jsonl", runtest.ProblemLines(9))
		plan := n.plan("n1")
		in := n.judgement(plan, n.train(plan, 0, 0.5))
		_, err := retrain.Judge(t.Context(), runtest.Mortal{Store: store, Fate: f}, in)
		if f.Dead {
			f.Dead = false
			in.Now = in.Now.Add(time.Hour) // a reset of the workflow asks at another time
			_, retry := retrain.Judge(t.Context(), n.store, in)
			err = errors.Join(map[bool]error{true: errors.New("death was not noticed")}[err == nil], retry)
		}
		return runtest.Dump(t, store), err
	}
	want, err := judged(&runtest.Fate{})
	if err != nil {
		t.Fatal(err)
	}
	for at := 1; ; at++ {
		f := &runtest.Fate{At: at}
		got, err := judged(f)
		if err != nil {
			t.Fatalf("death %d: %v", at, err)
		}
		if len(f.Names) < at {
			if at < 5 {
				t.Fatalf("only %d moments", at)
			}
			return
		}
		if len(got) != len(want) || !strings.Contains(got["schedules/nightly/good.json"], `"run_id": "n1"`) ||
			!strings.Contains(got["schedules/nightly/outcomes/n1.json"], retrain.Published) {
			t.Errorf("death %s: %d keys, want %d; good %s", f.Names[at-1], len(got), len(want), got["schedules/nightly/good.json"])
		}
	}
}

// TestPointerThatMovedMeanwhile stays where it is, and the data is not spent.
func TestPointerThatMovedMeanwhile(t *testing.T) {
	n := newNightly(t, memblob.New())
	n.file("a.jsonl", 0, 9)
	slow, fast := n.plan("slow"), n.plan("fast")
	n.judge(fast, n.train(fast, 0, 0.5))
	if out := n.judge(slow, n.train(slow, 0, 0.9)); out.Outcome != retrain.Overtaken || !strings.Contains(out.Reason, "became fast@6") {
		t.Errorf("outcome %s: %s", out.Outcome, out.Reason)
	}
	if good, _ := n.good(); good.RunID != "fast" {
		t.Errorf("last good policy of %s, want fast", good.RunID)
	}
}

func TestStoppedRunIsNotJudged(t *testing.T) {
	n := newNightly(t, memblob.New())
	n.file("a.jsonl", 0, 9)
	plan := n.plan("n1")
	in := n.judgement(plan, run.Policy{Version: 2})
	in.Stopped = true
	out, err := retrain.Judge(t.Context(), n.store, in)
	if _, ok := n.good(); err != nil || ok || out.Outcome != retrain.Stopped {
		t.Errorf("outcome %+v, error %v", out, err)
	}
	if got := n.plan("n2"); got.Nothing != "" {
		t.Errorf("the data is spent: %s", got.Nothing)
	}
}

// TestBadSchedules names every mistake at once.
func TestBadSchedules(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.jsonl": `{"id": "p", "env": "chase", "prompt": "1?", "answer": "1"}` + "\n",
		"b.jsonl": `{"id": "p", "env": "chase", "prompt": "2?", "answer": "1"}` + "\n",
		"c.jsonl": "{\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		input retrain.Input
		want  []string
	}{
		"everything": {retrain.Input{
			ID: "a/b", Config: runtest.Text(t, runtest.Recipe), Set: map[string]string{"rl.group_size": "99"},
			Stages: []string{"third"}, Gate: []string{"fun>=1", "third/accuracy>=1"},
		}, []string{`schedule id "a/b"`, "rl.group_size: is 99", "data is empty", `stages: no stage "third" in the recipe, want one of first, second`,
			`unknown metric "fun"`, `no stage "third"`}},
		"relative paths": {retrain.Input{ID: "a", Config: json.RawMessage(`"recipe.yaml"`), Data: []string{"new/*.jsonl"}},
			[]string{`config: "recipe.yaml" is relative`, `data: "new/*.jsonl" is relative`}},
		"bad pattern": {retrain.Input{ID: "a", Config: runtest.Text(t, runtest.Recipe), Data: []string{"/x/[.jsonl"}}, []string{`"/x/[.jsonl": syntax error in pattern`}},
		"no match":    {retrain.Input{ID: "a", Config: runtest.Text(t, runtest.Recipe), Data: []string{dir + "/none*"}}, []string{"no file matches " + dir + "/none*"}},
		"bad files": {retrain.Input{ID: "a", Config: runtest.Text(t, runtest.Recipe), Data: []string{dir}},
			[]string{`b.jsonl: problem "p" differs from the one in ` + dir + "/a.jsonl", "c.jsonl:1: "}},
		"no recipe": {retrain.Input{ID: "a", Config: json.RawMessage(`"/none/recipe.yaml"`), Data: []string{dir}}, []string{"/none/recipe.yaml: no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := retrain.Check(t.Context(), memblob.New(), c.input, true)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nlacks %s", err, want)
				}
			}
		})
	}
}

// TestInputTakesWhatJSONHas: settings may be numbers, booleans and lists, and what is
// misspelled is named.
func TestInputTakesWhatJSONHas(t *testing.T) {
	var in retrain.Input
	text := `{"id": "a", "set": {"seed": 3, "rl.roc.enabled": false, "rollout.stop": ["a"]}, "gates": ["accuracy>=0"]}`
	if err := json.Unmarshal([]byte(text), &in); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(run.Settings{"seed": "3", "rl.roc.enabled": "false", "rollout.stop": `["a"]`}, in.Set); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	runtest.WantFault(t, in.CheckKeys(), fault.InvalidConfig, "gates: unknown key; did you mean gate?")
}
