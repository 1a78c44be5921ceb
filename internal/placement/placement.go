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

// Room is what a member needs, or what a node has. Zero needs nothing of a thing.
type Room struct {
	// Cores are whole processors.
	Cores     int `json:"cores,omitempty"`
	MemoryMiB int `json:"memory_mib,omitempty"`
	// Devices are counts by the name that the scheduler has for them, such as
	// "amd/gpu" or "amd/gpu/MI300X".
	Devices map[string]int `json:"devices,omitempty"`
}

// Holds reports whether other fits into r. A device that is asked for by a short name
// fits one whose name goes on: "amd/gpu" is met by "amd/gpu/MI300X".
func (r Room) Holds(other Room) bool {
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

func (r Room) numDevices(name string) int {
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

// Plus is both rooms together.
func (r Room) Plus(other Room) Room {
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

// Minus is what is left of r without other, which it Holds. Devices that were asked for
// by a short name are taken from the longer ones in the order of their names.
func (r Room) Minus(other Room) Room {
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

// String lists what there is: "8 amd/gpu, 16 cores, 4096 MiB".
func (r Room) String() string {
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

// NodeState says whether a node takes members.
type NodeState string

// The states of a node.
const (
	NodeReady NodeState = "ready"
	// NodeClosed takes no new members and keeps those that it has: an operator, or a
	// drain that has not begun, has made it ineligible.
	NodeClosed NodeState = "closed"
	// NodeDraining is losing its members.
	NodeDraining NodeState = "draining"
	// NodeDown does not answer the scheduler. Its members may go on nevertheless.
	NodeDown NodeState = "down"
)

// Node is a machine on which members of runs may be.
type Node struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Pool is the part of the cluster that the node belongs to.
	Pool  string    `json:"pool,omitempty"`
	State NodeState `json:"state"`
	// Has is all room in working order, Free what no allocation of anybody holds. The
	// scheduler's own refusal may not say why, so that both are counted.
	Has  Room `json:"has"`
	Free Room `json:"free"`
	// Members are those of runs' jobs that hold room here, ending ones included.
	Members []Member `json:"members,omitempty"`
}

// Role is what the members of a job do.
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

// Queues are the task queues of a run. Zero values are those that all runs share.
type Queues struct {
	Trainer string `json:"trainer,omitempty"`
	Rollout string `json:"rollout,omitempty"`
}

// QueuesOf are the queues of a run that has workers of its own.
func QueuesOf(runID string) Queues {
	return Queues{Trainer: "temper-trainer-" + runID, Rollout: "temper-rollout-" + runID}
}

// Job is a job of a run: equal members, no two on one node.
type Job struct {
	// ID is JobID(Role, Run).
	ID   string `json:"id"`
	Run  string `json:"run"`
	Role Role   `json:"role"`
	// Epoch counts the admissions of the run from 1. A job of another epoch is another
	// job, though it has the same id.
	Epoch   int `json:"epoch"`
	Members int `json:"members"`
	// Most bounds Scale from above, where the job may grow; 0 is Members, its bound from below.
	Most int    `json:"most,omitempty"`
	Each Room   `json:"each"`
	Pool string `json:"pool,omitempty"` // "" = any
	// Queues are those that its members poll. A trainer that polls both samples as well.
	Queues Queues `json:"queues"`
	// Priority of the run: 1 (first) to 5.
	Priority int `json:"priority"`
}

// MemberState is how far a member is.
type MemberState string

// The states of a member.
const (
	MemberPending MemberState = "pending"
	MemberRunning MemberState = "running"
	// MemberLost is on a node that is down. Its process may go on.
	MemberLost MemberState = "lost"
	// MemberEnded has exited, for whatever reason, and holds no room.
	MemberEnded MemberState = "ended"
)

// Member is one process of a job: an allocation.
type Member struct {
	// ID is the allocation's: NOMAD_ALLOC_ID of the process.
	ID    string      `json:"id"`
	Job   string      `json:"job"`
	Epoch int         `json:"epoch"`
	Index int         `json:"index"`
	Node  string      `json:"node"`
	State MemberState `json:"state"`
	// Wanted is false for one that was told to end: stopped, evicted or replaced.
	Wanted bool `json:"wanted,omitempty"`
	// Each is the room that it holds.
	Each Room `json:"each"`
}

// OnRecord reports whether the process of the member is still the one that counts. One
// that is not must do no more work: another has its place.
func (m Member) OnRecord() bool {
	return m.Wanted && (m.State == MemberPending || m.State == MemberRunning)
}

// JobState is a job as it is. Members holds those on record and those that still hold
// room; it may hold ended ones.
type JobState struct {
	ID    string `json:"id"`
	Epoch int    `json:"epoch"`
	// Index changes with each change of the job.
	Index uint64 `json:"index"`
	// Stopped jobs have no members, or only ending ones.
	Stopped bool `json:"stopped,omitempty"`
	// Count is the number of members that are wanted, Least and Most the bounds for Scale.
	Count   int      `json:"count"`
	Least   int      `json:"least,omitempty"`
	Most    int      `json:"most,omitempty"`
	Members []Member `json:"members,omitempty"`
}

// Running counts the members on record that run.
func (s JobState) Running() int {
	n := 0
	for _, m := range s.Members {
		if m.OnRecord() && m.State == MemberRunning {
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

// Records says which process counts. It is what a worker needs of a backend.
type Records interface {
	// Member looks up a member by its id. Errors: ErrNotExist once the scheduler has
	// forgotten it, which it does long after the member was replaced; ErrUnavailable.
	Member(ctx context.Context, id string) (Member, error)
}

// Backend starts and stops the jobs of runs on nodes. All methods may be called at any
// time from several processes. Errors: ErrUnavailable where nothing is known of the
// outcome, so that the call is to be repeated; ErrDenied and ErrUnsupported where
// repeating does not help.
type Backend interface {
	Records
	// Nodes lists all nodes that may hold members of runs, in the order of their ids. What
	// Start has placed before is counted; a stopped member is until it has ended.
	Nodes(ctx context.Context) ([]Node, error)
	// Start registers a job of which the scheduler has the version index, 0 for none or a
	// stopped one. It returns when the scheduler has the job, not when members run. Start of
	// a job that is there already with the same epoch changes nothing and returns its index.
	// Errors: *ConflictError where a job of the id lives that is of another epoch or version;
	// *NoRoomError where the scheduler would not place all members: nothing is registered then.
	Start(ctx context.Context, job Job, index uint64) (uint64, error)
	// Job describes a job. Errors: ErrNotExist.
	Job(ctx context.Context, id string) (JobState, error)
	// Stop tells the members of a job of this epoch or an earlier one to end; it does not wait
	// for that. A later epoch is left alone. Stopping what is not there is no error.
	Stop(ctx context.Context, id string, epoch int) error
	// Scale sets the count of a group. Errors: ErrNotExist, ErrOutOfBounds, *ConflictError
	// where the count is not Scaling.From.
	Scale(ctx context.Context, s Scaling) error
	// SetEligible lets a node take new members, or keeps them away; why is for people. It
	// ends a drain where eligible is true. Errors: ErrNotExist.
	SetEligible(ctx context.Context, node string, eligible bool, why string) error
	// Drain makes a node ineligible, tells its members to end and kills after the deadline
	// what has not ended; it does not wait. Errors: ErrNotExist.
	Drain(ctx context.Context, node string, deadline time.Duration) error
	// Watch waits until nodes or members may have changed since the index of an earlier
	// Watch, or ctx ends, and returns an index to go on from. Index 0 returns at once.
	Watch(ctx context.Context, index uint64) (uint64, error)
}
