package fleet_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/fleet"
	"temper/jobs/nomad"
	"temper/jobs/spec"
)

// lone answers as a small Nomad does: it keeps the versions of jobs, compares priorities, counts and meta in a plan, and
// places nothing by itself.
type lone struct {
	t     *testing.T
	url   string
	build jobs.Build
	mu    sync.Mutex
	index uint64
	jobs  map[string][]*api.Job // their versions, the newest last
	vars  map[string]*api.Variable
	// nodes are as the real one lists them, with what package api leaves out.
	nodes       []map[string]any
	allocs      []*api.AllocationListStub
	deployments []*api.Deployment
	checks      map[string]api.AllocCheckStatuses // by allocation
	failed      map[string]*api.AllocationMetric  // of a plan, by group
	follow      func(http.ResponseWriter, *http.Request)
	// newer is a server that reads jobs with another default than the one that took them.
	newer bool
}

// smallCluster is a cluster without servers of its own.
const smallCluster = `
name: shop
store: s3://runs/a
temporal_address: 127.0.0.1:1
roles:
  temporal: {count: 0}
  gateway: {driver: raw_exec}
  sandbox: {driver: raw_exec, max: 3}
  control: {driver: raw_exec}
`

// newLone is one with a machine, and with the secrets of the cluster that the text describes.
func newLone(t *testing.T, text string) *lone {
	t.Helper()
	c, err := spec.Parse("c.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w := &lone{
		t: t, build: jobs.Build{Cluster: c, Version: "v1"},
		jobs: map[string][]*api.Job{}, vars: map[string]*api.Variable{}, checks: map[string]api.AllocCheckStatuses{},
	}
	w.node("one")
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.url = server.URL
	if err := w.fleet("v1").Init(t.Context(), fleet.InitOptions{Say: func(string) {}}); err != nil {
		t.Fatal(err)
	}
	return w
}

// fleet is the cluster for programs of a version.
func (w *lone) fleet(version string) *fleet.Fleet {
	w.t.Helper()
	client, err := nomad.Connect(nomad.Config{Address: w.url})
	if err != nil {
		w.t.Fatal(err)
	}
	return fleet.New(client, w.build.Cluster, version)
}

func (w *lone) apply(f *fleet.Fleet, take bool) error {
	w.t.Helper()
	plan, err := f.Plan(w.t.Context())
	if err != nil {
		return err
	}
	return f.Apply(w.t.Context(), plan, fleet.ApplyOptions{Take: take, Patience: 5 * time.Second, Say: func(string) {}})
}

// node adds a machine that has every driver.
func (w *lone) node(name string) map[string]any {
	n := map[string]any{
		"ID": name + "-0000", "Name": name, "Datacenter": "dc1", "NodePool": "default", "Status": "ready", "SchedulingEligibility": "eligible",
		"Drivers":       map[string]*api.DriverInfo{"raw_exec": {Healthy: true}, "exec": {Healthy: true}},
		"NodeResources": map[string]any{"Cpu": map[string]int{"CpuShares": 100_000}, "Memory": map[string]int{"MemoryMB": 100_000}},
	}
	w.nodes = append(w.nodes, n)
	return n
}

func last[T any](list []T) T { return list[len(list)-1] }

// register writes a job as the API does; Nomad itself and other people do it without an index to enforce.
func (w *lone) register(j *api.Job) {
	w.index++
	copied := copyOf(j)
	copied.JobModifyIndex, copied.Version = new(w.index), new(uint64(len(w.jobs[*j.ID])))
	if copied.Stop == nil {
		copied.Stop = new(false)
	}
	w.jobs[*j.ID] = append(w.jobs[*j.ID], copied)
}

func copyOf(j *api.Job) *api.Job {
	text, err := json.Marshal(j)
	if err != nil {
		panic(err)
	}
	var out api.Job
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return &out
}

// edit changes the newest version of a job as somebody does who reads it and writes it back.
func (w *lone) edit(id string, change func(*api.Job)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := copyOf(last(w.jobs[id]))
	change(j)
	w.register(j)
}

