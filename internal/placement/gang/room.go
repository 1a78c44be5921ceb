package gang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"temper/internal/placement"
)

// plot is a node with the room that is free on it, or would be.
type plot struct {
	node placement.Node
	room placement.Resources
}

// plots are the open nodes with their free room and that of the instances which counts
// names. Instances on a node that is down hold none.
func (f view) plots(counts func(placement.Instance) bool) []plot {
	var out []plot
	for _, n := range f.Nodes {
		if n.State != placement.NodeReady || f.drained(n.ID) {
			continue
		}
		p := plot{node: n, room: n.Free}
		for _, m := range n.Instances {
			if m.State != placement.InstanceEnded && m.State != placement.InstanceLost && counts(m) {
				p.room = p.room.Plus(m.Each)
			}
		}
		out = append(out, p)
	}
	return out
}

func (f view) drained(node string) bool {
	return slices.ContainsFunc(f.Drains, func(d Drain) bool { return d.Node == node && !d.Over })
}

func nobody(placement.Instance) bool    { return false }
func everybody(placement.Instance) bool { return true }

// of names the instances of these runs.
func of(runs ...string) func(placement.Instance) bool {
	return func(m placement.Instance) bool {
		_, run, ok := strings.Cut(m.Job, "-")
		return ok && slices.Contains(runs, run)
	}
}

// fit is how much of a gang has room.
type fit struct {
	placed []int
	jobs   []placement.Job
}

func (f fit) whole() bool {
	for i, j := range f.jobs {
		if f.placed[i] < j.Instances {
			return false
		}
	}
	return true
}

// String says what is missing: "1 of 2 trainers with 8 amd/gpu each".
func (f fit) String() string {
	var parts []string
	for i, j := range f.jobs {
		if f.placed[i] < j.Instances {
			part := fmt.Sprintf("%d of %d instances of the %s have room (%s each", f.placed[i], j.Instances, j.Role, j.Each)
			if j.Pool != "" {
				part += ", pool " + j.Pool
			}
			parts = append(parts, part+")")
		}
	}
	return strings.Join(parts, ", ")
}

// try places the jobs of a gang: the largest instances first, each on the node where it
// leaves the least, no two of a job on one node.
func try(jobs []placement.Job, plots []plot) fit {
	out := fit{placed: make([]int, len(jobs)), jobs: jobs}
	rooms := make([]placement.Resources, len(plots))
	for i, p := range plots {
		rooms[i] = p.room
	}
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return -compareRoom(jobs[a].Each, jobs[b].Each) })
	for _, i := range order {
		used := map[int]bool{}
		for range jobs[i].Instances {
			at := tightest(jobs[i], plots, rooms, used)
			if at < 0 {
				break
			}
			used[at] = true
			rooms[at] = rooms[at].Minus(jobs[i].Each)
			out.placed[i]++
		}
	}
	return out
}

// tightest is the plot with the least room that holds an instance of the job; -1 for none.
func tightest(j placement.Job, plots []plot, rooms []placement.Resources, used map[int]bool) int {
	best := -1
	for i, p := range plots {
		if used[i] || j.Pool != "" && p.node.Pool != j.Pool || !rooms[i].Holds(j.Each) {
			continue
		}
		if best < 0 || compareRoom(rooms[i], rooms[best]) < 0 {
			best = i
		}
	}
	return best
}

// compareRoom orders rooms by devices, then memory, then cores.
func compareRoom(a, b placement.Resources) int {
	return cmp.Or(cmp.Compare(sum(a.Devices), sum(b.Devices)), cmp.Compare(a.MemoryMiB, b.MemoryMiB), cmp.Compare(a.Cores, b.Cores))
}

func sum(devices map[string]int) (n int) {
	for _, name := range placement.SortedNames(devices) {
		n += devices[name]
	}
	return n
}
