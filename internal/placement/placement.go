package placement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"temper/internal/role"
)

// Resources is what an instance needs, or what a node has. A zero field needs nothing.
type Resources struct {
	// Cores are whole processors.
	Cores     int `json:"cores,omitempty"`
	MemoryMiB int `json:"memory_mib,omitempty"`
	// Devices are counts by the name that the scheduler has for them, such as
	// "amd/gpu" or "amd/gpu/MI300X".
	Devices map[string]int `json:"devices,omitempty"`
}

// Holds reports whether other fits into r. A device that is asked for by a short name
// fits a longer name: "amd/gpu/MI300X" meets "amd/gpu".
func (r Resources) Holds(other Resources) bool {
	if r.Cores < other.Cores || r.MemoryMiB < other.MemoryMiB {
		return false
	}
	for _, name := range SortedNames(other.Devices) {
		if r.numDevices(name) < other.Devices[name] {
			return false
		}
	}
	return true
}

func (r Resources) numDevices(name string) int {
	n := 0
	for _, has := range SortedNames(r.Devices) {
		if deviceIs(has, name) {
			n += r.Devices[has]
		}
	}
	return n
}

// SortedNames are the keys of counts in the order of their names, so that a replay has
// the same.
//
//workflowcheck:ignore
func SortedNames[V any](counts map[string]V) []string { return slices.Sorted(maps.Keys(counts)) }

func deviceIs(has, asked string) bool { return has == asked || strings.HasPrefix(has, asked+"/") }

// Plus returns the sum of both.
func (r Resources) Plus(other Resources) Resources {
	r.Cores, r.MemoryMiB = r.Cores+other.Cores, r.MemoryMiB+other.MemoryMiB
	if len(other.Devices) == 0 {
		return r
	}
	sum := maps.Clone(r.Devices)
	if sum == nil {
		sum = map[string]int{}
	}
	for _, name := range SortedNames(other.Devices) {
		sum[name] += other.Devices[name]
	}
	r.Devices = sum
	return r
}

// Minus returns what is left of r without other, which it Holds. Devices that were asked for
// by a short name are taken from the longer ones in the order of their names.
func (r Resources) Minus(other Resources) Resources {
	r.Cores, r.MemoryMiB = r.Cores-other.Cores, r.MemoryMiB-other.MemoryMiB
	if len(other.Devices) == 0 {
		return r
	}
	left := maps.Clone(r.Devices)
	for _, name := range SortedNames(other.Devices) {
		n := other.Devices[name]
		for _, has := range SortedNames(left) {
			if deviceIs(has, name) {
				taken := min(n, left[has])
				left[has] -= taken
				n -= taken
			}
		}
	}
	r.Devices = left
	return r
}

// String lists the resources: "8 amd/gpu, 16 cores, 4096 MiB".
func (r Resources) String() string {
	var parts []string
	for _, name := range SortedNames(r.Devices) {
		if r.Devices[name] != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", r.Devices[name], name))
		}
	}
	if r.Cores != 0 {
		parts = append(parts, fmt.Sprintf("%d cores", r.Cores))
	}
	if r.MemoryMiB != 0 {
		parts = append(parts, fmt.Sprintf("%d MiB", r.MemoryMiB))
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}

// NodeState says whether a node takes instances.
type NodeState string

// The states of a node.
const (
	NodeReady NodeState = "ready"
	// NodeClosed takes no new instances and keeps those that it has: an operator, or a
	// drain that has not begun, has made it ineligible.
	NodeClosed NodeState = "closed"
	// NodeDraining is losing its instances.
	NodeDraining NodeState = "draining"
	// NodeDown does not answer the scheduler. Its instances may continue nevertheless.
	NodeDown NodeState = "down"
)

// Node is a machine on which instances of runs may be.
type Node struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Pool is the part of the cluster that the node belongs to.
	Pool  string    `json:"pool,omitempty"`
	State NodeState `json:"state"`
	// Has is all that is in working order, Free what no allocation holds. The
	// scheduler's own refusal may not say why, so that both are counted.
	Has  Resources `json:"has"`
	Free Resources `json:"free"`
	// Instances of runs' jobs hold resources here, also while they end.
	Instances []Instance `json:"members,omitempty"`
}

// Role is what the instances of a job do.
type Role string

// The roles that a run may have for itself. The value begins the job's id.
const (
	RoleTrainer Role = role.Trainer
	RoleRollout Role = role.Rollout
	RoleEngine  Role = role.Engine
)

// Roles returns the roles that a run may have for itself.
func Roles() (out []Role) {
	for _, name := range role.PerRun() {
		out = append(out, Role(name))
	}
	return out
}

// JobID is the id of a run's job.
func JobID(r Role, runID string) string { return string(r) + "-" + runID }

// Queues are the task queues of a run. Zero values mean the queues that all runs share.
type Queues struct {
	Trainer string `json:"trainer,omitempty"`
	Rollout string `json:"rollout,omitempty"`
}

// QueuesOf returns the queues of a run that has dedicated workers.
func QueuesOf(runID string) Queues {
	return Queues{Trainer: "temper-trainer-" + runID, Rollout: "temper-rollout-" + runID}
}

// Job is a job of a run: equal instances, no two on one node.
type Job struct {
	// ID is JobID(Role, Run).
	ID   string `json:"id"`
	Run  string `json:"run"`
	Role Role   `json:"role"`
	// Epoch counts the admissions of the run from 1. A job of another epoch is another
	// job, though it has the same id.
	Epoch     int `json:"epoch"`
	Instances int `json:"members"`
	// Most bounds Scale from above, where the job may grow; 0 is Instances, its bound from below.
	Most int       `json:"most,omitempty"`
	Each Resources `json:"each"`
	Pool string    `json:"pool,omitempty"` // "" = any
	// Queues are polled by its instances. A trainer that polls both samples as well.
	Queues Queues `json:"queues"`
	// Priority of the run: 1 (first) to 5.
	Priority int `json:"priority"`
}

