package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/fleet"
	"temper/jobs/nomad"
	"temper/jobs/spec"
)

const (
	manyNodes = 64
	manyJobs  = 500
)

// crowd answers as a Nomad with many nodes and jobs of runs does: a machine does not hold
// so many agents.
type crowd struct {
	calls  atomic.Int64
	build  jobs.Build
	nodes  []*api.NodeListStub
	allocs []*api.AllocationListStub
	jobs   []*api.JobListStub
	skew   map[string]time.Duration // of the clocks of nodes
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c, err := spec.Parse("c.yaml", []byte("name: big\nstore: s3://runs/a\ntemporal_address: 127.0.0.1:1\nroles:\n  temporal: {count: 0}\n"+
		"  sandbox: {driver: raw_exec, count: 5, max: 60}\n"))
	if err != nil {
		t.Fatal(err)
	}
	w := &crowd{build: jobs.Build{Cluster: c, Version: "v1"}}
	for i := range manyNodes {
		w.nodes = append(w.nodes, &api.NodeListStub{
			ID: fmt.Sprintf("%08d-0000-0000-0000-000000000000", i), Name: fmt.Sprintf("node-%02d", i), Datacenter: "dc1", NodePool: "default",
			Status: api.NodeStatusReady, SchedulingEligibility: api.NodeSchedulingEligible,
			Drivers: map[string]*api.DriverInfo{"raw_exec": {Detected: true, Healthy: true}, "exec": {Detected: true, Healthy: true}},
			NodeResources: &api.NodeResources{
				Cpu: api.NodeCpuResources{CpuShares: 200_000, TotalCpuCores: 96}, Memory: api.NodeMemoryResources{MemoryMB: 1 << 20}, Disk: api.NodeDiskResources{DiskMB: 1 << 20},
				Devices: []*api.NodeDeviceResource{{Vendor: "amd", Type: "gpu", Name: "MI300X", Instances: []*api.NodeDevice{{ID: "0", Healthy: true}, {ID: "1", Healthy: true}}}},
			},
		})
	}
	all := w.build.All()
	for i := range manyJobs {
		run := fmt.Sprintf("run-%03d", i)
		j := &api.Job{ID: new("trainer-" + run), Meta: map[string]string{jobs.MetaCluster: "big", jobs.MetaHome: "s3://runs/a", jobs.MetaRun: run}}
		all = append(all, j)
	}
	for i, j := range all {
		w.jobs = append(w.jobs, &api.JobListStub{
			ID: *j.ID, Name: *j.ID, Meta: j.Meta, Status: "running", JobModifyIndex: uint64(i + 1),
			JobSummary: &api.JobSummary{Summary: map[string]api.TaskGroupSummary{"g": {Running: 1}}},
		})
		w.allocs = append(w.allocs, &api.AllocationListStub{
			ID: fmt.Sprintf("%08d-1111-0000-0000-000000000000", i), JobID: *j.ID, NodeID: w.nodes[i%manyNodes].ID, NodeName: w.nodes[i%manyNodes].Name,
			TaskGroup: "g", ClientStatus: api.AllocClientStatusRunning, DesiredStatus: api.AllocDesiredStatusRun, CreateIndex: uint64(i),
			AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{"t": {
				Cpu: api.AllocatedCpuResources{CpuShares: 100}, Memory: api.AllocatedMemoryResources{MemoryMB: 100},
			}}},
		})
	}
	return w
}

func (w *crowd) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.calls.Add(1)
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	var answer any
	switch {
	case path == "client/stats":
		answer = map[string]int64{"Timestamp": time.Now().Add(w.skew[r.URL.Query().Get("node_id")]).UnixNano()}
	case path == "agent/members":
		answer = api.ServerMembers{Members: []*api.AgentMember{{Name: "one", Tags: map[string]string{"build": "1.10.0"}}}}
	case path == "jobs":
		answer = w.jobs
	case path == "nodes":
		answer = w.nodes
	case path == "deployments":
		answer = []*api.Deployment{}
	case path == "allocations":
		answer = w.allocs
	case path == "node/pools":
		answer = []*api.NodePool{{Name: "default"}}
	case strings.HasPrefix(path, "var/"):
		items := api.VariableItems{}
		for _, item := range []string{jobs.ItemSandboxToken, jobs.ItemNodeToken, jobs.ItemAccessKey, jobs.ItemSecretKey, jobs.ItemNomadToken} {
			items[item] = "x"
		}
		answer = api.Variable{Path: strings.TrimPrefix(path, "var/"), Items: items}
	case strings.HasPrefix(path, "service/"):
		answer = []*api.ServiceRegistration{}
	case strings.HasSuffix(path, "/scale"):
		answer = api.JobScaleStatusResponse{}
	case strings.HasSuffix(path, "/plan"):
		_, _ = io.Copy(io.Discard, r.Body) // whatever is asked, it is there already
		answer = api.JobPlanResponse{JobModifyIndex: 1, Diff: &api.JobDiff{Type: "None"}}
	case strings.HasPrefix(path, "job/"):
		for _, j := range w.build.All() {
			if path == "job/"+*j.ID {
				answer = j
			}
		}
	}
	if answer == nil {
		http.Error(out, "no such thing: "+path, http.StatusNotFound)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(answer) // to a client of this test
}

