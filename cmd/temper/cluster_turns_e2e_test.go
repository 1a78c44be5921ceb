//go:build integration

package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/jobs/nomadtest"
)

// gangOfTwo asks for a trainer and a process that samples, each on a node of its own: half of
// a node's memory and more.
const gangOfTwo = `{"trainer": {"count": 1, "memory_mib": 9000, "pool": "gpu"}, "rollout": {"count": 1, "memory_mib": 9000, "pool": "gpu"}}`

// TestTurnsOnNomad: two runs want two nodes of three, so that one waits until the other has
// ended. Under the first the gateway's process and a sandbox node's are killed; the node of the
// second one's trainer is drained in mid-step, which saves first and goes on elsewhere.
// Both end with the bits of `temper up`.
func TestTurnsOnNomad(t *testing.T) {
	o := newOnNomad(t)
	for i := range 3 {
		o.agents.Node(nomadtest.Node{Name: fmt.Sprintf("gpu-%d", i+1), Pool: "gpu"})
	}
	o.cluster(0, "init")
	o.cluster(0, "apply")
	first := o.submitGang("first")
	first.await(`^step +1/`, 2*runTimeout)
	second := o.submitGang("second")
	o.await("the second run to wait", func() error {
		if out := o.runStatus("second"); !strings.Contains(out, "queued") || !strings.Contains(out, "waits for room") {
			return fmt.Errorf("its status is\n%s", out)
		}
		return nil
	})
	for _, job := range []string{"e2e-gateway", "e2e-sandbox"} {
		o.killTask(job)
	}
	first.end(0, 2*runTimeout)
	began := time.Now()
	second.await(`^step +2/`, 2*runTimeout)
	t.Logf("the second run's second step ended %.1f s after the first run", time.Since(began).Seconds())

	trainer := o.agents.Running("trainer-second")
	if len(trainer) != 1 {
		t.Fatalf("%d trainers of the second run, want one", len(trainer))
	}
	began = time.Now()
	out := o.cluster(0, "drain", trainer[0].NodeName, "--reason", "new kernel")
	t.Logf("drained in %.1f s:\n%s", time.Since(began).Seconds(), out)
	for _, want := range []string{"when second have come to a safe point, saved and left, it is emptied", "waiting up to 2h0m0s for [second]"} {
		if !strings.Contains(out, want) {
			t.Errorf("drain does not say %q:\n%s", want, out)
		}
	}
	second.end(0, 2*runTimeout)
	for _, a := range o.agents.Allocations("trainer-second") {
		if a.NodeName == trainer[0].NodeName && a.ClientStatus == "running" {
			t.Errorf("a trainer is still on %s", a.NodeName)
		}
	}
	if log := o.runStatus("second"); strings.Contains(log, "interrupted") {
		t.Errorf("the drain cost a step:\n%s", log)
	}
	o.cluster(0, "undrain", trainer[0].NodeName)
	want := calmShards(t)
	for _, run := range []string{"first", "second"} {
		if diff := cmp.Diff(want, lastShards(t, o.store(), run)); diff != "" {
			t.Errorf("the last checkpoint of run %s (-temper up +Nomad):\n%s", run, diff)
		}
	}
}

// submitGang submits the pipeline's run with two nodes of its own.
func (o *onNomad) submitGang(id string) *running {
	o.t.Helper()
	return o.launch("temper", "run", "submit", "--config", ciConfig, "--run-id", id, "--wait", "--placement", gangOfTwo,
		"--home", o.t.TempDir(), "--store", "file://"+o.store(), "--temporal", o.temporal, "--ui", "")
}

// runStatus is what is known of a run: nothing yet where it has just been submitted.
func (o *onNomad) runStatus(id string) string {
	o.t.Helper()
	r := o.launch("temper", "run", "status", id, "--home", o.data, "--store", "file://"+o.store(), "--temporal", o.temporal, "--ui", "")
	select {
	case <-r.done:
	case <-time.After(time.Minute):
		o.t.Fatalf("status of %s: no answer", id)
	}
	return r.text()
}

func (o *onNomad) await(what string, check func() error) {
	o.t.Helper()
	o.agents.Await(what, check)
}

// killTask ends the process of a job's only instance as a crash would, and waits until the job
// has another one.
func (o *onNomad) killTask(job string) {
	o.t.Helper()
	allocs := o.agents.Running(job)
	if len(allocs) != 1 {
		o.t.Fatalf("%d instances of %s, want one", len(allocs), job)
	}
	old := nomadtest.Pids(allocs[0].ID)
	for _, pid := range old {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			o.t.Fatal(err)
		}
	}
	o.await("another process of "+job, func() error {
		now := nomadtest.Pids(allocs[0].ID)
		if len(old) == 0 || len(now) == 0 || slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(old, pid) }) {
			return fmt.Errorf("processes %v after %v", now, old)
		}
		return nil
	})
}

// calmShards are the tensors of the last checkpoint of `temper up`.
func calmShards(t *testing.T) any {
	t.Helper()
	calm := calmTwin(t)
	var names []string
	for name := range maps.Keys(calm) {
		if strings.HasPrefix(name, "checkpoints/step-") && strings.HasSuffix(name, "/manifest.json") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		t.Fatal("temper up left no checkpoint")
	}
	var manifest struct {
		Shards map[string]any `json:"shards"`
	}
	if err := json.Unmarshal(calm[slices.Max(names)], &manifest); err != nil || len(manifest.Shards) == 0 {
		t.Fatalf("%d shards, %v", len(manifest.Shards), err)
	}
	return manifest.Shards
}
