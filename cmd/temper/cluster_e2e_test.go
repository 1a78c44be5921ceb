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

	"temper/internal/proc"
	"temper/internal/run/runtest"
	"temper/jobs/nomadtest"
)

// onNomad is a cluster of ours on agents of the test.
type onNomad struct {
	*place
	agents *nomadtest.Cluster
	file   string // of the cluster
	text   string // in it
	data   string
	gpus   map[string]nomadtest.GPUs // of the nodes of trainers
	env    []string                  // with which clients reach it
	set    []string                  // further flags of every run
}

// clusterFile describes the service of a test: all of it is the cluster's own and speaks TLS, and
// trainers have nodes of their own.
const clusterFile = `
name: e2e
programs: {folder: %q}
data: %q
tls: true
ports: {postgres: %s, temporal: %s, temporal_ui: %s, objectstore: %s, gateway: %s, ui: %s, prometheus: %s}
placement: {nomad: %q, scale: [sandbox], scale_down_after: 5s}
roles:
  postgres: {count: %d, cpu: 100, memory: 512MiB, args: [-c, fsync=off], env: {POSTGRES_INITDB_ARGS: --no-sync}}
  temporal: {driver: raw_exec, cpu: 100, memory: 512MiB}
  objectstore: {count: 1, driver: raw_exec, cpu: 100, memory: 512MiB}
  gateway: {driver: raw_exec, cpu: 100, memory: 512MiB}
  sandbox: {count: 1, max: %d, driver: raw_exec, cpu: 100, memory: 512MiB, args: [--slots, "4"]}
  control: {driver: raw_exec, cpu: 100, memory: 512MiB}
  trainer: {count: 1, pool: gpu, driver: raw_exec, cpu: 100, memory: 512MiB}
  rollout: {count: 0, driver: raw_exec, cpu: 100, memory: 512MiB}
  ui: {count: 1, driver: raw_exec, cpu: 100, memory: 512MiB}
  metrics: {count: %d, driver: raw_exec, cpu: 100, memory: 512MiB}
`

// newOnNomad starts a server with a node for the service, and describes the cluster.
func newOnNomad(t *testing.T) *onNomad {
	t.Helper()
	agents := nomadtest.Start(t, nomadtest.Options{Root: "../.."})
	addrs, err := proc.Addresses(7)
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	if err := os.Chmod(filepath.Dir(data), 0o711); err != nil { //nolint:gosec // the user postgres goes through it
		t.Fatal(err)
	}
	o := &onNomad{place: &place{t: t, temporal: addrs[1]}, agents: agents, data: data, file: filepath.Join(data, "cluster.yaml"), gpus: map[string]nomadtest.GPUs{}}
	args := []any{bin, data}
	for _, a := range addrs {
		_, port, err := net.SplitHostPort(a)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, port)
	}
	o.describe(fmt.Sprintf(clusterFile, append(args, agents.Address, hasPostgres(t), scaleNodes(t), hasPrometheus(t))...))
	agents.Node(nomadtest.Node{Name: "core"})
	return o
}

// hasPostgres is 1 where this machine can start a Postgres; else Temporal's data is in a file.
func hasPostgres(t *testing.T) int {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		return 1
	}
	if os.Getenv("TEMPER_REQUIRE_POSTGRES") != "" {
		t.Fatal("no Postgres: install the package postgresql")
	}
	t.Log("without Postgres: install the package postgresql")
	return 0
}

// describe writes the cluster's file.
func (o *onNomad) describe(text string) {
	o.t.Helper()
	o.text = text
	if err := os.WriteFile(o.file, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
}

// store is the folder in which the cluster's object store keeps what is below its keys.
func (o *onNomad) store() string { return filepath.Join(o.data, "objects/buckets/temper") }

// cluster runs a command of temper cluster and checks its exit code.
func (o *onNomad) cluster(code int, args ...string) string {
	o.t.Helper()
	r := o.launch("temper", append([]string{"cluster", "--cluster", o.file, "--nomad", o.agents.Address}, args...)...)
	r.end(code, 5*time.Minute)
	return r.text()
}

// readEnv takes over how clients reach the cluster.
func (o *onNomad) readEnv() {
	o.t.Helper()
	for line := range strings.Lines(o.cluster(0, "env", "--files", filepath.Join(o.data, "client"))) {
		if key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); ok {
			o.env = append(o.env, key+"="+strings.Trim(value, "'"))
		}
	}
}

// submit hands over the pipeline's run and follows it.
func (o *onNomad) submit(id string, more ...string) *running {
	o.t.Helper()
	return o.launchWith(o.env, "temper", append([]string{"run", "submit", ciConfig, "--run-id", id, "--wait", "--home", o.t.TempDir(), "--ui", ""}, append(more, o.set...)...)...)
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

// TestRunOnNomad makes the pipeline's run with every process an allocation of Nomad, from nothing: its
// Postgres, its object store, its dashboard and its Prometheus, too. The client agent under the trainer is
// killed in the middle, so that two trainers take steps of the run from then on. It wants the bits of
// `temper up`, and then those of two runs that take turns.
func TestRunOnNomad(t *testing.T) {
	o := newOnNomad(t)
	if out := o.cluster(1, "plan"); !strings.Contains(out, `roles.trainer.pool: there is no node pool "gpu"`) {
		t.Errorf("plan without a pool says:\n%s", out)
	}
	trainers := map[string]*nomadtest.Agent{}
	for _, name := range []string{"gpu-1", "gpu-2"} {
		o.gpus[name] = o.agents.GPUs(name, 8)
		trainers[name] = o.agents.Node(nomadtest.Node{Name: name, Pool: "gpu", Plugins: o.gpus[name].Plugins})
	}
	if out := o.cluster(2, "apply"); !strings.Contains(out, "secrets are missing") {
		t.Errorf("apply without secrets says:\n%s", out)
	}
	o.cluster(0, "init")
	began := time.Now()
	said := o.cluster(0, "apply")
	applied := time.Since(began)
	for _, again := range []string{"plan", "apply"} {
		if out := o.cluster(0, again); !strings.Contains(out, "nothing to do") {
			t.Errorf("%s of a cluster that is as its file says:\n%s", again, out)
		}
	}
	o.readEnv()

	submit := o.submit("twin")
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
	t.Logf("applied in %.1f s, and the run had ended %.1f s after the start:\n%s", applied.Seconds(), time.Since(began).Seconds(), said)

	o.agents.Await("another trainer", func() error {
		for _, a := range o.agents.Running("e2e-trainer") {
			if a.NodeName != first[0].NodeName {
				return nil
			}
		}
		return fmt.Errorf("not yet")
	})
	if diff := runtest.CompareContents(calmTwin(t), contents(t, o.store())); len(diff) > 0 {
		t.Errorf("the run on Nomad differs: %+v", diff)
	}
	trainers[first[0].NodeName].Restart()
	o.agents.Await("the trainer under the killed agent to end", func() error { // or a drain of its node waits for it
		alloc, _, err := o.agents.API.Allocations().Info(first[0].ID, nil)
		if err == nil && !alloc.ClientTerminalStatus() {
			err = fmt.Errorf("it is %s", alloc.ClientStatus)
		}
		return err
	})
	o.takeTurns("twin")
	o.rotate("twin")
	o.boardIsAnswered()
	o.dashboardIsThere()
}
