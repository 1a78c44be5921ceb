package placement

import (
	"fmt"
	"strings"

	"temper/internal/role"
)

// Spec is a run's request to a cluster, as a person writes it beside the configuration:
// {"trainer": {"count": 1, "devices": {"amd/gpu": 8}}, "engine": {"count": 7, "devices":
// {"amd/gpu": 8}}}. All of it is given at once, or nothing.
type Spec struct {
	// Trainer is the job that updates the policy: one instance today.
	Trainer *Group `json:"trainer,omitempty"`
	// Rollout samples and evaluates; without it and engines the trainer's process does.
	Rollout *Group `json:"rollout,omitempty"`
	// Engine samples with its devices. Its count may grow up to Most.
	Engine *Group `json:"engine,omitempty"`
	// ReleaseAfterMinutes is how long a paused run keeps its room; 0 means half an hour,
	// negative for ever.
	ReleaseAfterMinutes int `json:"release_after_minutes,omitempty"`
}

// Group is the request for one job of a run.
type Group struct {
	// Count is the number of instances, no two on one node.
	Count int `json:"count"`
	// Most is how many engines the run may have while no other run waits; 0 means Count.
	Most      int            `json:"most,omitempty"`
	Cores     int            `json:"cores,omitempty"`
	MemoryMiB int            `json:"memory_mib,omitempty"`
	Devices   map[string]int `json:"devices,omitempty"`
	// Pool is the part of the cluster to be in; "" = any.
	Pool string `json:"pool,omitempty"`
}

// Each returns what one instance needs.
func (g Group) Each() Resources {
	return Resources{Cores: g.Cores, MemoryMiB: g.MemoryMiB, Devices: g.Devices}
}

// Bounds of a Spec.
const (
	maxInstances = 4096
	maxDevices   = 1024
	maxCores     = 4096
	maxMemory    = 1 << 26 // MiB
	maxPoolName  = 64
)

// groups returns the groups that the spec names, in the order of roles.
func (s Spec) groups() []namedGroup {
	var out []namedGroup
	for _, g := range []namedGroup{{RoleTrainer, s.Trainer}, {RoleRollout, s.Rollout}, {RoleEngine, s.Engine}} {
		if g.Group != nil {
			out = append(out, g)
		}
	}
	return out
}

type namedGroup struct {
	role Role
	*Group
}

// Check lists what is wrong with the spec, one line for each, by key.
func (s Spec) Check() (wrong []string) {
	if s.Trainer == nil {
		wrong = append(wrong, `placement.trainer: is missing: want {"count": 1, "devices": {...}}`)
	}
	for _, g := range s.groups() {
		wrong = append(wrong, g.check("placement."+string(g.role))...)
	}
	if s.Trainer != nil && s.Trainer.Count > 1 {
		wrong = append(wrong, fmt.Sprintf("placement.trainer.count: is %d, want 1: a trainer has the devices of one node", s.Trainer.Count))
	}
	return wrong
}

func (g namedGroup) check(path string) (wrong []string) {
	for _, n := range []struct {
		key                string
		value, least, most int
	}{
		{"count", g.Count, 1, maxInstances}, {"most", g.Most, 0, maxInstances}, {"cores", g.Cores, 0, maxCores}, {"memory_mib", g.MemoryMiB, 0, maxMemory},
	} {
		if n.value < n.least || n.value > n.most {
			wrong = append(wrong, fmt.Sprintf("%s.%s: is %d, want %d to %d", path, n.key, n.value, n.least, n.most))
		}
	}
	if g.Most != 0 && !role.Of(string(g.role)).Grows {
		wrong = append(wrong, fmt.Sprintf("%s.most: only engines grow and shrink: leave it out", path))
	} else if g.Most != 0 && g.Most < g.Count {
		wrong = append(wrong, fmt.Sprintf("%s.most: is %d, want count (%d) or more", path, g.Most, g.Count))
	}
	for _, name := range SortedNames(g.Devices) {
		if n := g.Devices[name]; n < 1 || n > maxDevices {
			wrong = append(wrong, fmt.Sprintf("%s.devices.%s: is %d, want 1 to %d", path, name, n, maxDevices))
		}
		if strings.Count(name, "/") < 1 || strings.ContainsAny(name, " \t\n\"'`$") || strings.HasSuffix(name, "/") {
			wrong = append(wrong, fmt.Sprintf("%s.devices: %q is no device: want vendor/type or vendor/type/model, such as amd/gpu", path, name))
		}
	}
	if len(g.Pool) > maxPoolName || strings.ContainsAny(g.Pool, " \t\n\"'`$") {
		wrong = append(wrong, fmt.Sprintf("%s.pool: %q is no name of a pool", path, g.Pool))
	}
	return wrong
}

// Jobs returns the jobs of a run at an admission.
func (s Spec) Jobs(runID string, epoch, priority int) []Job {
	var out []Job
	queues := QueuesOf(runID)
	for _, g := range s.groups() {
		j := Job{ID: JobID(g.role, runID), Run: runID, Role: g.role, Epoch: epoch, Instances: g.Count, Each: g.Each(), Pool: g.Pool, Priority: priority}
		switch g.role {
		case RoleTrainer:
			j.Queues.Trainer = queues.Trainer
			if s.Rollout == nil && s.Engine == nil { // the trainer's process samples, too
				j.Queues.Rollout = queues.Rollout
			}
		case RoleRollout:
			j.Queues.Rollout = queues.Rollout
		case RoleEngine:
			j.Queues.Rollout, j.Most = queues.Rollout, g.Most
		}
		out = append(out, j)
	}
	return out
}
