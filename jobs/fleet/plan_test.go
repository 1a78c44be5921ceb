package fleet_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs"
	"temper/jobs/fleet"
	"temper/jobs/nomad"
)

// TestForeignBeforeAnUpgrade: what somebody else has changed is told and kept when our own job differs as well.
func TestForeignBeforeAnUpgrade(t *testing.T) {
	w := newLone(t, smallCluster)
	if err := w.apply(w.fleet("v1"), false); err != nil {
		t.Fatal(err)
	}
	w.edit("shop-sandbox", func(j *api.Job) { j.TaskGroups[0].Count = new(2) }) // scaled
	w.edit("shop-control", func(j *api.Job) { j.Meta[jobs.MetaAttempt] = "1" }) // tried again
	newer := w.fleet("v2")
	kinds := func() string {
		t.Helper()
		plan, err := newer.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range plan.Changes {
			out = append(out, fmt.Sprintf("%s: %s %v", c.Job, c.Kind, c.Theirs))
		}
		return strings.Join(out, "; ")
	}
	for _, w.newer = range []bool{false, true} {
		if got, want := kinds(), "shop-gateway: edit []; shop-sandbox: edit []; shop-control: edit []"; got != want {
			t.Errorf("an upgrade after what we do ourselves (newer servers: %t): %s, want %s", w.newer, got, want)
		}
	}
	w.newer = false
	w.edit("shop-gateway", func(j *api.Job) { j.Priority = new(99) })
	w.edit("shop-sandbox", func(j *api.Job) { j.Priority = new(98); j.TaskGroups[0].Count = new(3) })
	w.edit("shop-sandbox", func(j *api.Job) { j.TaskGroups[0].Count = new(1) })
	w.edit("shop-control", func(j *api.Job) { delete(j.Meta, jobs.MetaSpec) })
	want := "shop-gateway: changed by others [Priority]; shop-sandbox: changed by others [Priority]; shop-control: changed by others [Meta[temper_spec]]"
	if got := kinds(); got != want {
		t.Errorf("an upgrade over what somebody else did: %s, want %s", got, want)
	}
	err := w.apply(newer, false)
	if !errors.Is(err, fleet.ErrForeign) || !strings.Contains(err.Error(), "job shop-gateway: changed by others since it was applied (Priority)") {
		t.Errorf("apply: %v", err)
	}
	if j := last(w.jobs["shop-gateway"]); *j.Priority != 99 || j.Meta[jobs.MetaBuild] != "v1" {
		t.Errorf("the gateway was written over: priority %d, build %s", *j.Priority, j.Meta[jobs.MetaBuild])
	}
	plan, err := newer.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var shown strings.Builder
	if plan.Print(&shown); !strings.Contains(shown.String(), "! shop-gateway (changed by others)\n") || !strings.Contains(shown.String(), "\n    changed by others: Priority\n") {
		t.Errorf("the plan shows\n%s", shown.String())
	}
	w.build.Roles.Gateway.Priority = 99
	newer, w.build.Roles.Gateway.Priority = w.fleet("v2"), 70
	if got, want := kinds(), "shop-gateway: edit []; "; !strings.HasPrefix(got, want) {
		t.Errorf("a change that the file has taken over: %s, want %s", got, want)
	}
	newer = w.fleet("v2")
	if err := w.apply(newer, true); err != nil {
		t.Errorf("apply --take: %v", err)
	}
	if got, want := kinds(), "shop-gateway: same []; shop-sandbox: same []; shop-control: same []"; got != want {
		t.Errorf("after --take: %s, want %s", got, want)
	}
}

// TestStoppedStrangers: a stopped job of the name, of whomever, is no obstacle; one that starts meanwhile is.
func TestStoppedStrangers(t *testing.T) {
	w := newLone(t, smallCluster)
	stranger := &api.Job{ID: new("shop-gateway"), Name: new("shop-gateway"), Priority: new(50), Stop: new(true), TaskGroups: []*api.TaskGroup{{Name: new("gateway"), Count: new(1)}}}
	w.register(stranger)
	twin := copyOf(stranger)
	twin.ID, twin.Meta = new("shop-control"), map[string]string{jobs.MetaCluster: "shop", jobs.MetaHome: "s3://runs/b"}
	w.register(twin)
	f := w.fleet("v1")
	plan, err := f.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.edit("shop-gateway", func(j *api.Job) { j.Stop = new(false) })
	err = f.Apply(t.Context(), plan, fleet.ApplyOptions{Patience: time.Second, Say: func(string) {}})
	if !errors.Is(err, nomad.ErrChanged) {
		t.Errorf("a job that was started after the plan: %v", err)
	}
	w.edit("shop-gateway", func(j *api.Job) { j.Stop = new(true) })
	if err := w.apply(f, false); err != nil {
		t.Errorf("apply over stopped jobs of others: %v", err)
	}
	if j := last(w.jobs["shop-control"]); j.Meta[jobs.MetaHome] != "s3://runs/a" || *j.Stop {
		t.Errorf("control is %v", j.Meta)
	}
}

