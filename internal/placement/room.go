package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// plot is a node with the room that is free on it, or would be.
type plot struct {
	node Node
	room Room
}

// plots are the open nodes with their free room and that of the members which counts
// names. Members on a node that is down hold none.
func (f view) plots(counts func(Member) bool) []plot {
	var out []plot
	for _, n := range f.Nodes {
		if n.State != NodeReady || f.drained(n.ID) {
			continue
		}
		p := plot{node: n, room: n.Free}
		for _, m := range n.Members {
			if m.State != MemberEnded && m.State != MemberLost && counts(m) {
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

func nobody(Member) bool    { return false }
func everybody(Member) bool { return true }

// of names the members of these runs.
func of(runs ...string) func(Member) bool {
	return func(m Member) bool {
		_, run, ok := strings.Cut(m.Job, "-")
		return ok && slices.Contains(runs, run)
	}
}

// fit is how much of a gang has room.
type fit struct {
	placed []int
	jobs   []Job
}

func (f fit) whole() bool {
	for i, j := range f.jobs {
		if f.placed[i] < j.Members {
			return false
		}
	}
	return true
}

// String says what is missing: "1 of 2 trainers with 8 amd/gpu each".
func (f fit) String() string {
	var parts []string
	for i, j := range f.jobs {
		if f.placed[i] < j.Members {
			part := fmt.Sprintf("%d of %d members of the %s have room (%s each", f.placed[i], j.Members, j.Role, j.Each)
			if j.Pool != "" {
				part += ", pool " + j.Pool
			}
			parts = append(parts, part+")")
		}
	}
	return strings.Join(parts, ", ")
}

// try places the jobs of a gang: the largest members first, each on the node where it
// leaves the least, no two of a job on one node.
func try(jobs []Job, plots []plot) fit {
	out := fit{placed: make([]int, len(jobs)), jobs: jobs}
	rooms := make([]Room, len(plots))
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
		for range jobs[i].Members {
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

// tightest is the plot with the least room that holds a member of the job; -1 for none.
func tightest(j Job, plots []plot, rooms []Room, used map[int]bool) int {
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
func compareRoom(a, b Room) int {
	return cmp.Or(cmp.Compare(sum(a.Devices), sum(b.Devices)), cmp.Compare(a.MemoryMiB, b.MemoryMiB), cmp.Compare(a.Cores, b.Cores))
}

func sum(devices map[string]int) (n int) {
	for _, name := range SortedNames(devices) {
		n += devices[name]
	}
	return n
}
