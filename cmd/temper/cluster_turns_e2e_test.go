//go:build integration

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/proc/testbin"
	"temper/jobs/nomadtest"
)

// scaleKey is the variable with the number of sandbox nodes that the load of the test asks for; the
// pipeline's is two.
const scaleKey = "TEMPER_SCALE_NODES"

func scaleNodes(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(scaleKey))
	if err != nil {
		n = 2
	}
	return n
}

// gangOfTwo asks for every made GPU of both nodes.
const gangOfTwo = `{"trainer": {"count": 1, "memory_mib": 512, "pool": "gpu", "devices": {"amd/gpu": 8}},
 "rollout": {"count": 1, "memory_mib": 512, "pool": "gpu", "devices": {"amd/gpu/MI300X": 8}}}`

// takeTurns has two runs want the room of one gang, while calls come in for the sandbox. The more urgent
// one gets it, loses its gateway and its sandbox, has a node drained in mid-step, and goes on under another
// version of control, gateway and sandbox. It wants the bits of a run of before, every call answered, and the
// sandbox as small as before.
func (o *onNomad) takeTurns(reference string) {
	o.t.Helper()
	o.agents.Await("16 made GPUs", func() error {
		out := o.cluster(0, "status")
		if len(regexp.MustCompile(`gpu-\d +gpu +ready +amd/gpu/MI300X 0/8 `).FindAllString(out, -1)) != 2 {
			return fmt.Errorf("status:\n%s", out)
		}
		return nil
	})
	calm := o.submit("calm", "--placement", gangOfTwo)
	calm.await(`^step +1/`, 2*runTimeout)
	load := o.load()
	urgent := o.submit("urgent", "--placement", gangOfTwo, "--priority", "1")
	urgent.await(`^step +1/`, 2*runTimeout)
	o.t.Logf("the urgent run's gang of two ran %v after the last member of the other had ended", o.admission("calm", "urgent"))
	if out := o.cluster(0, "status"); !regexp.MustCompile(`trainer-urgent +urgent +\S+ +1/1`).MatchString(out) {
		o.t.Errorf("status without the workers of a run:\n%s", out)
	}
	o.devicesAreBound("trainer-urgent")
	o.killTasks("e2e-gateway")
	o.killTasks("e2e-sandbox")
	urgent.await(`^step +2/`, 2*runTimeout)
	o.drainInStep("urgent")
	o.roll()
	urgent.end(0, 2*runTimeout)
	calm.end(0, 2*runTimeout)
	want := lastShards(o.t, o.store(), reference)
	for _, run := range []string{"urgent", "calm"} {
		if diff := cmp.Diff(lastShards(o.t, o.store(), run), want); diff != "" {
			o.t.Errorf("the last checkpoint of %s (-got +want):\n%s", run, diff)
		}
		o.agents.Await("the workers of "+run+" to end", func() error {
			if n := len(o.agents.Running("trainer-"+run)) + len(o.agents.Running("rollout-"+run)); n > 0 {
				return fmt.Errorf("%d still run", n)
			}
			return nil
		})
	}
	if out := o.cluster(0, "logs", "urgent"); !strings.Contains(out, "trainer") || !strings.Contains(out, `"level"`) {
		o.t.Errorf("logs of a run:\n%s", out)
	}
	o.loadIsAnswered(load)
}

// load puts calls on the gateway at a rate that keeps the nodes busy that the test wants.
func (o *onNomad) load() *running {
	o.t.Helper()
	program := filepath.Join(o.data, "wait.py")
	writeAll(o.t, program, []byte("import time\ntime.sleep(1.2)\nprint(7)\n"))
	// Four slots a node, of which 70 % are to be busy.
	rate := 2.8 * (float64(scaleNodes(o.t)) - 0.5) / 1.2
	return o.calls("--program", program, "--want", "7", "--rate", fmt.Sprintf("%.2f", rate), "--duration", "60s", "--patience", "2m")
}

// calls has a client of the environment call the gateway.
func (o *onNomad) calls(args ...string) *running {
	o.t.Helper()
	address := ""
	for _, kv := range o.env {
		if value, ok := strings.CutPrefix(kv, "TEMPER_SANDBOX_ADDRESS="); ok {
			address = value
		}
	}
	if err := testbin.BuildBench("../..", bin); err != nil {
		o.t.Fatal(err)
	}
	return o.launchWith(o.env, "temper-bench", append([]string{"sandbox", "--api", "client", "--url", address, "--json"}, args...)...)
}

