//go:build integration

package main_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"go.temporal.io/sdk/worker"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/inference"
	"temper/internal/learner"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/internal/temporalclient"
	"temper/sandbox/sandboxtest"
	"temper/workflows"
)

// controlCostKey asks for the measurement of this file. It gives the number of
// response tokens of each trajectory, for example 200:
//
//	TEMPER_MEASURE_CONTROL=200 go test -tags integration -count=1 -v -run ControlWorkerAtThePapersSize ./cmd/temper
const controlCostKey = "TEMPER_MEASURE_CONTROL"

// paperSteps is how many steps of the paper's size are made. The first one is not
// counted: it reads what is kept for all.
const paperSteps = 4

// What the control worker may take at 512 problems x 32 rollouts.
const (
	maxControlMemory = 64 << 20 // of the process, without the pages of the program's file
	maxControlReads  = 1 << 20  // a step
)

// idleTime is how long the worker is watched before it has anything to do.
const idleTime = 10 * time.Second

// TestControlWorkerAtThePapersSize makes steps of 512 problems x 32 rollouts by the
// real service with a control worker in a process of its own. An engine that knows
// the answers and a learner that is a hash stand for the devices.
func TestControlWorkerAtThePapersSize(t *testing.T) {
	tokens, err := strconv.Atoi(os.Getenv(controlCostKey))
	if err != nil {
		t.Skip("is a measurement: set " + controlCostKey + " to the tokens of a trajectory")
	}
	s := scatter(t)
	dir := t.TempDir()
	s.store = "file://" + dir
	s.role("control")
	pid := s.all[len(s.all)-1].cmd.Process.Pid
	store, err := fileblob.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	defer serveFakeDevices(t, s.temporal, store, tokens)()
	config := writePaperRun(t, tokens)
	idle := costOfProcess(t, pid)
	time.Sleep(idleTime)
	pace := float64(costOfProcess(t, pid).read-idle.read) / idleTime.Seconds() // of polls and of looks at /proc
	most := watchMemory(t, pid)
	submit := (&place{t: t}).launch("temper", s.command("run", "submit", config, "--run-id", "paper", "--wait")...)
	layout := artifact.Layout{RunID: "paper"}
	awaitStep(t, store, layout.StepLog(1))
	first, began := costOfProcess(t, pid), time.Now()
	awaitStep(t, store, layout.StepLog(paperSteps))
	last, took := costOfProcess(t, pid), time.Since(began)
	submit.end(0, 20*time.Minute)
	own := most()
	s.stop()
	batch, err := store.Stat(t.Context(), layout.Batch(paperSteps))
	if err != nil {
		t.Fatal(err)
	}
	all := float64(last.read-first.read) / (paperSteps - 1)
	read := int64(all - pace*took.Seconds()/(paperSteps-1))
	t.Logf("a step: %d bytes read by files and sockets, without the %.0f bytes a second of a worker that has nothing to do (%.0f in all); batch.json has %d bytes", read, pace, all, batch.Size)
	t.Logf("memory: resident %d bytes when ready, at most %d, of which at most %d are its own and not the program's file; processor time %.2f s a step",
		idle.peak, last.peak, own, (last.cpu-first.cpu)/(paperSteps-1))
	if read > maxControlReads || own > maxControlMemory {
		t.Errorf("a step reads %d bytes and the process has had %d of memory, want at most %d and %d", read, own, maxControlReads, maxControlMemory)
	}
}

// processCost is what a process has taken so far.
type processCost struct {
	read, peak int64   // bytes
	cpu        float64 // seconds
}

func costOfProcess(t *testing.T, pid int) processCost {
	t.Helper()
	return processCost{
		read: procNumber(t, pid, "io", `rchar: (\d+)`), peak: procNumber(t, pid, "status", `VmHWM:\s+(\d+) kB`) << 10,
		cpu: processorTimes(t, []int{pid})[0],
	}
}

// procNumber is a number in a file of /proc, -1 where it cannot be read.
func procNumber(t *testing.T, pid int, file, form string) int64 {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	m := regexp.MustCompile(form).FindSubmatch(data)
	if err != nil || m == nil {
		t.Errorf("/proc/%d/%s: no %s (%v)", pid, file, form, err)
		return -1
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

// watchMemory looks at the memory of a process that is not its program's file, until
// the returned function is called, which returns the most in bytes.
func watchMemory(t *testing.T, pid int) (most func() int64) {
	t.Helper()
	stop, largest := make(chan struct{}), make(chan int64)
	go func() {
		peak := int64(0)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-tick.C:
				peak = max(peak, procNumber(t, pid, "status", `RssAnon:\s+(\d+) kB`)<<10)
			case <-stop:
				tick.Stop()
				largest <- peak
				return
			}
		}
	}()
	return func() int64 { close(stop); return <-largest }
}

