package activities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/testsuite"

	"temper/activities"
	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/policy"
	"temper/internal/policy/policytest"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/internal/tokenizer"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

// house is a store with a run and the activities on fake ports.
type house struct {
	store   *memblob.Store
	layout  artifact.Layout
	plan    run.Plan
	run     run.Ref
	cfg     config.Run
	control *activities.Control
}

const testConfig = `
name: test
seed: 5
model: {hidden_size: 8, num_layers: 1, num_heads: 1, num_kv_heads: 1, head_dim: 8, intermediate_size: 8, max_context: 400}
tokenizer: {num_merges: 20}
sft: {data: {env: chase, levels: [1], num: 10}, batch_size: 4, steps: 4}
rl:
  problems_per_step: 3
  rollouts_per_problem: 6
  group_size: 4
  roc: {min_positive: 1, min_negative: 1}
stages:
  - {name: first, data: {env: chase, levels: [1], num: 7}, max_response_tokens: 120, max_turns: 3, until: {steps: 4}}
  - {name: second, data: {env: verbs, levels: [1, 2], num: 6}, max_response_tokens: 120, max_turns: 3, until: {steps: 2}, filter: {rollouts: 2}, reset_optimizer: true}
eval: {num_problems: 4}
checkpoint: {every_steps: 2, keep: 1, best: 0}
`

// asString writes a configuration as the JSON string that RunInput takes.
func asString(t testing.TB, yaml string) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(yaml)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// openRun runs OpenRun as an activity of a workflow execution that is the same
// for all calls.
func openRun(t testing.TB, c *activities.Control, in run.Input) (run.Plan, error) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(c)
	value, err := env.ExecuteActivity(c.OpenRun, in)
	if err != nil {
		return run.Plan{}, err
	}
	var plan run.Plan
	if err := value.Get(&plan); err != nil {
		t.Fatal(err)
	}
	return plan, nil
}

type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

// newHouse opens and prepares a run of the test configuration.
func newHouse(t testing.TB, set map[string]string) *house {
	t.Helper()
	return prepare(t, memblob.New(), "demo", set)
}

func prepare(t testing.TB, store *memblob.Store, runID string, set map[string]string) *house {
	t.Helper()
	return prepareConfig(t, store, runID, testConfig, set)
}

func prepareConfig(t testing.TB, store *memblob.Store, runID, cfg string, set map[string]string) *house {
	t.Helper()
	h := &house{store: store, layout: artifact.Layout{RunID: runID}, control: &activities.Control{Store: store}}
	in := run.Input{RunID: runID, Config: asString(t, cfg), Set: set}
	var err error
	if h.plan, err = openRun(t, h.control, in); err != nil {
		t.Fatal(err)
	}
	if h.cfg, err = run.LoadConfig(in); err != nil {
		t.Fatal(err)
	}
	h.run = run.Ref{RunID: runID, Config: h.plan.Config}
	if _, err := h.control.PrepareData(t.Context(), activities.PrepareDataInput{Run: h.run}); err != nil {
		t.Fatal(err)
	}
	return h
}

