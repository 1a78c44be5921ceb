//go:build integration

package fleet_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"temper/internal/placement"
	"temper/jobs"
	"temper/jobs/fleet"
	"temper/jobs/nomadtest"
)

// TestRotationReachesRuns: workers of a run that are there when secrets are rotated get the new ones, in the variable
// of their own job.
func TestRotationReachesRuns(t *testing.T) {
	o := &operator{t: t, agents: nomadtest.Start(t, nomadtest.Options{Root: "../.."}), folder: t.TempDir()}
	c := o.parse(fmt.Sprintf(file, "shop", o.folder, "s3://runs/a") + fmt.Sprintf("tls: true\nplacement: {nomad: %q}\n", o.agents.Address))
	f, build := o.fleet(c, ""), jobs.Build{Cluster: c, Version: "v1"}
	o.init(f, false)
	variable := func(path string) map[string]string {
		t.Helper()
		v, _, err := o.agents.API.Variables().Read(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return v.Items
	}
	start := func(run string) string {
		t.Helper()
		job := build.Run(placement.Job{ID: "trainer-" + run, Run: run, Role: placement.RoleTrainer, Instances: 1, Epoch: 1})
		if _, _, err := o.agents.API.Jobs().Register(job, nil); err != nil {
			t.Fatal(err)
		}
		own := jobs.RunVariable(*job.ID)
		if _, _, err := o.agents.API.Variables().Update(&api.Variable{Path: own, Items: variable(build.RunsVariable())}, nil); err != nil {
			t.Fatal(err)
		}
		return own
	}
	open, ended := start("open"), start("ended")
	if _, _, err := o.agents.API.Jobs().Deregister("trainer-ended", false, nil); err != nil {
		t.Fatal(err)
	}
	before := variable(build.RunsVariable())
	o.init(f, true)
	after := variable(build.RunsVariable())
	for _, item := range []string{jobs.ItemSandboxToken, jobs.ItemCert, jobs.ItemKey} {
		if before[item] == "" || before[item] == after[item] {
			t.Errorf("%s was not rotated", item)
		}
	}
	if diff := cmp.Diff(variable(open), after); diff != "" {
		t.Errorf("the variable of a run's job after a rotation (-got +want):\n%s", diff)
	}
	if !maps.Equal(variable(ended), before) {
		t.Error("the job of a run that has ended got new secrets")
	}
}

// init makes or rotates the secrets of a cluster.
func (o *operator) init(f *fleet.Fleet, rotate bool) {
	o.t.Helper()
	if err := f.Init(o.t.Context(), fleet.InitOptions{Rotate: rotate, Say: func(string) {}}); err != nil {
		o.t.Fatal(err)
	}
}
