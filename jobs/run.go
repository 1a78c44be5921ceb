package jobs

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/config"
	"temper/internal/placement"
	"temper/internal/role"
)

// MetaEpoch is the key in a job's meta for the admission of a run that the job belongs to.
const MetaEpoch = "temper_epoch"

// Run returns the job of a run: equal instances on different nodes, on the queues of the
// run. Nomad places them as a gang requires, and never restarts them for an update.
func (b Build) Run(job placement.Job) *api.Job {
	p := runProcess(b, job)
	j := newFrame(b).job(p)
	maps.Copy(j.Meta, map[string]string{MetaRun: job.Run, MetaEpoch: strconv.Itoa(job.Epoch)})
	return seal(j)
}

// runProcess describes an instance of a run's job: a trainer, or a process that samples
// with the settings of the cluster's rollout role.
func runProcess(b Build, job placement.Job) process {
	row, flags := role.Of(role.Rollout), []string{"--queue", job.Queues.Rollout}
	if job.Role == placement.RoleTrainer {
		row, flags = role.Of(role.Trainer), []string{"--queue", job.Queues.Trainer}
		if job.Queues.Rollout != "" {
			flags = append(flags, "--with-rollouts", "--rollout-queue", job.Queues.Rollout)
		}
	}
	p := poller(b, row, flags...)
	reachSandbox(b, &p)
	reachNomad(b, &p) // it asks whether its allocation is still the current one
	p.name, p.service, p.id, p.variable = string(job.Role), b.ID(string(job.Role)), job.ID, RunVariable(job.ID)
	s := &p.settings
	s.Count, s.Max, s.Pool, s.Cores = job.Instances, max(job.Instances, job.Most), job.Pool, job.Each.Cores
	s.Priority = runPriority(s.Priority, job.Priority)
	if job.Each.MemoryMiB > 0 {
		s.Memory = config.Bytes(job.Each.MemoryMiB) << 20
	}
	p.adjust = func(g *api.TaskGroup) { adjustRun(g, job) }
	return p
}

// adjustRun requests the resources of each instance, and makes the instances of a gang move
// and start together.
func adjustRun(g *api.TaskGroup, job placement.Job) {
	g.Constraints = append(g.Constraints, &api.Constraint{Operand: api.ConstraintDistinctHosts, RTarget: "true"})
	for _, name := range slices.Sorted(maps.Keys(job.Each.Devices)) {
		if n := job.Each.Devices[name]; n > 0 {
			g.Tasks[0].Resources.Devices = append(g.Tasks[0].Resources.Devices, &api.RequestedDevice{Name: name, Count: new(uint64(n))})
		}
	}
	// A drain moves all instances at once: an incomplete gang cannot work.
	g.Migrate = &api.MigrateStrategy{MaxParallel: new(job.Instances), HealthCheck: new("task_states"), MinHealthyTime: new(time.Second), HealthyDeadline: new(healthyDeadline)}
	g.Update.MaxParallel = new(0) // no instance waits for the health of another
	g.Update.AutoRevert = new(false)
}

// RunVariable returns the path of the secrets of a run's job; no other job may read it.
func RunVariable(id string) string { return "nomad/jobs/" + id }

// RunsVariable returns the path of the secrets that every job of a run gets. No job has its
// name, so that no job reads it.
func (b Build) RunsVariable() string { return b.Variable(Runs) }

// Runs names all jobs of runs in place of a role.
const Runs = "run"

// RunItems returns the items that the jobs of runs read; nil if runs have no jobs.
func (b Build) RunItems() []string {
	if !b.Placement.On() {
		return nil
	}
	j := b.Run(placement.Job{ID: "trainer-x", Run: "x", Role: placement.RoleTrainer, Instances: 1})
	return Secrets(j)[RunVariable(*j.ID)]
}

// runPriority shifts the priority of a role by the priority of the run: 1 is first, 3 the default, 5 last.
func runPriority(role, run int) int {
	if run == 0 {
		run = 3
	}
	return min(max(role+5*(3-run), 1), 100)
}