// loadIsAnswered wants each call answered once and right, and the sandbox small again.
func (o *onNomad) loadIsAnswered(load *running) {
	o.t.Helper()
	load.end(0, 5*time.Minute)
	var f struct {
		Calls, Wrong, Lost, Resent int
		P50                        time.Duration `json:"p50_ns"`
		P99                        time.Duration `json:"p99_ns"`
		Max                        time.Duration `json:"max_ns"`
		Failure                    string
	}
	if err := json.Unmarshal([]byte(load.text()), &f); err != nil || f.Calls < 100 {
		o.t.Fatalf("figures of the load: %v\n%s", err, load.text())
	}
	if f.Wrong > 0 || f.Lost > 0 {
		o.t.Errorf("%d calls are wrong, %d lost: %s", f.Wrong, f.Lost, f.Failure)
	}
	counts := []int64{}
	o.agents.Await("one sandbox node again", func() error {
		if n := len(o.agents.Running("e2e-sandbox")); n != 1 {
			return fmt.Errorf("%d run", n)
		}
		return nil
	})
	state, _, err := o.agents.API.Jobs().ScaleStatus("e2e-sandbox", nil)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, e := range slices.Backward(state.TaskGroups["sandbox"].Events) {
		if e.Count != nil {
			counts = append(counts, *e.Count)
		}
		if e.Count != nil && (e.Message == "" || e.Meta["slots"] == nil) {
			o.t.Errorf("scaling without a reason or figures: %s", nomadtest.JSON(e))
		}
	}
	if len(counts) == 0 || slices.Max(counts) < 2 {
		o.t.Errorf("the sandbox was scaled to %v, want more than one node", counts)
	}
	o.t.Logf("load: %d calls, %d wrong, %d lost, %d sent again, p50 %v, p99 %v, max %v; sandbox nodes 1 -> %v",
		f.Calls, f.Wrong, f.Lost, f.Resent, f.P50.Round(time.Millisecond), f.P99.Round(time.Millisecond), f.Max.Round(time.Millisecond), counts)
}

// admission is the time from the end of the last member of one run to the start of the last of
// another, by the clocks of the agents.
func (o *onNomad) admission(before, after string) time.Duration {
	o.t.Helper()
	times := func(run string) (started, ended time.Time) {
		for _, role := range []string{"trainer-", "rollout-"} {
			for _, a := range o.agents.Allocations(role + run) {
				for _, s := range a.TaskStates {
					if s.StartedAt.After(started) {
						started = s.StartedAt
					}
					if s.FinishedAt.After(ended) {
						ended = s.FinishedAt
					}
				}
			}
		}
		return started, ended
	}
	_, ended := times(before)
	started, _ := times(after)
	return started.Sub(ended).Round(10 * time.Millisecond)
}

// devicesAreBound looks at which GPUs a process was given, and in which order.
func (o *onNomad) devicesAreBound(job string) {
	o.t.Helper()
	for _, a := range o.agents.Running(job) {
		want := "ROCR_VISIBLE_DEVICES=" + strings.Join(o.gpus[a.NodeName].IDs, ",") + "\x00"
		pids := nomadtest.Pids(a.ID)
		if len(pids) == 0 {
			o.t.Fatalf("%s has no process", a.Name)
		}
		for _, pid := range pids {
			env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if err == nil && !strings.Contains(string(env), want) {
				o.t.Errorf("process %d of %s is not bound to %s:\n%q", pid, a.Name, want, env)
			}
		}
	}
}

// killTasks kills every process of a job, as the kernel would that runs out of memory.
func (o *onNomad) killTasks(job string) {
	o.t.Helper()
	killed := 0
	for _, a := range o.agents.Running(job) {
		for _, pid := range nomadtest.Pids(a.ID) {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed++
			}
		}
	}
	if killed == 0 {
		o.t.Fatalf("no process of %s was killed", job)
	}
}

