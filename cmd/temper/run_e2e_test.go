//go:build integration

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
)

const (
	ciConfig = "../../configs/ci.yaml"
	// ciSteps is the number of RL steps of ciConfig.
	ciSteps = 7
	// runTimeout is generous: the pipeline's machine is busy.
	runTimeout = 4 * time.Minute
)

// TestWholeRun makes the pipeline's run and looks at everything it leaves.
func TestWholeRun(t *testing.T) {
	p := newPlace(t)
	up := p.start("up", "--run", ciConfig, "--run-id", "whole", "--seed", "3", "--exit")
	up.end(0, runTimeout)
	noOrphans(t, 5*time.Second)
	folder := filepath.Join(p.home, "store", "runs", "whole")
	if got, want := lastLine(up.text()), filepath.Join(folder, "summary.json"); got != want {
		t.Errorf("last line %q, want %q", got, want)
	}
	checkSummary(t, filepath.Join(folder, "summary.json"))
	checkOnPolicy(t, filepath.Join(folder, "metrics.jsonl"))
	for _, pattern := range []string{
		"config.yaml", "plan.json", "tokenizer.json", "metrics.jsonl", "data/*-train.jsonl", "data/*-heldout.jsonl", "data/*-filter.json",
		"steps/000007/step.json", "steps/000007/train.json", "steps/000007/trajectories/*.jsonl", "checkpoints/*/manifest.json",
		"policies/v000007/model.safetensors", "policies/v000007/config.json", "evals/stage-03-after-*.json", "events/*.json",
	} {
		if found, err := filepath.Glob(filepath.Join(folder, pattern)); err != nil || len(found) == 0 {
			t.Errorf("nothing at %s (%v)", pattern, err)
		}
	}
	if out := p.temper(0, "run", "list"); !strings.Contains(out, "whole") || !strings.Contains(out, "done") {
		t.Errorf("run list:\n%s", out)
	}
	if out := p.temper(0, "run", "show", "whole"); !strings.Contains(out, "step 7/7") || !strings.Contains(out, "hops-1") {
		t.Errorf("run show:\n%s", out)
	}
	if out := p.temper(0, "run", "show", "whole", "--step", "3"); !regexp.MustCompile(`engine and rollouts +(0\.[0-9]*[1-9]|[1-9])`).MatchString(out) ||
		!regexp.MustCompile(`sandbox +(0\.[0-9]*[1-9]|[1-9])`).MatchString(out) || !regexp.MustCompile(`passes of the engine +[1-9]`).MatchString(out) {
		t.Errorf("run show --step:\n%s", out)
	}
	if out := p.temper(2, "up", "--run", ciConfig, "--run-id", "whole"); !strings.Contains(out, "exists already") {
		t.Errorf("second run of the same id:\n%s", out)
	}
	checkEval(t, p)
	checkServe(t, p)
	checkChat(t, p)
}

// checkOnPolicy: in every step the trainer finds the engine's log-probabilities
// again to the last bit.
func checkOnPolicy(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for line := range strings.Lines(string(data)) {
		var step struct{ Metrics map[string]float64 }
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatal(err)
		}
		if _, updated := step.Metrics["actor/ppo_kl"]; !updated {
			continue
		}
		steps++
		for _, key := range []string{"actor/ppo_kl", "training/rollout_actor_logprob_diff_mean", "training/rollout_actor_logprob_diff_max"} {
			if v, ok := step.Metrics[key]; !ok || v != 0 {
				t.Errorf("step %d: %s is %v, want exactly 0", steps, key, v)
			}
		}
	}
	if steps != ciSteps {
		t.Errorf("metrics of %d updates, want %d", steps, ciSteps)
	}
}

func checkSummary(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"run_id", "seed", "wall_seconds", "peak_rss_bytes", "steps", "stages", "time_split"} {
		if _, ok := s[key]; !ok {
			t.Errorf("summary lacks %s", key)
		}
	}
	if s["run_id"] != "whole" || s["seed"] != 3.0 || s["steps"] != float64(ciSteps) {
		t.Errorf("run_id %v, seed %v, steps %v; want whole, 3, %d", s["run_id"], s["seed"], s["steps"], ciSteps)
	}
	if rss, ok := s["peak_rss_bytes"].(float64); !ok || rss < 50<<20 || rss > 4<<30 {
		t.Errorf("peak_rss_bytes %v is not that of four services", s["peak_rss_bytes"])
	}
	stages, ok := s["stages"].([]any)
	if !ok || len(stages) != 3 {
		t.Fatalf("stages %v, want three", s["stages"])
	}
	for _, st := range stages {
		for _, key := range []string{"name", "accuracy_before", "accuracy_after", "tool_error_rate_before", "tool_error_rate_after", "mean_tokens", "mean_turns"} {
			if v, ok := st.(map[string]any)[key]; !ok || v == nil {
				t.Errorf("stage %v lacks %s", st, key)
			}
		}
	}
	split, _ := s["time_split"].(map[string]any)
	sum := 0.0
	for _, key := range []string{"sample", "tool", "train", "other"} {
		v, ok := split[key].(float64)
		if !ok || v < 0 {
			t.Errorf("time_split.%s is %v", key, split[key])
		}
		sum += v
	}
	if wall, _ := s["wall_seconds"].(float64); sum < 0.8*wall || sum > 1.2*wall {
		t.Errorf("the time split adds up to %.1f s of %.1f s", sum, wall)
	}
}