// set changes what it answers, also while a request of before is under way, whose client has given up.
func (w *lone) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *lone) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/")
	if strings.HasPrefix(path, "client/fs/logs/") {
		w.follow(out, r)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	status, answer := w.answer(path, r)
	if answer == nil {
		http.Error(out, "no such thing: "+path, max(status, http.StatusNotFound))
		return
	}
	if status != 0 {
		http.Error(out, fmt.Sprint(answer), status)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(out).Encode(answer) // to a client of this test
}

func (w *lone) answer(path string, r *http.Request) (int, any) {
	of := func(prefix string) (string, bool) { return strings.CutPrefix(path, prefix) }
	switch path {
	case "agent/members":
		return 0, api.ServerMembers{Members: []*api.AgentMember{{Name: "one", Tags: map[string]string{"build": "1.6.3"}}}}
	case "node/pools":
		return 0, []*api.NodePool{{Name: "default"}}
	case "nodes":
		return 0, w.nodes
	case "allocations":
		return 0, slices.Concat([]*api.AllocationListStub{}, w.allocs)
	case "deployments":
		return 0, slices.Concat([]*api.Deployment{}, w.deployments)
	case "jobs":
		if r.Method == http.MethodPut {
			return w.put(r)
		}
		return 0, w.stubs()
	}
	if id, ok := of("var/"); ok {
		return w.variable(id, r)
	}
	if id, ok := of("allocation/"); ok {
		return 0, api.Allocation{ID: id}
	}
	if id, ok := of("client/allocation/"); ok {
		id, _, _ := strings.Cut(id, "/")
		return 0, w.checks[id]
	}
	if rest, ok := of("job/"); ok {
		id, what, _ := strings.Cut(rest, "/")
		return w.job(id, what, r)
	}
	return 0, nil
}

func (w *lone) stubs() []*api.JobListStub {
	out := []*api.JobListStub{}
	for id, versions := range w.jobs {
		j := last(versions)
		out = append(out, &api.JobListStub{ID: id, Name: id, Meta: j.Meta, Stop: *j.Stop, JobModifyIndex: *j.JobModifyIndex})
	}
	return out
}

func (w *lone) variable(path string, r *http.Request) (int, any) {
	if r.Method == http.MethodPut {
		var v api.Variable
		if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
			return http.StatusBadRequest, err
		}
		w.vars[path] = &v
	}
	if v := w.vars[path]; v != nil {
		return 0, v
	}
	return http.StatusNotFound, nil
}

// put registers a job over the index that the caller has seen.
func (w *lone) put(r *http.Request) (int, any) {
	var asked api.JobRegisterRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return http.StatusBadRequest, err
	}
	have := uint64(0)
	if versions := w.jobs[*asked.Job.ID]; len(versions) > 0 {
		have = *last(versions).JobModifyIndex
	}
	if asked.EnforceIndex && asked.JobModifyIndex != have {
		return http.StatusInternalServerError, fmt.Sprintf("Enforcing job modify index %d: job exists with conflicting job modify index: %d", asked.JobModifyIndex, have)
	}
	w.register(asked.Job)
	for _, g := range asked.Job.TaskGroups { // and every instance is well at once
		w.allocs = append(w.allocs, &api.AllocationListStub{
			ID: fmt.Sprintf("%08d-bbbb", len(w.allocs)), JobID: *asked.Job.ID, Name: *asked.Job.ID + "." + *g.Name + "[0]", TaskGroup: *g.Name, NodeID: "one-0000", JobType: "service",
			JobVersion: *last(w.jobs[*asked.Job.ID]).Version, ClientStatus: "running", DesiredStatus: "run", DeploymentStatus: &api.AllocDeploymentStatus{Healthy: new(true)},
		})
	}
	return 0, api.JobRegisterResponse{JobModifyIndex: w.index}
}

func (w *lone) job(id, what string, r *http.Request) (int, any) {
	versions := w.jobs[id]
	if what == "plan" {
		var asked api.JobPlanRequest
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return http.StatusBadRequest, err
		}
		answer := api.JobPlanResponse{Diff: &api.JobDiff{Type: "Added"}, FailedTGAllocs: w.failed}
		if len(versions) > 0 {
			answer.JobModifyIndex, answer.Diff = *last(versions).JobModifyIndex, difference(last(versions), asked.Job)
			if w.newer {
				answer.Diff.Type, answer.Diff.Fields = "Edited", append(answer.Diff.Fields, &api.FieldDiff{Type: "Added", Name: "NewDefault", New: "true"})
			}
		}
		return 0, answer
	}
	if len(versions) == 0 && what != "allocations" {
		return http.StatusNotFound, nil
	}
	switch what {
	case "":
		return 0, last(versions)
	case "versions":
		newestFirst := slices.Clone(versions)
		slices.Reverse(newestFirst)
		return 0, map[string]any{"Versions": newestFirst}
	case "deployments":
		return 0, w.deployments
	case "allocations":
		out := []*api.AllocationListStub{}
		for _, a := range w.allocs {
			if a.JobID == id {
				out = append(out, a)
			}
		}
		return 0, out
	}
	return http.StatusNotFound, nil
}

// difference is what a plan says of priority, meta, and the counts of groups.
func difference(old, wanted *api.Job) *api.JobDiff {
	d := &api.JobDiff{Type: "Edited"}
	add := func(to *[]*api.FieldDiff, name, from, into string) {
		if from != into {
			*to = append(*to, &api.FieldDiff{Type: "Edited", Name: name, Old: from, New: into})
		}
	}
	add(&d.Fields, "Priority", fmt.Sprint(*old.Priority), fmt.Sprint(*wanted.Priority))
	for _, key := range []string{jobs.MetaSpec, jobs.MetaAttempt, jobs.MetaBuild} {
		add(&d.Fields, "Meta["+key+"]", old.Meta[key], wanted.Meta[key])
	}
	for i, g := range wanted.TaskGroups {
		group := &api.TaskGroupDiff{Type: "Edited", Name: *g.Name}
		add(&group.Fields, "Count", fmt.Sprint(*old.TaskGroups[i].Count), fmt.Sprint(*g.Count))
		if len(group.Fields) > 0 {
			d.TaskGroups = append(d.TaskGroups, group)
		}
	}
	if len(d.Fields)+len(d.TaskGroups) == 0 {
		d.Type = "None"
	}
	return d
}
