//go:build integration

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/jobs/fleet"
	"temper/jobs/nomad"
	"temper/jobs/nomadtest"
)

// stuckJob is a control job of the operator's own: a program, how long it must run until it is well, how many
// instances are tried first, and whether Nomad takes a bad change back.
const stuckJob = `
job "shop-control" {
  group "control" {
    update {
      health_check = "task_states"
      min_healthy_time = %q
      healthy_deadline = "50s"
      progress_deadline = "55s"
      canary = %d
      auto_revert = %t
    }
    restart {
      attempts = 0
      mode = "fail"
    }
    reschedule {
      attempts = 0
      unlimited = false
    }
    task "control" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", %q]
      }
      resources {
        cpu = 50
        memory = 32
      }
    }
  }
}
`

// stuckCluster is an operator whose changes of the control job get stuck.
type stuckCluster struct {
	*operator
	fleet *fleet.Fleet
	file  string
}

func (s *stuckCluster) write(program, healthy string, canary int, revert bool) {
	s.t.Helper()
	if err := os.WriteFile(s.file, fmt.Appendf(nil, stuckJob, healthy, canary, revert, program), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// deployment is the last change of the job, once it is in a state.
func (s *stuckCluster) deployment(state string) *api.Deployment {
	s.t.Helper()
	var d *api.Deployment
	s.agents.Await("a deployment that is "+state, func() (err error) {
		d, _, err = s.agents.API.Jobs().LatestDeployment("shop-control", nil)
		if err == nil && (d == nil || d.Status != state) {
			err = fmt.Errorf("it is %+v", d)
		}
		return err
	})
	return d
}

// applySoon is an apply whose verdict must not take until its patience ends.
func (s *stuckCluster) applySoon() error {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	plan, err := s.fleet.Plan(ctx)
	if err != nil {
		return err
	}
	err = s.fleet.Apply(ctx, plan, fleet.ApplyOptions{Patience: time.Hour, Say: func(string) {}})
	if ctx.Err() != nil {
		s.t.Errorf("apply had no verdict after 3 minutes: %v", err)
	}
	return err
}

func (s *stuckCluster) nothingToDo(after string) {
	s.t.Helper()
	if plan, err := s.fleet.Plan(s.t.Context()); err != nil || !plan.Empty() {
		s.t.Errorf("plan after %s: %+v (%v), want nothing to do", after, plan, err)
	}
}

// TestStuckDeployments: a change of a job that Nomad has given up, taken back, or that somebody has halted ends
// an apply at once with a line that says so; what is mended goes on with the next one.
func TestStuckDeployments(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	s := &stuckCluster{operator: &operator{t: t, agents: nomadtest.Start(t, nomadtest.Options{Root: "../.."}), folder: t.TempDir()}}
	if err := os.WriteFile(filepath.Join(s.folder, "temper"), fmt.Appendf(nil, program, python), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	s.agents.Node(nomadtest.Node{Name: "one"})
	c := s.parse(fmt.Sprintf(file, "shop", s.folder, "s3://runs/a"))
	s.file = filepath.Join(s.folder, "control.hcl")
	c.Roles.Control.File = s.file
	s.fleet = s.operator.fleet(c, "")
	if err := s.fleet.Init(t.Context(), fleet.InitOptions{Say: func(string) {}}); err != nil {
		t.Fatal(err)
	}
	s.lastWords()
	s.givenUp()
	s.takenBack()
	s.halted()
	s.waitsForPromotion()
	s.recovers()
}

// lastWords: the logs of a role tell why an instance failed, when another has come in its place.
func (s *stuckCluster) lastWords() {
	tried := filepath.Join(s.folder, "tried")
	program := fmt.Sprintf("test -e %[1]s && exec sleep 3600; touch %[1]s; echo the disk is full >&2; exit 1", tried)
	job, err := s.agents.API.Jobs().ParseHCL(fmt.Sprintf(`
job "other" {
  group "other" {
    restart {
      attempts = 0
      mode = "fail"
    }
    reschedule {
      delay = "5s"
      delay_function = "constant"
      unlimited = true
    }
    task "other" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", %q]
      }
    }
  }
}`, program), true)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, _, err := s.agents.API.Jobs().Register(job, nil); err != nil {
		s.t.Fatal(err)
	}
	s.agents.Await("another instance", func() error {
		if len(s.agents.Running("other")) == 0 || len(s.agents.Allocations("other")) != 2 {
			return fmt.Errorf("there are %d", len(s.agents.Allocations("other")))
		}
		return nil
	})
	var log strings.Builder
	if err := s.fleet.Logs(s.t.Context(), "other", fleet.LogOptions{Bytes: 4096}, &log); err != nil || !strings.Contains(log.String(), "the disk is full") {
		s.t.Errorf("logs: %q (%v)", log.String(), err)
	}
}

// givenUp: the first version ends at once, and there is none to go back to. Its cause is then mended outside of
// the job.
func (s *stuckCluster) givenUp() {
	mended := filepath.Join(s.folder, "mended")
	s.write("test -e "+mended+" && exec sleep 3600", "1s", 0, true)
	s.wants("a first version that ends", s.applySoon(), fleet.ErrGivenUp, "job shop-control: Nomad has given up its change: Failed due to unhealthy allocations")
	s.wants("its plan", refusedPlan(s), nil, "Meta[temper_attempt]")
	if err := os.WriteFile(mended, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := s.applySoon(); err != nil {
		s.t.Errorf("apply after its cause was mended: %v", err)
	}
	s.nothingToDo("a cause was mended")
}

// refusedPlan says which fields of the job the plan would change.
func refusedPlan(s *stuckCluster) error {
	plan, err := s.fleet.Plan(s.t.Context())
	if err != nil {
		return err
	}
	var paths []string
	for _, f := range plan.Changes[2].Fields {
		paths = append(paths, f.Path)
	}
	return fmt.Errorf("changes of %s: %s", plan.Changes[2].Job, strings.Join(paths, " ")) //nolint:err113 // for wants
}

// takenBack: the next version ends at once, and Nomad goes back to the one before.
func (s *stuckCluster) takenBack() {
	s.write("exit 3", "1s", 0, true)
	s.wants("a version that is taken back", s.applySoon(), fleet.ErrGivenUp, "job shop-control: Nomad has given up its change: Failed due to unhealthy allocations - rolling back to job version")
	s.deployment(api.DeploymentStatusSuccessful)
	s.write("exec sleep 3601", "1s", 0, true)
	if err := s.applySoon(); err != nil {
		s.t.Errorf("apply of a good version after one that was taken back: %v", err)
	}
	s.nothingToDo("a good version")
}

// halted: somebody pauses a change under way. The same file says so; another one goes on over it.
func (s *stuckCluster) halted() {
	s.write("exec sleep 3602", "30s", 0, true)
	first := make(chan error, 1)
	go func() { first <- s.applySoon() }()
	d := s.deployment(api.DeploymentStatusRunning)
	if _, _, err := s.agents.API.Deployments().Pause(d.ID, true, nil); err != nil {
		s.t.Fatal(err)
	}
	text := "job shop-control: not now: its change is paused: nomad deployment resume " + d.ID[:8]
	s.wants("a change that is paused meanwhile", <-first, nomad.ErrBusy, text)
	s.wants("a change that is paused", s.applySoon(), nomad.ErrBusy, text)
	if _, _, err := s.agents.API.Deployments().Pause(d.ID, false, nil); err != nil {
		s.t.Fatal(err)
	}
	if err := s.applySoon(); err != nil {
		s.t.Errorf("apply of a change that goes on: %v", err)
	}
	s.write("exec sleep 3603", "20s", 0, true)
	go func() { first <- s.applySoon() }()
	d = s.deployment(api.DeploymentStatusRunning)
	if _, _, err := s.agents.API.Deployments().Pause(d.ID, true, nil); err != nil {
		s.t.Fatal(err)
	}
	s.wants("a change that is paused meanwhile", <-first, nomad.ErrBusy, "nomad deployment resume "+d.ID[:8])
	s.write("exec sleep 3604", "1s", 0, true)
	if err := s.applySoon(); err != nil {
		s.t.Errorf("apply of another version over a change that is paused: %v", err)
	}
	s.nothingToDo("another version over one that was paused")
}

// waitsForPromotion: a job of the operator's own that tries one instance first.
func (s *stuckCluster) waitsForPromotion() {
	s.write("exec sleep 3605", "1s", 1, true)
	err := s.applySoon()
	d := s.deployment(api.DeploymentStatusRunning)
	s.wants("a canary", err, nomad.ErrBusy, "job shop-control: not now: its change waits for a promotion: nomad deployment promote "+d.ID[:8])
	if _, _, err := s.agents.API.Deployments().PromoteAll(d.ID, nil); err != nil {
		s.t.Fatal(err)
	}
	if err := s.applySoon(); err != nil {
		s.t.Errorf("apply after the promotion: %v", err)
	}
	s.nothingToDo("a promotion")
}

// lateJob is a control job whose instances take their time once a file is there, and have five seconds without a change
// of the job.
const lateJob = `
job "shop-control" {
  group "control" {
    update {
      min_healthy_time = "1s"
      healthy_deadline = "50s"
      progress_deadline = "55s"
    }
    migrate {
      min_healthy_time = "1s"
      healthy_deadline = "5s"
    }
    network {
      port "http" {}
    }
    service {
      name = "shop-control"
      provider = "nomad"
      port = "http"
      address = "127.0.0.1"
      check {
        type = "tcp"
        interval = "1s"
        timeout = "1s"
      }
    }
    task "control" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args = ["-c", "test -e %s && sleep 10; exec python3 -m http.server --bind 127.0.0.1 $NOMAD_PORT_http"]
      }
      resources {
        cpu = 50
        memory = 32
      }
    }
  }
}
`

// recovers: an instance that comes in place of another one is well later than it should be. Nomad keeps the verdict.
func (s *stuckCluster) recovers() {
	slow := filepath.Join(s.folder, "slow")
	if err := os.WriteFile(s.file, fmt.Appendf(nil, lateJob, slow), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := s.applySoon(); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(slow, nil, 0o600); err != nil {
		s.t.Fatal(err)
	}
	before := s.agents.Running("shop-control")[0]
	if _, err := s.agents.API.Allocations().Stop(&api.Allocation{ID: before.ID}, nil); err != nil {
		s.t.Fatal(err)
	}
	s.agents.Await("an instance that is found not well", func() error {
		for _, a := range s.agents.Running("shop-control") {
			if a.ID != before.ID && a.DeploymentStatus != nil && a.DeploymentStatus.Healthy != nil && !*a.DeploymentStatus.Healthy {
				return nil
			}
		}
		return errors.New("not yet")
	})
	if err := s.applySoon(); err != nil {
		s.t.Errorf("apply of a job whose instance is well by now: %v", err)
	}
}