// drainInStep drains the node of a run's trainer. It wants a checkpoint of the last step that had ended
// before the trainer is told to end, and the run back when the node is.
func (o *onNomad) drainInStep(run string) {
	o.t.Helper()
	node := o.agents.Running("trainer-" + run)[0].NodeName
	out := o.cluster(0, "drain", node, "--reason", "a test")
	if !strings.Contains(out, "waiting up to 2h0m0s for ["+run+"] to come to a safe point, save and leave") {
		o.t.Errorf("drain of %s says:\n%s", node, out)
	}
	if n := len(o.agents.Running("trainer-" + run)); n > 0 {
		o.t.Errorf("%d trainers of %s run after the drain", n, run)
	}
	saved, ended := o.saved(run)
	o.t.Logf("drained with the checkpoint of step %d, of %d that had ended", saved, ended)
	if ended < 2 || saved != ended {
		o.t.Errorf("the newest checkpoint is of step %d, and step %d had ended", saved, ended)
	}
	status := o.launchWith(o.env, "temper", "run", "status", run, "--home", o.t.TempDir())
	status.end(0, time.Minute)
	if !strings.Contains(status.text(), "queued") {
		o.t.Errorf("a run without a node is\n%s", status.text())
	}
	if out := o.cluster(0, "status"); !strings.Contains(out, "waiting") || !strings.Contains(out, run) {
		o.t.Errorf("status with a run that waits:\n%s", out)
	}
	o.cluster(0, "drain", node, "--undo")
}

// saved is the step of a run's newest checkpoint, and that of the last one that has ended. The first
// checkpoint is that of the supervised updates.
func (o *onNomad) saved(run string) (saved, ended int) {
	o.t.Helper()
	steps := func(pattern string) (out []int) {
		found, err := filepath.Glob(filepath.Join(o.store(), "runs", run, pattern))
		if err != nil {
			o.t.Fatal(err)
		}
		for _, path := range found {
			n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "step-"))
			if err != nil {
				o.t.Fatal(err)
			}
			out = append(out, n)
		}
		if len(out) == 0 {
			o.t.Fatalf("run %s has nothing like %s", run, pattern)
		}
		return out
	}
	checkpoints := steps("checkpoints/step-*/manifest.json")
	return slices.Max(checkpoints) - slices.Min(checkpoints), slices.Max(steps("steps/*/step.json"))
}

// roll changes control, gateway and sandbox, as another build would.
func (o *onNomad) roll() {
	o.t.Helper()
	text := o.text
	for _, role := range []string{"control", "gateway", "sandbox"} {
		text = strings.Replace(text, "  "+role+": {", "  "+role+": {env: {ROLLED: '1'}, ", 1)
	}
	o.describe(text)
	if out := o.cluster(2, "plan"); strings.Count(out, "Env[ROLLED]") != 3 || strings.Count(out, "\n~ ")+strings.Count(out[:2], "~ ") != 3 {
		o.t.Errorf("plan of another build:\n%s", out)
	}
	began := time.Now()
	for range 5 {
		r := o.launch("temper", "cluster", "--cluster", o.file, "--nomad", o.agents.Address, "apply")
		<-r.done
		if r.cmd.ProcessState.ExitCode() == 0 {
			break
		}
		if !strings.Contains(r.text(), "apply again") { // the service has scaled the sandbox since apply looked at it
			o.t.Fatalf("apply of another build:\n%s", r.text())
		}
	}
	if out := o.cluster(0, "plan"); !strings.Contains(out, "nothing to do") {
		o.t.Errorf("plan after another build:\n%s", out)
	}
	o.t.Logf("control, gateway and sandbox rolled over in %.1f s", time.Since(began).Seconds())
}

// rotate replaces the cluster's tokens and certificates in the middle of a run. It wants the bits of a run of
// before, and those who show a token of before refused.
func (o *onNomad) rotate(reference string) {
	o.t.Helper()
	r := o.submit("rotated", "--placement", gangOfTwo)
	r.await(`^step +1/`, 2*runTimeout)
	if out := o.cluster(0, "init", "--rotate"); !strings.Contains(out, "made sandbox_token") || !strings.Contains(out, "certificate") {
		o.t.Errorf("a rotation says:\n%s", out)
	}
	r.end(0, 2*runTimeout)
	if diff := cmp.Diff(lastShards(o.t, o.store(), "rotated"), lastShards(o.t, o.store(), reference)); diff != "" {
		o.t.Errorf("the last checkpoint of a run under which secrets were replaced (-got +want):\n%s", diff)
	}
	stale := o.calls("--calls", "1")
	<-stale.done
	if stale.cmd.ProcessState.ExitCode() == 0 {
		o.t.Errorf("a token of before the rotation is taken:\n%s", stale.text())
	}
	o.env = nil
	o.readEnv()
	o.calls("--calls", "1").end(0, time.Minute)
}