// checkEval evaluates the finished run on a service that starts anew.
func checkEval(t *testing.T, p *place) {
	t.Helper()
	up := p.start("up")
	up.await("^submit a run with", time.Minute)
	var out struct {
		Stages []struct {
			PolicyVersion int64 `json:"policy_version"`
			NumProblems   int   `json:"num_problems"`
		} `json:"stages"`
	}
	if err := json.Unmarshal([]byte(p.temper(0, "eval", "whole", "--json")), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Stages) != 3 || out.Stages[0].PolicyVersion != ciSteps || out.Stages[0].NumProblems == 0 {
		t.Errorf("evaluation %+v, want three stages of policy %d", out.Stages, ciSteps)
	}
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
	noOrphans(t, 5*time.Second)
}

// TestKilledServices: neither a trainer nor a sandbox nor a server that dies in
// the middle of a run ends it, no step is lost, and the run has the same bits
// as one that nobody touched.
func TestKilledServices(t *testing.T) {
	p := newPlace(t)
	up := p.start("up", "--run", ciConfig, "--run-id", "tough", "--exit", "--set", "stages[0].until.steps=12")
	up.await(`^step +2/`, runTimeout)
	up.killService("trainer")
	up.await(`^service trainer: healthy \(pid \d+\), restart 1 after: signal: killed`, time.Minute)
	up.await(`^step +4/`, runTimeout)
	up.killService("sandbox")
	up.await(`^service sandbox: healthy \(pid \d+\), restart 1 after: signal: killed`, time.Minute)
	up.await(`^step +7/`, runTimeout)
	up.killService("control")
	up.await(`^step +9/`, runTimeout)
	up.killService("temporal")
	up.end(0, runTimeout)
	noOrphans(t, 5*time.Second)
	records, err := filepath.Glob(filepath.Join(p.home, "store/runs/tough/steps/*/step.json"))
	if want := ciSteps - 3 + 12; err != nil || len(records) != want {
		t.Errorf("%d step records (%v), want %d", len(records), err, want)
	}
	calm := newPlace(t)
	calm.start("up", "--run", ciConfig, "--run-id", "tough", "--exit", "--set", "stages[0].until.steps=12").end(0, runTimeout)
	sameFiles(t, calm.home, p.home, "store/runs/tough/policies/*/model.safetensors")
	sameFiles(t, calm.home, p.home, "store/runs/tough/steps/*/trajectories/*.jsonl")
}

// sameFiles compares the files that match the pattern below two folders.
func sameFiles(t *testing.T, want, got, pattern string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(want, pattern))
	if err != nil || len(files) < ciSteps {
		t.Fatalf("%d files match %s (%v)", len(files), pattern, err)
	}
	for _, file := range files {
		a, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(strings.Replace(file, want, got, 1))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs after the kills (%v)", strings.TrimPrefix(file, want), err)
		}
	}
}

// TestInterruptedUp: whether a person or the kernel ends the service, nothing
// of it stays behind, and the run goes on when it is started again.
func TestInterruptedUp(t *testing.T) {
	p := newPlace(t)
	up := p.start("up", "--run", ciConfig, "--run-id", "patient", "--set", "stages[0].until.steps=10")
	up.await(`^step +2/`, runTimeout)
	if tree := descendants(os.Getpid()); len(tree) < 6 { // up, its four services, and what the sandbox keeps
		t.Errorf("the check for orphans sees only\n%s", strings.Join(tree, "\n"))
	}
	up.signal(syscall.SIGINT)
	up.end(130, 40*time.Second)
	noOrphans(t, time.Second)

	up = p.start("up")
	up.await(`^run patient goes on: temper run follow patient`, time.Minute)
	follow := p.start("run", "follow", "patient")
	follow.await(`^step +5/`, runTimeout)
	up.signal(syscall.SIGKILL)
	up.end(-1, 10*time.Second)
	up = p.start("up") // at once: children of the killed one may still hold their ports
	follow.signal(syscall.SIGINT)
	follow.end(130, 20*time.Second)
	up.await(`^run patient goes on`, time.Minute)
	if out := p.temper(0, "run", "follow", "patient"); lastLine(out) != filepath.Join(p.home, "store/runs/patient/summary.json") {
		t.Errorf("run follow ends with %q", lastLine(out))
	}
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
	noOrphans(t, time.Second)
}

