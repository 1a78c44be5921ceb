//go:build integration

package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/history"
	"temper/internal/run/artifact"
	"temper/internal/series"
)

// measureKey asks for the measurement of this file, which says something on a machine
// with two idle cores alone:
//
//	TEMPER_MEASURE_ROLLOUTS=1 nice -n -5 go test -tags integration -count=1 -v -run RolloutScaling ./cmd/temper
const measureKey = "TEMPER_MEASURE_ROLLOUTS"

// scalingConfig is a run in which nearly all work is sampling: a long stage of groups
// with few updates, and next to no evaluation.
const scalingConfig = `
name: scaling
seed: 1
model: {hidden_size: 256, num_layers: 4, num_heads: 8, num_kv_heads: 2, head_dim: 32, intermediate_size: 768, max_context: 192, initializer_range: 0.05}
tokenizer: {num_merges: 160}
sft: {data: {env: chase, levels: [1], num: 512}, batch_size: 16, steps: 20, optimizer: {lr: 3e-3}}
rl: {problems_per_step: 16, rollouts_per_problem: 16, group_size: 4, roc: {enabled: false}, optimizer: {lr: 1e-5}}
stages: [{name: long, data: {env: chase, levels: [1], num: 256}, max_response_tokens: 120, max_turns: 2, until: {steps: 8}}]
eval: {num_problems: 1}
checkpoint: {every_steps: 100}
`

// scaling is what one measurement gave.
type scaling struct {
	tokens float64
	// sampling is wall seconds of the steps without what the trainer took.
	sampling float64
	// critical is the processor seconds of the busiest rollout worker, which on idle
	// cores is the time that sampling takes: it hardly depends on who else runs.
	critical, total float64
}

// TestRolloutScaling compares the sampling of one rollout worker on one core with
// that of two on two, all else being the same.
func TestRolloutScaling(t *testing.T) {
	if os.Getenv(measureKey) == "" {
		t.Skip("is a measurement: set " + measureKey + "=1 on an idle machine")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("needs two cores")
	}
	one, two := measureScaling(t, 1), measureScaling(t, 2)
	if one.tokens != two.tokens {
		t.Errorf("%v tokens by one worker, %v by two: the runs differ", one.tokens, two.tokens)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("load average at the end %s", bytes.TrimSpace(load))
	for name, s := range map[string]scaling{"one worker": one, "two workers": two} {
		t.Logf("%s: %.0f tokens, %.1f s of steps without training (%.0f tokens/s); %.1f CPU s, %.1f of the busiest worker (%.0f tokens per critical CPU s)",
			name, s.tokens, s.sampling, s.tokens/s.sampling, s.total, s.critical, s.tokens/s.critical)
	}
	t.Logf("two against one: %.2f times the rate by the wall, %.2f by processor time", one.sampling/two.sampling, one.critical/two.critical)
}

// measureScaling makes the run with n rollout workers, each on a core of its own.
func measureScaling(t *testing.T, n int) scaling {
	t.Helper()
	s := scatter(t)
	dir := t.TempDir()
	s.store = "file://" + dir
	s.role("control", "--rollout-shards", strconv.Itoa(n))
	s.role("trainer")
	var pids []int
	t.Setenv("GOMAXPROCS", "1")
	for core := range n {
		s.role("rollout", "--concurrent-rollouts", "64")
		pid := s.all[len(s.all)-1].cmd.Process.Pid
		pin(t, pid, core)
		pids = append(pids, pid)
	}
	if err := os.Unsetenv("GOMAXPROCS"); err != nil { // t.Setenv puts it back
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "scaling.yaml")
	if err := os.WriteFile(config, []byte(scalingConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	submit := (&place{t: t}).launch("temper", s.command("run", "submit", config, "--run-id", "scaling", "--wait")...)
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	layout := artifact.Layout{RunID: "scaling"}
	awaitStep(t, store, layout.StepLog(1))
	before := processorTimes(t, pids)
	awaitStep(t, store, layout.StepLog(8))
	after := processorTimes(t, pids)
	submit.end(0, 20*time.Minute)
	s.stop()
	var out scaling
	for i := range pids {
		used := after[i] - before[i]
		out.total += used
		out.critical = max(out.critical, used)
	}
	r, err := history.Open(t.Context(), store, layout.RunID)
	if err != nil {
		t.Fatal(err)
	}
	records, err := r.Records(t.Context())
	if err != nil || len(records) != 8 {
		t.Fatalf("%d records (%v)", len(records), err)
	}
	for _, r := range records[1:] { // the first step compiles
		out.tokens += r.Metrics["perf/total_num_tokens"]
		out.sampling += r.Metrics[series.StepSeconds] - r.Metrics[series.TrainSeconds] - r.Metrics[series.SaveSeconds]
	}
	return out
}

func awaitStep(t *testing.T, store blob.Store, key string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, err := store.Stat(t.Context(), key)
		switch {
		case err == nil:
			return
		case !errors.Is(err, blob.ErrNotExist) || time.Now().After(end):
			t.Fatalf("%s: %v", key, err)
		}
	}
}

// pin binds all threads of a process to one core; those to come inherit it.
func pin(t *testing.T, pid, core int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	set.Set(core)
	for _, task := range tasks {
		tid, err := strconv.Atoi(task.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

// processorTimes is user and system seconds of processes.
func processorTimes(t *testing.T, pids []int) []float64 {
	t.Helper()
	const ticks = 100 // a second, on every Linux
	var out []float64
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		user, err1 := strconv.ParseFloat(string(fields[11]), 64)
		system, err2 := strconv.ParseFloat(string(fields[12]), 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		out = append(out, (user+system)/ticks)
	}
	return out
}