// TestNoPlace: what the scheduler refuses is in the plan and in doctor, and apply does not begin.
func TestNoPlace(t *testing.T) {
	refused := func(w *lone, want string) {
		t.Helper()
		f := w.fleet("v1")
		plan, err := f.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var shown strings.Builder
		if plan.Print(&shown); !strings.Contains(shown.String(), "    no room for "+want+"\n") || plan.Empty() {
			t.Errorf("plan says\n%s\nwant %q", shown.String(), want)
		}
		if err := w.apply(f, false); err == nil || !strings.Contains(err.Error(), "no room for "+want) || len(w.jobs) > 0 {
			t.Errorf("apply: %v, %d jobs are there; want %q", err, len(w.jobs), want)
		}
	}
	room := func(w *lone) fleet.Finding {
		t.Helper()
		for _, found := range w.fleet("v1").Doctor(t.Context()) {
			if found.Name == "room" {
				return found
			}
		}
		t.Fatal("doctor says nothing of room")
		return fleet.Finding{}
	}
	w := newLone(t, smallCluster+"nomad: {datacenters: [moon]}\n")
	const moon = "1 of 1 nodes: in the datacenter dc1, and not in moon"
	refused(w, "1 of 1 gateway: "+moon)
	if found := room(w); found.OK || !strings.Contains(found.Detail, "shop-gateway ("+moon+")") {
		t.Errorf("doctor: %s", found)
	}

	w = newLone(t, smallCluster+"  metrics: {count: 1, driver: exec}\n")
	const volume = `1 of 1 nodes: has no host_volume "shop" in its client block`
	refused(w, "1 of 1 metrics: "+volume)
	if found := room(w); found.OK || !strings.Contains(found.Detail, "1 of 1 shop-metrics ("+volume+")") {
		t.Errorf("doctor: %s", found)
	}
	w.nodes[0]["HostVolumes"] = map[string]any{"shop": map[string]any{"Name": "shop", "ReadOnly": false}}
	if found := room(w); !found.OK {
		t.Errorf("a node that has the volume: %s", found)
	}

	// What only the scheduler compares, on three nodes of which two are alike.
	w = newLone(t, smallCluster)
	w.failed = map[string]*api.AllocationMetric{"control": {NodesEvaluated: 3, ConstraintFiltered: map[string]int{"${attr.kernel.name} = plan9": 1, "computed class ineligible": 2}}}
	refused(w, "control: 3 of 3 nodes: not ${attr.kernel.name} = plan9")
	w.failed = map[string]*api.AllocationMetric{"control": {NodesEvaluated: 1, ConstraintFiltered: map[string]int{"missing compatible host volumes": 1}}}
	refused(w, "control: 1 of 1 nodes: missing compatible host volumes")
	w.failed["control"].NodesExhausted = 1 // an earlier change may give the room back: ours is the count
	if err := w.apply(w.fleet("v1"), false); err != nil {
		t.Errorf("apply where a job that is changed first holds the room: %v", err)
	}
}

// TestRecovered: an instance that Nomad has found not well by its deadline, and whose checks pass now, is well.
func TestRecovered(t *testing.T) {
	w := newLone(t, smallCluster)
	f := w.fleet("v1")
	if err := w.apply(f, false); err != nil {
		t.Fatal(err)
	}
	a := w.allocs[0]
	w.set(func() {
		a.DeploymentStatus = &api.AllocDeploymentStatus{Healthy: new(false)}
		a.TaskStates = map[string]*api.TaskState{"gateway": {State: "running", StartedAt: time.Now().Add(-time.Hour)}}
	})
	check := func(status string, wantWell bool) {
		t.Helper()
		w.set(func() { w.checks[a.ID] = api.AllocCheckStatuses{"c": {Check: "alive", Status: status}} })
		plan, err := f.Plan(t.Context())
		if err != nil || !plan.Empty() {
			t.Fatalf("plan %+v (%v)", plan, err)
		}
		err = f.Apply(t.Context(), plan, fleet.ApplyOptions{Patience: 300 * time.Millisecond, Say: func(string) {}})
		if (err == nil) != wantWell || err != nil && !strings.Contains(err.Error(), "job shop-gateway is not well") {
			t.Errorf("checks say %s: %v, want well: %t", status, err, wantWell)
		}
	}
	check("success", true)
	check("failure", false)
	check("pending", false)
	w.set(func() { a.TaskStates["gateway"].StartedAt = time.Now() }) // it has failed and was started again
	check("success", false)
	w.set(func() {
		a.TaskStates["gateway"].StartedAt = time.Now().Add(-time.Hour)
		w.deployments = []*api.Deployment{{JobID: a.JobID, Status: api.DeploymentStatusRunning}}
	})
	check("success", false) // Nomad is about to give the change up
	w.set(func() { w.deployments, a.DeploymentStatus = nil, nil })
	check("success", false) // and has not judged this one yet
}