// TestSteering drives runs by the command line, one of them started by a client
// that knows nothing but names and JSON.
func TestSteering(t *testing.T) {
	p := newPlace(t)
	up := p.start("up")
	up.await("^submit a run with", time.Minute)
	startBare(t, p)
	follow := p.start("run", "follow", "bare-run")
	follow.await(`^step +2/`, runTimeout)
	if out := p.temper(2, "run", "submit", ciConfig, "--run-id", "bare-run"); !strings.Contains(out, "bare-run") {
		t.Errorf("second run of the same id:\n%s", out)
	}
	p.temper(0, "run", "pause", "bare-run", "--reason", "lunch")
	follow.await(`(?i)^pause.*lunch`, 30*time.Second)
	status := p.temper(0, "run", "status", "bare-run", "--json")
	if !strings.Contains(status, `"paused"`) || !strings.Contains(status, "lunch") {
		t.Errorf("status of the paused run:\n%s", status)
	}
	steps := strings.Count(follow.text(), "\nstep ")
	time.Sleep(2 * time.Second)
	if more := strings.Count(follow.text(), "\nstep "); more > steps {
		t.Errorf("the paused run made %d steps", more-steps)
	}
	p.temper(0, "run", "resume", "bare-run")
	follow.await(`^step +6/`, runTimeout)
	p.temper(0, "run", "stop", "bare-run", "--reason", "enough")
	follow.end(0, time.Minute)
	if out := follow.text(); !strings.Contains(out, "stopped before its last step") {
		t.Errorf("the stopped run ends without saying so:\n%s", out)
	}
	if out := p.temper(2, "run", "stop", "bare-run"); !strings.Contains(out, "bare-run") {
		t.Errorf("stop of an ended run:\n%s", out)
	}
	if out := p.temper(2, "run", "status", "nobody"); !strings.Contains(out, `"nobody"`) {
		t.Errorf("status of no run:\n%s", out)
	}
	up.signal(syscall.SIGINT)
	up.end(0, 30*time.Second)
	noOrphans(t, 2*time.Second)
}

// startBare starts a run as the plain temporal command would: the name of the
// type, the queue and raw JSON; the workflow id is the client's own.
func startBare(t *testing.T, p *place) {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: p.temporal})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	path, err := filepath.Abs(ciConfig)
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(map[string]any{"config": path, "set": map[string]string{"stages[0].until.steps": "300"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "bare-run", TaskQueue: "temper"}, "RLRun", json.RawMessage(input))
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnreachableSandbox runs the roles one by one, as an operator of several
// machines would: a run says what it waits for, and goes on when it is there.
func TestUnreachableSandbox(t *testing.T) {
	p := newPlace(t)
	_, port, err := net.SplitHostPort(p.temporal)
	if err != nil {
		t.Fatal(err)
	}
	server := p.launch("temporald", "--db", filepath.Join(p.home, "temporal.db"), "--port", port, "--ui-port", "0")
	server.await(`"ready":true`, time.Minute)
	worker, trainer := p.start("role", "control"), p.start("role", "trainer")
	submit := p.start("run", "submit", ciConfig, "--wait")
	submit.await(`^retrying \w+: no process polls temper-rollout; is temper role rollout running\?`, runTimeout)
	rollout := p.start("role", "rollout")
	submit.await(`^retrying \w+: .*sandbox.*`+regexp.QuoteMeta(p.sandbox), runTimeout)
	sandbox := p.launch("temper", "role", "sandbox", "--listen", p.sandbox)
	submit.end(0, runTimeout)
	if last := lastLine(submit.text()); !strings.HasSuffix(last, "summary.json") {
		t.Errorf("last line %q, want the path of the summary", last)
	}
	for _, r := range []*running{rollout, trainer, worker, sandbox, server} {
		r.signal(syscall.SIGTERM)
		r.end(0, 30*time.Second)
	}
	noOrphans(t, time.Second)
}

// TestRunWithEverySwitchOfPasses makes the pipeline's run once more, with
// sequences packed, matrices multiplied in bfloat16 and layers computed again.
func TestRunWithEverySwitchOfPasses(t *testing.T) {
	p := newPlace(t)
	p.start("up", "--run", ciConfig, "--run-id", "switches", "--seed", "3", "--exit",
		"--set", "rl.pack=true", "--set", "model.compute=bfloat16", "--set", "model.remat=true").end(0, runTimeout)
	noOrphans(t, 5*time.Second)
	folder := filepath.Join(p.home, "store", "runs", "switches")
	if _, err := os.Stat(filepath.Join(folder, "policies", fmt.Sprintf("v%06d", ciSteps), "model.safetensors")); err != nil {
		t.Error(err)
	}
	config, err := os.ReadFile(filepath.Join(folder, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"pack: true", "compute: bfloat16", "remat: true"} {
		if !strings.Contains(string(config), key) {
			t.Errorf("the run's configuration lacks %q", key)
		}
	}
}