// selected is the problems of a step.
func (h *house) selected(t testing.TB, stage, step int) []string {
	t.Helper()
	out, err := h.control.SelectProblems(t.Context(), activities.SelectProblemsInput{
		Run: h.run, Stage: stage, Step: step, StageStep: step - h.plan.Stages[stage-1].FirstStep + 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.ProblemIDs
}

// problems reads a stored set.
func (h *house) problems(t testing.TB, key string) []rl.Problem {
	t.Helper()
	return readLines[rl.Problem](t, h.store, key)
}

func readLines[T any](t testing.TB, store blob.Store, key string) []T {
	t.Helper()
	data, err := blob.ReadKey(t.Context(), store, key)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	for dec := json.NewDecoder(bytes.NewReader(data)); dec.More(); {
		var v T
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// dump is the content of a store by key.
func dump(t testing.TB, store blob.Store) map[string]string {
	t.Helper()
	infos, err := store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, info := range infos {
		if strings.HasPrefix(info.Key, artifact.CatalogRoot+"/") { // an index with times in it
			continue
		}
		data, err := blob.ReadKey(t.Context(), store, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		out[info.Key] = string(data)
	}
	return out
}

// durable is a dump without what depends on when and by whom it was written and
// is not read as state: epochs and parents in manifests, the holder of the
// lease, announcements, shards that no manifest names.
func durable(t testing.TB, store blob.Store) map[string]string {
	t.Helper()
	all := dump(t, store)
	var manifests strings.Builder
	for key, data := range all {
		if strings.HasSuffix(key, "/manifest.json") {
			all[key] = provenance.ReplaceAllString(data, "")
			manifests.WriteString(data)
		}
		if strings.HasSuffix(key, "/head.json") {
			all[key] = lease.ReplaceAllString(data, "")
		}
	}
	for key := range all {
		if strings.Contains(key, "/pending/") || strings.HasPrefix(key, "cas/") && !strings.Contains(manifests.String(), key) {
			delete(all, key)
		}
	}
	return all
}

var (
	provenance = regexp.MustCompile(`(?s)"written": \{.*\}`)
	lease      = regexp.MustCompile(`(?s)"epoch": .*"step"|"sha256": "\w+",\s+"size": \d+`)
)

// fill makes a store with the given content.
func fill(t testing.TB, content map[string]string) *memblob.Store {
	t.Helper()
	store := memblob.New()
	for key, data := range content {
		put(t, store, key, data)
	}
	return store
}

func put(t testing.TB, store blob.Store, key, data string) {
	t.Helper()
	if _, err := blob.PutBytes(t.Context(), store, key, []byte(data), blob.Always); err != nil {
		t.Fatal(err)
	}
}

// policyRef is a policy that scripted engines can load.
func policyRef(version int64) run.Policy {
	return run.Policy{Version: version, Ref: blob.RefOf(fmt.Sprintf("policies/%d", version), nil)}
}

// scripted is a policy that looks the answer up and tells it, or makes one of
// the mistakes that a policy makes.
type scripted struct {
	*policytest.Script
	loads  []int64
	closed bool
	// fail is the error of Load.
	fail error
	// knows decides whether a rollout answers right.
	knows func(prompt string, req policy.Request) bool
}

func (s *scripted) Load(_ context.Context, _ blob.Ref, version int64) error {
	if s.fail != nil {
		return s.fail
	}
	if version != s.Serving {
		s.loads = append(s.loads, version)
	}
	s.Serving = version
	return nil
}

func (s *scripted) Close() { s.closed = true }

// Shares of the scripted policy's rollouts: of the first calls that are broken,
// and of the answers that are right.
const (
	brokenShare = 0.3
	rightShare  = 0.6
)

// words are how a policy answers and calls.
type words struct{ answer, call func(string) string }

var (
	smallWords = words{
		func(s string) string { return chat.TokenAnswer + s + chat.TokenAnswerEnd },
		func(code string) string { return chat.RenderCall(chat.Call{Name: chat.ToolName, Code: code}) },
	}
	rstar2Words = words{
		func(s string) string {
			return "</reason>" + chat.TokenAnswer + `\boxed{` + s + "}" + chat.TokenAnswerEnd
		},
		func(code string) string {
			return "</reason>" + chat.RenderCall(chat.Call{Name: chat.ToolExecutePython, Code: code, Stdin: "7"})
		},
	}
)

// newScripted plays a policy that knows the answers of the run's problems.
func (h *house) newScripted(t testing.TB) *scripted {
	t.Helper()
	data, err := blob.ReadKey(context.Background(), h.store, h.layout.Tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	words := smallWords
	if h.cfg.Rollout.ChatTemplate == config.TemplateRStar2 {
		words = rstar2Words
	}
	answers := map[string]string{}
	for i := range h.plan.Stages {
		for _, key := range []string{h.layout.TrainProblems(i + 1), h.layout.HeldOutProblems(i + 1)} {
			for _, p := range h.problems(t, key) {
				answers[p.Prompt] = p.Answer
			}
		}
	}
	end, _ := tok.Special(chat.TokenEnd)
	s := &scripted{knows: func(_ string, req policy.Request) bool { return rl.Uniform(seedOf(req), 1) < rightShare }}
	reply := func(req policy.Request) []int32 {
		text := tok.Decode(req.Tokens)
		say := "I do not know"
		for prompt, answer := range answers {
			if strings.Contains(text, prompt) && s.knows(prompt, req) {
				say = words.answer(answer)
			}
		}
		if !strings.Contains(text, chat.TokenToolResult) {
			say = words.call("print(1)")
			if rl.Uniform(seedOf(req), 2) < brokenShare {
				say = words.call("print(")
			}
		}
		return append(tok.EncodeSpecial(say), end)
	}
	s.Script = &policytest.Script{Reply: reply, Serving: -1, Context: h.cfg.Model.MaxContext}
	return s
}

// seedOf makes greedy generations a function of the prompt.
func seedOf(req policy.Request) uint64 {
	if req.Temperature > 0 {
		return req.Seed
	}
	return uint64(len(req.Tokens))
}

// python answers like the sandbox: a program that is cut short raises.
func python(req sandbox.Request) (sandbox.Result, error) {
	if strings.HasSuffix(req.Code, "(") {
		return sandbox.Result{Status: sandbox.StatusError, Stderr: "SyntaxError"}, nil
	}
	return sandbox.Result{Status: sandbox.StatusOK, Stdout: "1\n"}, nil
}

// rollouts serves every run with a scripted engine of its own.
func (h *house) rollouts(t testing.TB) (*activities.Rollouts, *scripted) {
	engine := h.newScripted(t)
	return &activities.Rollouts{Sampling: sampling.New(sampling.Config{
		Store: h.store, Executor: &sandboxtest.Fake{Func: python}, MaxConcurrent: 4, Now: still,
		NewEngine: func(*run.Loaded) (sampling.Engine, error) { return engine, nil },
	})}, engine
}

// still is a clock that stands, so that stored results hold no measured time.
func still() time.Time { return time.Unix(1000, 0).UTC() }
