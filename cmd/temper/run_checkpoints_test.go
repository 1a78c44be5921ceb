package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/testsuite"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/cli"
	"temper/internal/history"
	"temper/internal/learner"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/trainer"
	"temper/trainer/weights/hf"
)

const savedConfig = `
name: test
seed: 5
model: {hidden_size: 8, num_layers: 1, num_heads: 1, num_kv_heads: 1, head_dim: 8, intermediate_size: 8, max_context: 400}
tokenizer: {num_merges: 20}
sft: {data: {env: chase, levels: [1], num: 10}, batch_size: 4, steps: 2}
rl: {problems_per_step: 3, rollouts_per_problem: 6, group_size: 4, roc: {min_positive: 1, min_negative: 1}}
stages: [{name: only, data: {env: chase, levels: [1], num: 7}, max_response_tokens: 120, max_turns: 3, until: {steps: 9}}]
eval: {num_problems: 4}
checkpoint: {every_steps: 1, keep: 2}
`

// savedRun is a home with a run of two SFT updates and three RL steps, each with
// a checkpoint; the steps' batches are empty. It returns the store's folder.
func savedRun(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("TEMPER_HOME", home)
	t.Setenv("TEMPER_STORE", "")
	dir := filepath.Join(home, "store")
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	control := &activities.Control{Store: store}
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(control)
	text, err := json.Marshal(savedConfig)
	if err != nil {
		t.Fatal(err)
	}
	value, err := env.ExecuteActivity(control.OpenRun, run.Input{RunID: "demo", Config: text})
	if err != nil {
		t.Fatal(err)
	}
	var plan run.Plan
	if err := value.Get(&plan); err != nil {
		t.Fatal(err)
	}
	ref := run.Ref{RunID: plan.RunID, Config: plan.Config}
	if _, err := control.PrepareData(t.Context(), activities.PrepareDataInput{Run: ref}); err != nil {
		t.Fatal(err)
	}
	tr := &activities.Trainer{Learner: learner.NewService(learner.Config{Store: store, Now: time.Now, Background: func(task func()) { task() },
		New: func(r *run.Loaded) (learner.Learner, error) {
			return trainer.New(trainer.Config{Model: r.Model, MicrobatchTokens: 1024, Temperature: 1, Loss: r.Config.RL.Loss})
		}})}
	if _, err := tr.TrainSFT(t.Context(), activities.TrainSFTInput{Run: ref, To: 2, Save: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.PublishPolicy(t.Context(), activities.PublishInput{Run: ref}); err != nil {
		t.Fatal(err)
	}
	layout := artifact.Layout{RunID: "demo"}
	for step := 1; step <= 3; step++ {
		if _, err := blob.PutJSON(t.Context(), store, layout.Step(step).BatchStats(), run.BuiltBatch{}, blob.Always); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.TrainStep(t.Context(), activities.TrainStepInput{Run: ref, Step: step, Save: true}); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestExportLoads: an export in f32 has the bits of the published policy, one in
// bf16 half the bytes, and both are whole for temper model.
func TestExportLoads(t *testing.T) {
	dir := savedRun(t)
	want := output(t, "model", "logits", filepath.Join(dir, "runs/demo/policies/v000000"), "--ids", "1,2,3", "--all")
	bytes := map[string]int64{}
	for name, flags := range map[string][]string{
		"newest": nil, "last": {"--step", "last"}, "step": {"--step", "3"}, "sft": {"--step", "sft"}, "policy": {"--policy-version", "0"}, "bf16": {"--step", "0", "--dtype", "bfloat16"},
	} {
		out := filepath.Join(t.TempDir(), "new", "out")
		if name != "bf16" {
			flags = append(flags, "--dtype", "f32")
		}
		if text := output(t, append([]string{"run", "export", "demo", out}, flags...)...); !strings.Contains(text, out) {
			t.Errorf("%s: printed %q", name, text)
		}
		var report hf.Report
		if err := json.Unmarshal([]byte(output(t, "model", "inspect", out, "--json")), &report); err != nil {
			t.Fatal(err)
		}
		if len(report.Problems)+len(report.Notes) > 0 || report.Tokenizer.Template != "chat_template.jinja" || report.Tokenizer.EOS != "<|im_end|>" {
			t.Errorf("%s: report %+v, want no complaint", name, report)
		}
		info, err := os.Stat(filepath.Join(out, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		bytes[name] = info.Size()
		got := output(t, "model", "logits", out, "--ids", "1,2,3", "--all")
		if same := got == want; same != (name != "bf16") {
			t.Errorf("%s: equal to the published policy: %v", name, same)
		}
		left, err := os.ReadDir(filepath.Dir(out))
		if err != nil || len(left) != 1 {
			t.Errorf("%s: %d entries beside the export (%v)", name, len(left), err)
		}
	}
	if bytes["bf16"] > bytes["sft"]*6/10 {
		t.Errorf("bf16 takes %d bytes of %d", bytes["bf16"], bytes["sft"])
	}
}

// TestCheckpointCommands: what is listed, pinned and refused, by the steps that
// every other command counts in.
func TestCheckpointCommands(t *testing.T) {
	dir := savedRun(t)
	list := func() map[string]string {
		t.Helper()
		var rows []history.Checkpoint
		if err := json.Unmarshal([]byte(output(t, "run", "checkpoints", "demo", "--json")), &rows); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, r := range rows {
			if r.Bytes == 0 || r.Cursor != r.Step+2 || r.Epoch < 1 {
				t.Errorf("row %+v", r)
			}
			out[string(rune('0'+r.Step))] = r.Kept
		}
		return out
	}
	if got := list(); len(got) != 3 || got["0"] != "end of SFT" || got["2"] != "one of the newest 2" || got["3"] == "" {
		t.Errorf("listed %v", got)
	}
	if text := output(t, "run", "checkpoints", "demo"); !strings.Contains(text, "STEP") || !strings.Contains(text, "sft 2/2") {
		t.Errorf("printed\n%s", text)
	}
	if text := output(t, "run", "checkpoints", "demo", "--pin", "3", "--reason", "good"); text != "checkpoint of step 3 is kept: pinned: good\n" {
		t.Errorf("pin printed %q", text)
	}
	output(t, "run", "checkpoints", "demo", "--pin", "sft")
	if text := output(t, "run", "checkpoints", "demo", "--unpin", "3"); text != "checkpoint of step 3 is kept: one of the newest 2\n" {
		t.Errorf("unpin printed %q", text)
	}
	output(t, "run", "checkpoints", "demo", "--unpin", "0")
	manifest := filepath.Join(dir, "runs/demo/checkpoints/step-000004/manifest.json")
	if err := os.WriteFile(manifest, []byte(`{"format":2,`), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := output(t, "run", "checkpoints", "demo"); !strings.Contains(text, "damaged: ") {
		t.Errorf("a truncated manifest is not told:\n%s", text)
	}
	if err := os.RemoveAll(filepath.Join(dir, "runs/demo/steps")); err != nil { // nobody knows what a policy earned
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		`is "x", want the number of a step`:                        {"run", "checkpoints", "demo", "--unpin", "x"},
		"run demo has no complete checkpoint of step 7":            {"run", "checkpoints", "demo", "--pin", "7"},
		"run demo has no checkpoint of step 1: name one of 0, 2, ": {"run", "export", "demo", filepath.Join(t.TempDir(), "x"), "--step", "1"},
		"run demo has no policy 9: it has 0-3, the nearest is 3":   {"run", "export", "demo", filepath.Join(t.TempDir(), "x"), "--policy-version", "9"},
		"run demo has no policy 8: it has 0-3, the nearest is 3":   {"eval", "demo", "--policy-version", "8"},
		"none is known to be best":                                 {"run", "export", "demo", filepath.Join(t.TempDir(), "x"), "--step", "best"},
		full + ": want an empty directory or none":                 {"run", "export", "demo", full},
		`dtype "int4"`:    {"run", "export", "demo", filepath.Join(t.TempDir(), "x"), "--dtype", "int4"},
		`no run "nobody"`: {"run", "export", "nobody", filepath.Join(t.TempDir(), "x")},
		"--step and --policy-version exclude each other": {"run", "export", "demo", filepath.Join(t.TempDir(), "x"), "--step", "best", "--policy-version", "1"},
	} {
		var stdout, stderr bytes.Buffer
		if code := execute(args, &stdout, &stderr); code != cli.ExitUser || !strings.Contains(stderr.String(), want) {
			t.Errorf("%v: exit code %d, %q; want 2 and %q", args, code, stderr.String(), want)
		}
	}
}

// TestStoreGC: garbage that is old enough goes, a checkpoint's shards never.
func TestStoreGC(t *testing.T) {
	dir := savedRun(t)
	garbage := filepath.Join(dir, "cas/ab", strings.Repeat("ab", 32)+".safetensors")
	if err := os.MkdirAll(filepath.Dir(garbage), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, age := range []time.Duration{time.Minute, 3 * time.Hour} {
		if err := os.WriteFile(garbage, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(garbage, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
		old := age > time.Hour
		if text := output(t, "store", "gc", "--dry-run"); strings.Contains(text, "would delete 1 ") != old {
			t.Errorf("age %v: dry run printed %q", age, text)
		}
		if _, err := os.Stat(garbage); err != nil {
			t.Fatalf("a dry run deleted: %v", err)
		}
		if text := output(t, "store", "gc"); strings.Contains(text, "; deleted 1 ") != old {
			t.Errorf("age %v: printed %q", age, text)
		}
		if _, err := os.Stat(garbage); os.IsNotExist(err) != old {
			t.Errorf("age %v: garbage: %v", age, err)
		}
	}
	output(t, "run", "export", "demo", filepath.Join(t.TempDir(), "x"), "--step", "2")
}

// TestStoreVerify: all is well, and then a bit of a shard is not.
func TestStoreVerify(t *testing.T) {
	dir := savedRun(t)
	if text := output(t, "store", "verify"); !strings.HasPrefix(text, "3 checkpoints, ") || !strings.Contains(text, "; 0 damaged\nrun demo has no chain") {
		t.Errorf("printed %q", text)
	}
	shards, err := filepath.Glob(filepath.Join(dir, "cas/*/*.safetensors"))
	if err != nil || len(shards) == 0 {
		t.Fatalf("shards %v, error %v", shards, err)
	}
	data, err := os.ReadFile(shards[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-1] ^= 1
	if err := os.WriteFile(shards[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := execute([]string{"store", "verify", "demo"}, &stdout, &stderr)
	if code == 0 || !strings.Contains(stderr.String(), "1 objects are damaged") {
		t.Errorf("exit code %d, %q", code, stderr.String())
	}
	for _, want := range []string{filepath.Base(shards[0]) + ": sha256 ", "  is part of runs/demo/checkpoints/step-", "; 1 damaged\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("printed %q, want %q in it", stdout.String(), want)
		}
	}
	if code := execute([]string{"store", "verify", "nobody"}, &stdout, &stderr); code != cli.ExitUser {
		t.Errorf("an unknown run: exit code %d", code)
	}
}
