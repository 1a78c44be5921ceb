//go:build integration

package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
)

// retrainer drives one schedule of tiny re-trainings.
type retrainer struct {
	*place
	t    *testing.T
	data string
}

func (r *retrainer) create(gate string) string {
	r.t.Helper()
	return r.temper(0, "schedule", "create", "nightly", "--config", ciConfig, "--data", r.data, "--stage", "hops-1",
		"--cron", "CRON_TZ=Europe/Berlin 0 3 * * *", "--gate", gate, "--pause-on-failure",
		"--set", "sft.steps=20", "--set", "stages[0].until.steps=1", "--set", "stages[1].until.steps=1", "--set", "stages[2].until.steps=1",
		"--set", "eval.num_problems=4")
}

// problems writes a file of new problems.
func (r *retrainer) problems(name, seed string) {
	r.t.Helper()
	lines, err := exec.CommandContext(r.t.Context(), filepath.Join(bin, "temper"), "data", "generate", "--num", "12", "--seed", seed).Output()
	if err == nil {
		err = os.WriteFile(filepath.Join(r.data, name), lines, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// retrain triggers a re-training and waits for its event of a kind.
func (r *retrainer) retrain(kind string) string {
	r.t.Helper()
	before := strings.Count(r.show(), " "+kind+" ")
	r.temper(0, "schedule", "trigger", "nightly")
	deadline := time.Now().Add(runTimeout)
	for {
		text := r.show()
		if strings.Count(text, " "+kind+" ") > before {
			return text
		}
		if time.Now().After(deadline) || strings.Contains(text, " fail ") {
			r.t.Fatalf("no event %q:\n%s", kind, text)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func (r *retrainer) show() string { return r.temper(0, "schedule", "show", "nightly") }

func (r *retrainer) good() (good struct {
	RunID string `json:"run_id"`
	From  string `json:"from"`
}) {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.home, "store", "schedules", "nightly", "good.json"))
	if err == nil {
		err = json.Unmarshal(data, &good)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return good
}

// TestScheduledRetraining: two re-trainings in sequence, the second from what the
// first published; nothing new is said so; a gate that the third does not pass
// leaves the pointer, which outlives the schedule; the schedule works from a plain
// Temporal client.
func TestScheduledRetraining(t *testing.T) {
	r := &retrainer{place: newPlace(t), t: t, data: t.TempDir()}
	up := r.start("up")
	up.await("^submit a run with", time.Minute)
	r.problems("a.jsonl", "11")
	if out := r.create("accuracy>=-1"); !strings.Contains(out, "schedule nightly made, next at ") || !strings.Contains(out, "T02:00:00Z") && !strings.Contains(out, "T01:00:00Z") {
		t.Errorf("create:\n%s", out)
	}
	if out := r.temper(2, "schedule", "create", "nightly", "--config", ciConfig, "--data", r.data, "--every", "6h"); !strings.Contains(out, "schedule nightly exists already") {
		t.Errorf("second schedule of the id:\n%s", out)
	}
	if out := r.show(); !strings.Contains(out, "when         CRON_TZ=Europe/Berlin 0 3 * * *\n") || !strings.Contains(out, "ci.yaml --set eval.num_problems=4 --set") {
		t.Errorf("show:\n%s", out)
	}
	r.retrain("publish")
	first := r.good()
	if first.From != "" {
		t.Errorf("first good policy %+v, want one from the recipe's start", first)
	}
	r.retrain("nothing")

	r.problems("b.jsonl", "12")
	r.retrain("publish")
	second := r.good()
	if second.From != first.RunID+"@3" {
		t.Errorf("second good policy %+v, want one from %s@3", second, first.RunID)
	}
	r.sameWeights(first.RunID, second.RunID)

	r.temper(0, "schedule", "delete", "nightly")
	r.create("accuracy>=+2")
	r.problems("c.jsonl", "13")
	if text := r.retrain("refuse"); !strings.Contains(text, "good policy  "+second.RunID+"@3") || !strings.Contains(text, "want at least 2") {
		t.Errorf("after the refusal:\n%s", text)
	}
	r.plainClient()
	if out := r.temper(0, "schedule", "show"); !strings.Contains(out, "nightly") || !strings.Contains(out, "refuse: ") {
		t.Errorf("list:\n%s", out)
	}
	up.signal(syscall.SIGINT)
	up.end(0, 40*time.Second)
	noOrphans(t, 5*time.Second)
}

// sameWeights: policy 0 of the second run is the last policy of the first.
func (r *retrainer) sameWeights(first, second string) {
	r.t.Helper()
	var weights []string
	for _, path := range []string{first + "/policies/v000003", second + "/policies/v000000"} {
		data, err := os.ReadFile(filepath.Join(r.home, "store", "runs", path, "model.safetensors"))
		if err != nil {
			r.t.Fatal(err)
		}
		weights = append(weights, string(data))
	}
	if weights[0] != weights[1] {
		r.t.Error("the second run does not start from the bits of the first one's last policy")
	}
}

// plainClient pauses and reads the schedule as any Temporal client does.
func (r *retrainer) plainClient() {
	r.t.Helper()
	c, err := client.Dial(client.Options{HostPort: r.temporal})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	h := c.ScheduleClient().GetHandle(r.t.Context(), "nightly")
	if err := h.Pause(r.t.Context(), client.SchedulePauseOptions{Note: "from elsewhere"}); err != nil {
		r.t.Fatal(err)
	}
	if out := r.show(); !strings.Contains(out, "schedule     nightly, paused") || !strings.Contains(out, "from elsewhere") {
		r.t.Errorf("show:\n%s", out)
	}
}

// TestWorsePolicyIsRefused ruins a good policy by a learning rate that is far too
// high, under the gate that a schedule has when it states none.
func TestWorsePolicyIsRefused(t *testing.T) {
	r := &retrainer{place: newPlace(t), t: t, data: t.TempDir()}
	up := r.start("up")
	up.await("^submit a run with", time.Minute)
	r.problems("a.jsonl", "11")
	recipe := filepath.Join(t.TempDir(), "recipe.yaml")
	text := strings.NewReplacer("steps: 160", "steps: 260", "num: 2048", "num: 4096").Replace(string(readAll(t, ciConfig)))
	writeAll(t, recipe, []byte(text))
	r.temper(0, "schedule", "create", "nightly", "--config", recipe, "--data", r.data, "--stage", "hops-1", "--every", "24h", "--set", "eval.num_problems=6",
		"--set", "stages[0].until.steps=1", "--set", "stages[1].until.steps=1", "--set", "stages[2].until.steps=1")
	r.retrain("publish")
	first := r.good()

	ruin := strings.Replace(text, "lr: 4e-4", "lr: 1e-1", 1)
	if ruin == text {
		t.Fatal("the recipe has another learning rate")
	}
	writeAll(t, recipe, []byte(ruin))
	r.problems("b.jsonl", "12")
	shown := r.retrain("refuse")
	if r.good() != first || !regexp.MustCompile(`refused: accuracy 0(\.\d+)?, want at least 0\.\d+ \(last good 0\.\d+\)`).MatchString(shown) {
		t.Errorf("last good policy %+v, was %+v:\n%s", r.good(), first, shown)
	}
	up.signal(syscall.SIGINT)
	up.end(0, 40*time.Second)
}