// writePaperRun writes a run of the paper's size, whose problems name their answers.
func writePaperRun(t *testing.T, tokens int) (config string) {
	t.Helper()
	dir := t.TempDir()
	var problems bytes.Buffer
	for i := range 1024 {
		fmt.Fprintf(&problems, `{"id":"dapo-math-%08d","env":"chase","level":1,"prompt":"k%d?","answer":"%d","fixture":"db = {}"}`+"\n", i, 1000+i, 1000+i)
	}
	text := fmt.Sprintf(`
name: paper
seed: 1
model: {hidden_size: 8, num_layers: 1, num_heads: 1, num_kv_heads: 1, head_dim: 8, intermediate_size: 8, max_context: %d}
tokenizer: {num_merges: 20}
sft: {data: {env: chase, levels: [1], num: 10}, batch_size: 4, steps: 1}
rl: {problems_per_step: 512, rollouts_per_problem: 32, group_size: 16}
stages: [{name: paper, data: {path: problems.jsonl}, max_response_tokens: %d, max_turns: 2, until: {steps: %d}}]
eval: {num_problems: 1}
checkpoint: {every_steps: 100}
`, tokens+200, tokens+50, paperSteps)
	config = filepath.Join(dir, "paper.yaml")
	for name, data := range map[string][]byte{config: []byte(text), filepath.Join(dir, "problems.jsonl"): problems.Bytes()} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return config
}

// serveFakeDevices serves the queues of trainer and rollouts until the end.
func serveFakeDevices(t *testing.T, temporal string, store blob.Store, tokens int) (stop func()) {
	t.Helper()
	c, err := temporalclient.Dial(t.Context(), temporalclient.Config{Address: temporal, Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	trainers := learner.NewService(learner.Config{Store: store, Now: time.Now, New: func(r *run.Loaded) (learner.Learner, error) {
		return &runtest.Chain{Fate: &runtest.Fate{}, Model: r.Model}, nil
	}})
	samplers := sampling.New(sampling.Config{
		Store: store, Executor: &sandboxtest.Fake{}, MaxConcurrent: 64, Now: time.Now,
		NewEngine: func(r *run.Loaded) (sampling.Engine, error) { return &knowing{run: r, length: tokens}, nil },
	})
	options := worker.Options{DisableWorkflowWorker: true, MaxConcurrentActivityExecutionSize: 1, MaxConcurrentActivityTaskPollers: 1}
	trainer, rollout := worker.New(c, workflows.QueueTrainer, options), worker.New(c, workflows.QueueRollout, options)
	trainer.RegisterActivity(&activities.Trainer{Learner: trainers})
	rollout.RegisterActivity(&activities.Rollouts{Sampling: samplers})
	for _, w := range []worker.Worker{trainer, rollout} {
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		trainer.Stop()
		rollout.Stop()
		trainers.Close(time.Second)
		samplers.Close()
		c.Close()
	}
}

// knowing is an engine without weights. It says many words and then, mostly, the
// number that the prompt asks for.
type knowing struct {
	run     *run.Loaded
	length  int
	version int64
}

var asked = regexp.MustCompile(`k(\d+)\?`)

// Generate implements inference.Engine.
func (k *knowing) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	tok := k.run.Format.Tokenizer()
	answer := "0"
	if m := asked.FindStringSubmatch(tok.Decode(req.Tokens)); m != nil && rl.Uniform(req.Seed, 1) < 0.6 {
		answer = m[1]
	}
	ending := append(tok.EncodeSpecial("<answer>"+answer+"</answer>"), k.run.Format.Stop()[0])
	word := tok.EncodeSpecial("x")[0]
	g := inference.Generation{Finish: rl.FinishStop, Version: k.version}
	for range max(0, min(k.length, req.MaxTokens)-len(ending)) {
		g.Tokens = append(g.Tokens, word)
	}
	g.Tokens = append(g.Tokens, ending...)
	for i := range g.Tokens {
		g.Logprobs = append(g.Logprobs, -float32(math.Abs(float64(rl.Uniform(req.Seed, len(req.Tokens)+i)))))
	}
	return g, ctx.Err()
}

// Release implements inference.Engine.
func (k *knowing) Release(string) {}

// Version implements inference.Engine.
func (k *knowing) Version() int64 { return k.version }

// MaxContext implements inference.Engine.
func (k *knowing) MaxContext() int { return k.run.Config.Model.MaxContext }

// Load implements inference.Loader.
func (k *knowing) Load(_ context.Context, _ blob.Ref, version int64) error {
	k.version = version
	return nil
}

// Close implements sampling.Engine.
func (k *knowing) Close() {}