// InstanceState is how far an instance is.
type InstanceState string

// The states of an instance.
const (
	InstancePending InstanceState = "pending"
	InstanceRunning InstanceState = "running"
	// InstanceLost is on a node that is down. Its process may continue.
	InstanceLost InstanceState = "lost"
	// InstanceEnded has exited, for whatever reason, and holds no resources.
	InstanceEnded InstanceState = "ended"
)

// Instance is one process of a job: an allocation.
type Instance struct {
	// ID is the allocation's: NOMAD_ALLOC_ID of the process.
	ID    string        `json:"id"`
	Job   string        `json:"job"`
	Epoch int           `json:"epoch"`
	Index int           `json:"index"`
	Node  string        `json:"node"`
	State InstanceState `json:"state"`
	// Wanted is false for one that was told to end: stopped, evicted or replaced.
	Wanted bool `json:"wanted,omitempty"`
	// Each is what it holds.
	Each Resources `json:"each"`
}

// Current reports whether the scheduler wants the process of the instance. A process that is not
// current must do no more work: another one replaces it.
func (m Instance) Current() bool {
	return m.Wanted && (m.State == InstancePending || m.State == InstanceRunning)
}

// JobState is a job as it is. Instances lists the current ones and the ones that still hold
// resources; it may list ended ones.
type JobState struct {
	ID    string `json:"id"`
	Epoch int    `json:"epoch"`
	// Index changes with each change of the job.
	Index uint64 `json:"index"`
	// Stopped jobs have no instances, or only ending ones.
	Stopped bool `json:"stopped,omitempty"`
	// Count is the number of instances that are wanted, Least and Most the bounds for Scale.
	Count     int        `json:"count"`
	Least     int        `json:"least,omitempty"`
	Most      int        `json:"most,omitempty"`
	Instances []Instance `json:"members,omitempty"`
}

// Running counts the instances current that run.
func (s JobState) Running() int {
	n := 0
	for _, m := range s.Instances {
		if m.Current() && m.State == InstanceRunning {
			n++
		}
	}
	return n
}

// Scaling is one change of the size of a group, and why.
type Scaling struct {
	Job   string `json:"job"`
	Group string `json:"group"`
	// From is the count that the decision was made for: a Scale of a group that has
	// another count meanwhile is a conflict. Negative means any.
	From   int    `json:"from"`
	To     int    `json:"to"`
	Reason string `json:"reason"`
	// Figures are what the reason was computed of, by name.
	Figures map[string]float64 `json:"figures,omitempty"`
}

// String is the scaling in one line.
func (s Scaling) String() string {
	parts := []string{}
	for _, name := range SortedNames(s.Figures) {
		parts = append(parts, fmt.Sprintf("%s=%.4g", name, s.Figures[name]))
	}
	line := fmt.Sprintf("%s %d -> %d: %s", s.Job, s.From, s.To, s.Reason)
	if len(parts) > 0 {
		line += " (" + strings.Join(parts, ", ") + ")"
	}
	return line
}

// Records says which processes are current. Workers need no more of a backend.
type Records interface {
	// Instance looks up an instance by its id. Errors: ErrNotExist once the scheduler has
	// forgotten it, which it does long after the instance was replaced; ErrUnavailable.
	Instance(ctx context.Context, id string) (Instance, error)
}

// Backend starts and stops the jobs of runs on nodes. All methods may be called at any
// time from several processes. Errors: ErrUnavailable where nothing is known of the
// outcome, so that the call is to be repeated; ErrDenied and ErrUnsupported where
// repeating does not help.
type Backend interface {
	Records
	// Nodes lists all nodes that may hold instances of runs, in the order of their ids. It
	// counts the instances that Start has placed before; a stopped instance counts until it
	// has ended.
	Nodes(ctx context.Context) ([]Node, error)
	// Start registers a job of which the scheduler has the version index, 0 for none or a
	// stopped one. It returns when the scheduler has the job, not when instances run. Start of
	// a job that is there already with the same epoch changes nothing and returns its index.
	// Errors: *ConflictError where a job of the id lives that is of another epoch or version;
	// *NoCapacityError where the scheduler would not place all instances: nothing is registered then.
	Start(ctx context.Context, job Job, index uint64) (uint64, error)
	// Job describes a job. Errors: ErrNotExist.
	Job(ctx context.Context, id string) (JobState, error)
	// Stop tells the instances of a job of this epoch or an earlier one to end; it does not wait
	// for that. A later epoch is left alone. Stopping what is not there is no error.
	Stop(ctx context.Context, id string, epoch int) error
	// Scale sets the count of a group. Errors: ErrNotExist, ErrOutOfBounds, *ConflictError
	// where the count is not Scaling.From.
	Scale(ctx context.Context, s Scaling) error
	// SetEligible lets a node take new instances, or keeps them away; why is for people. It
	// ends a drain where eligible is true. Errors: ErrNotExist.
	SetEligible(ctx context.Context, node string, eligible bool, why string) error
	// Drain makes a node ineligible, tells its instances to end and kills after the deadline
	// what has not ended; it does not wait. Errors: ErrNotExist.
	Drain(ctx context.Context, node string, deadline time.Duration) error
	// Watch waits until nodes or instances may have changed since the index of an earlier
	// Watch, or ctx ends, and returns the index for the next Watch. Index 0 returns at
	// once.
	Watch(ctx context.Context, index uint64) (uint64, error)
}
