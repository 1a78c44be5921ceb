package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// snapshot is the cluster as it was last seen.
type snapshot struct {
	nodes  []Node
	drains []Drain
}

func (a *Admission) snapshot() snapshot { return snapshot{a.Nodes, a.Drains} }

// candidate is a node with the resources that are free on it, or would be.
type candidate struct {
	node Node
	free Resources
}

// candidates returns the open nodes with their free resources and those of the instances which counts
// names. Instances on a node that is down hold none.
func (s snapshot) candidates(counts func(Instance) bool) []candidate {
	var out []candidate
	for _, n := range s.nodes {
		if n.State != NodeReady || s.drained(n.ID) {
			continue
		}
		c := candidate{node: n, free: n.Free}
		for _, i := range n.Instances {
			if holds(i) && counts(i) {
				c.free = c.free.Plus(i.Each)
			}
		}
		out = append(out, c)
	}
	return out
}

func (s snapshot) drained(node string) bool {
	return slices.ContainsFunc(s.drains, func(d Drain) bool { return d.Node == node && !d.Over })
}

// holdsResources reports whether instances of a run hold resources.
func (s snapshot) holdsResources(run string) bool {
	mine := of(run)
	return slices.ContainsFunc(s.nodes, func(n Node) bool {
		return slices.ContainsFunc(n.Instances, func(i Instance) bool { return mine(i) && holds(i) })
	})
}

// newestEpoch returns the newest epoch of which a run has current instances; 0 for none.
func (s snapshot) newestEpoch(run string) (epoch int) {
	mine := of(run)
	for _, n := range s.nodes {
		for _, i := range n.Instances {
			if mine(i) && i.Current() {
				epoch = max(epoch, i.Epoch)
			}
		}
	}
	return epoch
}

// missing reports what a gang lacks; "" when it is whole.
func (s snapshot) missing(t *Tenant) string {
	for _, j := range t.Need.Jobs(t.Run, t.Epoch, t.Priority) {
		if n := s.numRunning(j); n < j.Instances {
			return fmt.Sprintf("%d of %d instances of the %s run", n, j.Instances, j.Role)
		}
	}
	return ""
}

// numRunning counts the current instances of a job that run.
func (s snapshot) numRunning(j Job) (n int) {
	for _, node := range s.nodes {
		for _, i := range node.Instances {
			if i.Job == j.ID && i.Epoch == j.Epoch && i.Current() && i.State == InstanceRunning {
				n++
			}
		}
	}
	return n
}

// holds reports whether an instance holds resources of its node.
func holds(i Instance) bool {
	return i.State != InstanceEnded && i.State != InstanceLost
}

func none(Instance) bool { return false }
func all(Instance) bool  { return true }

// of returns a function that names the instances of these runs.
func of(runs ...string) func(Instance) bool {
	return func(m Instance) bool {
		_, run, ok := strings.Cut(m.Job, "-")
		return ok && slices.Contains(runs, run)
	}
}

// packing is how many instances of a gang find a node.
type packing struct {
	placed []int
	jobs   []Job
}

func (p packing) whole() bool {
	for i, j := range p.jobs {
		if p.placed[i] < j.Instances {
			return false
		}
	}
	return true
}

// String reports what is missing: "1 of 2 trainers with 8 amd/gpu each".
func (p packing) String() string {
	var parts []string
	for i, j := range p.jobs {
		if p.placed[i] < j.Instances {
			part := fmt.Sprintf("%d of %d instances of the %s have room (%s each", p.placed[i], j.Instances, j.Role, j.Each)
			if j.Pool != "" {
				part += ", pool " + j.Pool
			}
			parts = append(parts, part+")")
		}
	}
	return strings.Join(parts, ", ")
}

// pack places the jobs of a gang: the largest instances first, each on the node where it
// leaves the least, no two of a job on one node.
func pack(jobs []Job, nodes []candidate) packing {
	out := packing{placed: make([]int, len(jobs)), jobs: jobs}
	nodes = slices.Clone(nodes)
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return -compareResources(jobs[a].Each, jobs[b].Each) })
	for _, i := range order {
		used := map[int]bool{}
		for range jobs[i].Instances {
			at := tightest(jobs[i], nodes, used)
			if at < 0 {
				break
			}
			used[at] = true
			nodes[at].free = nodes[at].free.Minus(jobs[i].Each)
			out.placed[i]++
		}
	}
	return out
}

// tightest returns the index of the candidate with the least free resources that holds an instance of the job; -1 for none.
func tightest(j Job, nodes []candidate, used map[int]bool) int {
	best := -1
	for i, c := range nodes {
		if used[i] || j.Pool != "" && c.node.Pool != j.Pool || !c.free.Holds(j.Each) {
			continue
		}
		if best < 0 || compareResources(c.free, nodes[best].free) < 0 {
			best = i
		}
	}
	return best
}

// compareResources orders by devices, then memory, then cores.
func compareResources(a, b Resources) int {
	return cmp.Or(cmp.Compare(sum(a.Devices), sum(b.Devices)), cmp.Compare(a.MemoryMiB, b.MemoryMiB), cmp.Compare(a.Cores, b.Cores))
}

func sum(devices map[string]int) (n int) {
	for _, name := range SortedNames(devices) {
		n += devices[name]
	}
	return n
}