// TestManyJobs: plan and status of 64 nodes with 500 jobs of runs ask a number of questions that does
// not grow with the runs, and are there in well under two seconds.
func TestManyJobs(t *testing.T) {
	w := newCrowd(t)
	server := httptest.NewServer(w)
	defer server.Close()
	client, err := nomad.Connect(nomad.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.New(client, w.build.Cluster, "v1")
	began := time.Now()
	plan, err := f.Plan(t.Context())
	if err != nil || !plan.Empty() {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	planned, planCalls := time.Since(began), w.calls.Swap(0)
	began = time.Now()
	s, err := f.Status(t.Context())
	if err != nil || len(s.Nodes) != manyNodes || len(s.Jobs) != manyJobs+len(w.build.All()) {
		t.Fatalf("%d nodes, %d jobs, %v", len(s.Nodes), len(s.Jobs), err)
	}
	looked, statusCalls := time.Since(began), w.calls.Load()
	t.Logf("plan: %v, %d calls; status: %v, %d calls", planned.Round(time.Millisecond), planCalls, looked.Round(time.Millisecond), statusCalls)
	if planCalls > 20 || statusCalls > 20 {
		t.Errorf("%d and %d calls: each run is asked about", planCalls, statusCalls)
	}
	for what, took := range map[string]time.Duration{"plan": planned, "status": looked} {
		if took > 2*time.Second {
			t.Errorf("%s took %v, want less than 2 s", what, took)
		}
	}
}

// TestClockSkew: a node whose clock is off is named, and none other.
func TestClockSkew(t *testing.T) {
	w := newCrowd(t)
	w.skew = map[string]time.Duration{w.nodes[3].ID: -2 * time.Minute, w.nodes[4].ID: 5 * time.Second}
	server := httptest.NewServer(w)
	defer server.Close()
	client, err := nomad.Connect(nomad.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fleet.New(client, w.build.Cluster, "v1").Doctor(t.Context()) {
		if f.Name != "clocks" {
			continue
		}
		if f.OK || !strings.Contains(f.Detail, "off by more than 30s from this machine: node-03 (-2m0s): ") {
			t.Errorf("%s", f)
		}
		return
	}
	t.Error("doctor says nothing of clocks")
}

// TestFewNodesAreAskedAtATime: the clocks of many nodes are asked several at a time, and told in the order of the nodes.
func TestFewNodesAreAskedAtATime(t *testing.T) {
	w := newCrowd(t)
	w.skew = map[string]time.Duration{}
	var want []string
	for i, n := range w.nodes {
		w.skew[n.ID] = time.Duration(i+1) * time.Minute
		want = append(want, fmt.Sprintf("%s (%+v)", n.Name, w.skew[n.ID]))
	}
	var now, most atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/client/stats" {
			w.ServeHTTP(out, r)
			return
		}
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		time.Sleep(20 * time.Millisecond) // so that others come meanwhile
		now.Add(-1)
		w.ServeHTTP(out, r)
	}))
	defer server.Close()
	client, err := nomad.Connect(nomad.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fleet.New(client, w.build.Cluster, "v1").Doctor(t.Context()) {
		if f.Name == "clocks" && !strings.Contains(f.Detail, ": "+strings.Join(want, ", ")+": set them") {
			t.Errorf("%s, want the nodes in their order: %s", f, strings.Join(want, ", "))
		}
	}
	if n := most.Load(); n < 2 || n > 8 {
		t.Errorf("%d nodes were asked at a time, want 2 to 8", n)
	}
}

// TestRunsOnANode: those with living members there, and nobody else's jobs.
func TestRunsOnANode(t *testing.T) {
	w := newCrowd(t)
	n := w.nodes[3].ID
	var want []string
	for _, a := range w.allocs {
		if run, ok := strings.CutPrefix(a.JobID, "trainer-"); ok && a.NodeID == n {
			want = append(want, run)
		}
	}
	slices.Sort(want)
	gone := want[0]
	for i, j := range w.jobs {
		switch j.ID {
		case "trainer-" + gone:
			w.allocs[i].ClientStatus = api.AllocClientStatusComplete
		case "trainer-" + want[1]:
			j.Meta = map[string]string{jobs.MetaCluster: "another", jobs.MetaRun: want[1]}
		}
	}
	server := httptest.NewServer(w)
	defer server.Close()
	client, err := nomad.Connect(nomad.Config{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	f := fleet.NewRuns(fleet.New(client, w.build.Cluster, "v1"))
	id, err := f.Node(t.Context(), "node-03")
	if err != nil || id != n {
		t.Fatalf("node %q, %v", id, err)
	}
	if got, err := f.On(t.Context(), id); err != nil || !slices.Equal(got, want[2:]) {
		t.Errorf("runs %v, %v; want %v", got, err, want[2:])
	}
	var said []string
	left, err := f.Await(t.Context(), id, time.Millisecond, func(s string) { said = append(said, s) })
	if err != nil || !slices.Equal(left, want[2:]) || len(said) != 1 {
		t.Errorf("left %v, %v, said %q", left, err, said)
	}
	if left, err := f.Await(t.Context(), "no-such-node", time.Minute, nil); err != nil || left != nil {
		t.Errorf("an empty node: %v, %v", left, err)
	}
}
