package backend_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"temper/internal/placement"
	"temper/jobs"
	"temper/jobs/backend"
	"temper/jobs/nomad"
	"temper/jobs/spec"
)

// restless is a Nomad with one node, on which somebody changes the job of a run just before each registration, for a
// while.
type restless struct {
	index   uint64
	changes []func(*restless) // one for each registration
	there   *api.Job
	written int
}

func (w *restless) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var answer any
	switch path := strings.TrimPrefix(r.URL.Path, "/v1/"); {
	case path == "nodes":
		answer = []*api.NodeListStub{{
			ID: "n", Name: "n", NodePool: "default", Datacenter: "dc1", Status: "ready", SchedulingEligibility: "eligible",
			Drivers:       map[string]*api.DriverInfo{"raw_exec": {Healthy: true}},
			NodeResources: &api.NodeResources{Cpu: api.NodeCpuResources{CpuShares: 9000}, Memory: api.NodeMemoryResources{MemoryMB: 9000}},
		}}
	case path == "allocations":
		answer = []*api.AllocationListStub{}
	case strings.HasPrefix(path, "var/"):
		answer = api.Variable{Items: api.VariableItems{jobs.ItemSandboxToken: "x"}}
	case strings.HasSuffix(path, "/plan"):
		answer = api.JobPlanResponse{}
	case path == "jobs" && r.Method == http.MethodGet:
		answer = []*api.JobListStub{}
	case path == "jobs":
		var asked api.JobRegisterRequest
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(out, err.Error(), http.StatusBadRequest)
			return
		}
		if len(w.changes) > 0 {
			w.changes[0](w)
			w.changes = w.changes[1:]
		}
		have := uint64(0)
		if w.there != nil {
			have = *w.there.JobModifyIndex
		}
		if asked.JobModifyIndex != have {
			http.Error(out, fmt.Sprintf("Enforcing job modify index %d: job exists with conflicting job modify index: %d", asked.JobModifyIndex, have), http.StatusInternalServerError)
			return
		}
		w.write(false, asked.Job.Meta[jobs.MetaEpoch])
		w.written++
		answer = api.JobRegisterResponse{JobModifyIndex: w.index}
	case strings.HasPrefix(path, "job/") && w.there != nil:
		answer = w.there
	}
	if answer == nil {
		http.Error(out, "job not found", http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(out).Encode(answer) // to a client of this test
}

// write makes the job another version.
func (w *restless) write(stopped bool, epoch string) {
	w.index += 2
	w.there = &api.Job{ID: new("trainer-a"), Stop: new(stopped), JobModifyIndex: new(w.index), Meta: map[string]string{jobs.MetaEpoch: epoch}}
}

// TestStartOverAStoppedJob: a job that is stopped, before or while it is looked at, does not keep a run from its start.
func TestStartOverAStoppedJob(t *testing.T) {
	c, err := spec.Parse("c.yaml", []byte("name: shop\nstore: s3://runs/a\ntemporal_address: 127.0.0.1:1\nroles:\n  temporal: {count: 0}\n  trainer: {driver: raw_exec}\n"))
	if err != nil {
		t.Fatal(err)
	}
	stop := func(w *restless) { w.write(true, "1") }
	start := func(epoch string) func(*restless) { return func(w *restless) { w.write(false, epoch) } }
	for _, r := range []struct {
		name    string
		before  func(*restless)
		changes []func(*restless)
		written int
		want    string
	}{
		{"none is there", nil, nil, 1, ""},
		{"one is stopped", stop, nil, 1, ""},
		{"a stranger's is stopped", func(w *restless) { w.write(true, "") }, nil, 1, ""},
		{"one is stopped meanwhile", stop, []func(*restless){stop}, 1, ""},
		{"one appears that is stopped", nil, []func(*restless){stop}, 1, ""},
		{"an earlier call was faster", stop, []func(*restless){start("2")}, 0, ""},
		{"another epoch was faster", stop, []func(*restless){start("3")}, 0, "it is of epoch 3"},
		{"it is removed meanwhile", stop, []func(*restless){func(w *restless) { w.there = nil }}, 0, "it was removed meanwhile"},
		{"it is stopped again and again", stop, []func(*restless){stop, stop, stop}, 0, "it changes all the time"},
	} {
		w := &restless{}
		if r.before != nil {
			r.before(w)
		}
		w.changes = r.changes
		server := httptest.NewServer(w)
		client, err := nomad.Connect(nomad.Config{Address: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		b := backend.New(client, jobs.Build{Cluster: c, Version: "v1"})
		index, err := b.Start(t.Context(), placement.Job{ID: "trainer-a", Run: "a", Role: placement.RoleTrainer, Epoch: 2, Instances: 1}, 0)
		var conflict *placement.ConflictError
		switch {
		case r.want == "" && (err != nil || *w.there.Stop || index != w.index):
			t.Errorf("%s: index %d, %v; the job %+v is stopped: %t", r.name, index, err, w.there.Meta, *w.there.Stop)
		case r.want != "" && (!errors.As(err, &conflict) || !strings.Contains(err.Error(), r.want)):
			t.Errorf("%s: %v, want a conflict: %s", r.name, err, r.want)
		}
		if w.written != r.written {
			t.Errorf("%s: it was written %d times, want %d", r.name, w.written, r.written)
		}
		server.Close()
	}
}

// TestNodesWithinDatacenters: a machine where no job of the cluster may be takes no run.
func TestNodesWithinDatacenters(t *testing.T) {
	server := httptest.NewServer(&restless{})
	defer server.Close()
	client, err := nomad.Connect(nomad.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for names, want := range map[string]placement.NodeState{"*": placement.NodeReady, "moon dc*": placement.NodeReady, "moon": placement.NodeClosed} {
		build := jobs.Build{Cluster: spec.Default(), Version: "v1"}
		build.Nomad.Datacenters = strings.Fields(names)
		if nodes, err := backend.New(client, build).Nodes(t.Context()); err != nil || len(nodes) != 1 || nodes[0].State != want {
			t.Errorf("datacenters %s: nodes %+v (%v), want one that is %s", names, nodes, err, want)
		}
	}
}
