package jobs

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"temper/internal/config"
	"temper/internal/placement"
)

// Keys of the meta of a run's job, beside those of every job.
const (
	MetaEpoch   = "temper_epoch"
	MetaMembers = "temper_members"
)

// Run is the job of a run: equal members, no two on one node, on the queues of the run. They are
// placed as the admission of gangs says, and never rolled over.
func (b Build) Run(job placement.Job) *api.Job {
	role := b.Roles.Trainer
	args := []string{"trainer", "--queue", job.Queues.Trainer}
	switch {
	case job.Role != placement.RoleTrainer:
		role, args = b.Roles.Rollout, []string{"rollout", "--queue", job.Queues.Rollout}
	case job.Queues.Rollout != "":
		args = append(args, "--with-rollouts", "--rollout-queue", job.Queues.Rollout)
	}
	role.Count, role.Max, role.Pool = job.Members, max(job.Members, job.Most), job.Pool
	role.Cores = job.Each.Cores
	if job.Each.MemoryMiB > 0 {
		role.Memory = config.Bytes(job.Each.MemoryMiB) << 20
	}
	p := poller{b}.polls(string(job.Role), role, args)
	poller{b}.sampling(&p)
	poller{b}.asks(&p) // whether its allocation is still the one that counts
	p.variable = RunVariable(job.ID)
	j := form{b}.job(p)
	j.ID, j.Name = new(job.ID), new(job.ID)
	j.Priority = new(runPriority(role.Priority, job.Priority))
	maps.Copy(j.Meta, map[string]string{MetaRun: job.Run, MetaEpoch: strconv.Itoa(job.Epoch), MetaMembers: strconv.Itoa(job.Members)})
	g := j.TaskGroups[0]
	g.Constraints = append(g.Constraints, &api.Constraint{Operand: api.ConstraintDistinctHosts, RTarget: "true"})
	for _, name := range slices.Sorted(maps.Keys(job.Each.Devices)) {
		if n := job.Each.Devices[name]; n > 0 {
			g.Tasks[0].Resources.Devices = append(g.Tasks[0].Resources.Devices, &api.RequestedDevice{Name: name, Count: new(uint64(n))})
		}
	}
	// A drain moves all members at once: a gang without one of them does nothing.
	g.Migrate = &api.MigrateStrategy{MaxParallel: new(job.Members), HealthCheck: new("task_states"), MinHealthyTime: new(time.Second), HealthyDeadline: new(healthyDeadline)}
	g.Update.MaxParallel = new(0) // members start together, and no health of one holds up another
	g.Update.AutoRevert = new(false)
	return seal(j)
}

// RunVariable is where the secrets of a run's job are: no other job may read it.
func RunVariable(id string) string { return "nomad/jobs/" + id }

// RunsVariable holds what every job of a run gets. No job has its name, so that none reads it.
func (b Build) RunsVariable() string { return b.Variable(Runs) }

// Runs stands for all jobs of runs where roles have their names.
const Runs = "run"

// RunItems are the items that the jobs of runs read; nil where runs have none of their own.
func (b Build) RunItems() []string {
	if !b.Placement.On() {
		return nil
	}
	j := b.Run(placement.Job{ID: "trainer-x", Run: "x", Role: placement.RoleTrainer, Members: 1})
	return Secrets(j)[RunVariable(*j.ID)]
}

// runPriority shifts the priority of a role by that of the run: 1 is first, 3 the usual, 5 last.
func runPriority(role, run int) int {
	if run == 0 {
		run = 3
	}
	return min(max(role+5*(3-run), 1), 100)
}
