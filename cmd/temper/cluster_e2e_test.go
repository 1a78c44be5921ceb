//go:build integration

package main_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/freeport"
	"temper/jobs/nomadtest"
	"temper/tools/bench/chaos"
)

// onNomad is a cluster of ours on agents of the test.
type onNomad struct {
	*place
	agents *nomadtest.Cluster
	file   string // of the cluster
	data   string
}

// clusterFile describes the service of a test: trainers have nodes of their own.
const clusterFile = `
name: e2e
programs: {folder: %q}
data: %q
store: file://%s
ports: {temporal: %s, temporal_ui: %s, gateway: %s}
placement: {nomad: %q}
roles:
  temporal: {driver: raw_exec, cpu: 100, memory: 512MiB}
  gateway: {driver: raw_exec, cpu: 100, memory: 512MiB}
  sandbox: {count: 1, max: 3, driver: raw_exec, cpu: 100, memory: 512MiB}
  control: {driver: raw_exec, cpu: 100, memory: 512MiB}
  trainer: {count: 1, pool: gpu, driver: raw_exec, cpu: 100, memory: 512MiB}
  rollout: {count: 0, driver: raw_exec, cpu: 100, memory: 512MiB}
`

// newOnNomad starts a server with a node for the service and two for trainers, and
// describes the cluster.
func newOnNomad(t *testing.T) *onNomad {
	t.Helper()
	agents := nomadtest.Start(t, nomadtest.Options{Root: "../.."})
	addrs, err := freeport.Addresses(3)
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	o := &onNomad{place: &place{t: t, temporal: addrs[0]}, agents: agents, data: data, file: filepath.Join(data, "cluster.yaml")}
	ports := make([]any, len(addrs))
	for i, a := range addrs {
		_, port, err := net.SplitHostPort(a)
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = port
	}
	text := fmt.Sprintf(clusterFile, append(append([]any{bin, data, o.store()}, ports...), agents.Address)...)
	if err := os.WriteFile(o.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	agents.Node(nomadtest.Node{Name: "core"})
	return o
}

func (o *onNomad) store() string { return filepath.Join(o.data, "store") }

// cluster runs a command of temper cluster and checks its exit code.
func (o *onNomad) cluster(code int, args ...string) string {
	o.t.Helper()
	r := o.launch("temper", append([]string{"cluster", "--cluster", o.file, "--nomad", o.agents.Address}, args...)...)
	r.end(code, 5*time.Minute)
	return r.text()
}

// ownWorkers makes the run once more, with a trainer of its own. It wants the bits of the first
// one, and nothing of it left on the cluster.
func (o *onNomad) ownWorkers() {
	o.t.Helper()
	submit := o.launch("temper", "run", "submit", "--config", ciConfig, "--run-id", "own", "--wait", "--placement", `{"trainer": {"count": 1, "memory_mib": 512, "pool": "gpu"}}`,
		"--home", o.t.TempDir(), "--store", "file://"+o.store(), "--temporal", o.temporal, "--ui", "")
	submit.end(0, 2*runTimeout)
	allocs := o.agents.Allocations("trainer-own")
	if len(allocs) == 0 {
		o.t.Fatal("the run had no trainer of its own")
	}
	o.agents.Await("its trainer to end", func() error {
		if n := len(o.agents.Running("trainer-own")); n > 0 {
			return fmt.Errorf("%d still run", n)
		}
		return nil
	})
	own, first := lastShards(o.t, o.store(), "own"), lastShards(o.t, o.store(), "twin")
	if diff := cmp.Diff(own, first); diff != "" {
		o.t.Errorf("the last checkpoint with a trainer of its own (-got +want):\n%s", diff)
	}
}

// lastShards are the tensors of a run's last checkpoint, by the hashes of their contents.
func lastShards(t *testing.T, store, run string) any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "runs", run, "checkpoints", "step-*", "manifest.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("run %s has no checkpoint (%v)", run, err)
	}
	text, err := os.ReadFile(slices.Max(files))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Shards map[string]any `json:"shards"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil || len(manifest.Shards) == 0 {
		t.Fatalf("%d shards, %v", len(manifest.Shards), err)
	}
	return manifest.Shards
}

// TestRunOnNomad makes the pipeline's run with every process an allocation of Nomad, from nothing. The
// client agent under the trainer is killed in the middle, so that two trainers take
// steps of the run from then on. It wants the bits of `temper up`.
func TestRunOnNomad(t *testing.T) {
	o := newOnNomad(t)
	if out := o.cluster(1, "plan"); !strings.Contains(out, `roles.trainer.pool: there is no node pool "gpu"`) {
		t.Errorf("plan without a pool says:\n%s", out)
	}
	trainers := map[string]*nomadtest.Agent{}
	for _, name := range []string{"gpu-1", "gpu-2"} {
		trainers[name] = o.agents.Node(nomadtest.Node{Name: name, Pool: "gpu"})
	}
	if out := o.cluster(2, "apply"); !strings.Contains(out, "secrets are missing") {
		t.Errorf("apply without secrets says:\n%s", out)
	}
	o.cluster(0, "init")
	began := time.Now()
	o.cluster(0, "apply")
	applied := time.Since(began)
	for _, again := range []string{"plan", "apply"} {
		if out := o.cluster(0, again); !strings.Contains(out, "nothing to do") {
			t.Errorf("%s of a cluster that is as its file says:\n%s", again, out)
		}
	}

	submit := o.launch("temper", "run", "submit", "--config", ciConfig, "--run-id", "twin", "--wait",
		"--home", t.TempDir(), "--store", "file://"+o.store(), "--temporal", o.temporal, "--ui", "")
	submit.await(`^step +2/`, 2*runTimeout)
	first := o.agents.Running("e2e-trainer")
	if len(first) != 1 {
		t.Fatalf("%d trainers run, want one", len(first))
	}
	trainers[first[0].NodeName].Kill()
	if pids := nomadtest.Pids(first[0].ID); len(pids) == 0 {
		t.Error("the trainer ended with its agent, and should go on")
	}
	submit.end(0, 2*runTimeout)
	t.Logf("applied in %.1f s, and the run had ended %.1f s after the start", applied.Seconds(), time.Since(began).Seconds())

	o.agents.Await("another trainer", func() error {
		for _, a := range o.agents.Running("e2e-trainer") {
			if a.NodeName != first[0].NodeName {
				return nil
			}
		}
		return fmt.Errorf("not yet")
	})
	if diff := chaos.Compare(calmTwin(t), contents(t, o.store())); len(diff) > 0 {
		t.Errorf("the run on Nomad differs: %+v", diff)
	}
	o.ownWorkers()
	o.boardIsAnswered()
}
