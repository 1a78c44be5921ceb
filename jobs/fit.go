package jobs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Capacity counts the free resources of nodes: the resources of a node less those that its
// allocations hold. Nomad's refusal gives no reason when devices are used up.
type Capacity struct{ nodes []*nodeCapacity }

type nodeCapacity struct {
	*api.NodeListStub
	cpu, memory int64
	mhz         int64          // of one core, 0 where cores cannot be reserved
	volumes     []string       // host volumes by name; nil when they are unknown
	devices     map[string]int // healthy free devices, by vendor/type/name
	allDevices  map[string]int // healthy devices, by vendor/type/name
	ports       map[int]bool
}

// NewCapacity counts the free resources of the nodes beside the allocations; both are
// listed with their resources. Allocations of the jobs in without count as gone.
func NewCapacity(nodes []*api.NodeListStub, allocs []*api.AllocationListStub, without ...string) *Capacity {
	r := &Capacity{}
	byID := map[string]*nodeCapacity{}
	for _, n := range nodes {
		room := newNodeCapacity(n)
		byID[n.ID] = room
		r.nodes = append(r.nodes, room)
	}
	slices.SortFunc(r.nodes, func(a, b *nodeCapacity) int { return strings.Compare(a.Name, b.Name) })
	for _, a := range allocs {
		room := byID[a.NodeID]
		if room == nil || a.AllocatedResources == nil || ended(a) || slices.Contains(without, a.JobID) {
			continue
		}
		room.take(a.AllocatedResources)
	}
	return r
}

// SetVolumes sets the host volumes of nodes, by the ids of the nodes: package api does not
// list them.
func (r *Capacity) SetVolumes(byNode map[string][]string) {
	for _, n := range r.nodes {
		n.volumes = append([]string{}, byNode[n.ID]...)
	}
}

// MayTake returns the names of the nodes that may take an instance of the group once they are up and have room.
func (r *Capacity) MayTake(j *api.Job, g *api.TaskGroup) []string {
	var out []string
	for _, n := range r.nodes {
		if n.Status != api.NodeStatusDown && n.misplaced(j) == "" && n.lacksVolume(g) == "" {
			out = append(out, n.Name)
		}
	}
	return out
}

// ended reports whether an allocation holds no resources.
func ended(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	default:
		return false
	}
}

func newNodeCapacity(n *api.NodeListStub) *nodeCapacity {
	room := &nodeCapacity{NodeListStub: n, devices: map[string]int{}, allDevices: map[string]int{}, ports: map[int]bool{}}
	if n.NodeResources == nil {
		return room
	}
	room.cpu = n.NodeResources.Cpu.CpuShares
	if cores := int64(len(n.NodeResources.Cpu.ReservableCpuCores)); cores > 0 {
		room.mhz = room.cpu / int64(n.NodeResources.Cpu.TotalCpuCores)
	}
	room.memory = n.NodeResources.Memory.MemoryMB
	if n.ReservedResources != nil {
		room.cpu -= int64(n.ReservedResources.Cpu.CpuShares)
		room.memory -= int64(n.ReservedResources.Memory.MemoryMB)
	}
	for _, d := range n.NodeResources.Devices {
		for _, instance := range d.Instances {
			if instance.Healthy {
				room.devices[deviceName(d.Vendor, d.Type, d.Name)]++
			}
		}
	}
	maps.Copy(room.allDevices, room.devices)
	return room
}

func deviceName(vendor, kind, name string) string { return vendor + "/" + kind + "/" + name }

func (n *nodeCapacity) take(used *api.AllocatedResources) {
	for _, t := range used.Tasks {
		n.cpu -= t.Cpu.CpuShares
		n.memory -= t.Memory.MemoryMB
		for _, d := range t.Devices {
			n.devices[deviceName(d.Vendor, d.Type, d.Name)] -= len(d.DeviceIDs)
		}
	}
	for _, p := range used.Shared.Ports {
		n.ports[p.Value] = true
	}
}

// Place puts as many instances of a group onto nodes as fit, and takes their resources. It
// returns how many instances found no node, and the reasons as lines of text.
func (r *Capacity) Place(j *api.Job, g *api.TaskGroup) (missing int, why []string) {
	reasons := map[string]int{}
	used := map[*nodeCapacity]bool{}
	for range *g.Count {
		var best *nodeCapacity
		reasons = map[string]int{}
		for _, n := range r.nodes {
			reason := n.refuses(j, g)
			if reason == "" && used[n] && distinctHosts(j, g) {
				reason = "has one already, and no two may share a node"
			}
			if reason != "" {
				reasons[reason]++
				continue
			}
			if best == nil || n.memory < best.memory { // best fit, as Nomad's, so that large ones find room behind small ones
				best = n
			}
		}
		if best == nil {
			missing++
			continue
		}
		best.hold(g)
		used[best] = true
	}
	if missing == 0 {
		return 0, nil
	}
	if len(r.nodes) == 0 {
		return missing, []string{"the cluster has no node"}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		why = append(why, fmt.Sprintf("%d of %d nodes: %s", reasons[reason], len(r.nodes), reason))
	}
	return missing, why
}

func distinctHosts(j *api.Job, g *api.TaskGroup) bool {
	return slices.ContainsFunc(slices.Concat(j.Constraints, g.Constraints), func(c *api.Constraint) bool { return c.Operand == api.ConstraintDistinctHosts })
}

// wants returns the resources of one instance of a group.
func wants(g *api.TaskGroup) (cpu, cores, memory int64, devices map[string]int) {
	devices = map[string]int{}
	for _, t := range g.Tasks {
		if t.Resources == nil {
			continue
		}
		cpu += int64(deref(t.Resources.CPU))
		cores += int64(deref(t.Resources.Cores))
		memory += int64(deref(t.Resources.MemoryMB))
		for _, d := range t.Resources.Devices {
			devices[d.Name] += int(deref(d.Count))
		}
	}
	return cpu, cores, memory, devices
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// misplaced returns why the pool or the datacenters of a job exclude the node; "" when they
// do not.
func (n *nodeCapacity) misplaced(j *api.Job) string {
	pool := cmp.Or(deref(j.NodePool), api.NodePoolDefault)
	switch {
	case pool != api.NodePoolAll && n.NodePool != pool:
		return "not in the node pool " + pool
	case !within(j.Datacenters, n.Datacenter):
		return fmt.Sprintf("in the datacenter %s, and not in %s", n.Datacenter, strings.Join(j.Datacenters, " or "))
	}
	return ""
}

// within reports whether names of datacenters include a datacenter; no names mean all.
func within(names []string, datacenter string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return matches(name, datacenter) })
}

// Within reports whether jobs of the cluster may be in a datacenter.
func Within(b Build, datacenter string) bool { return within(b.Nomad.Datacenters, datacenter) }

// matches reports whether a name is the wanted one, in which * matches any text.
func matches(wanted, name string) bool {
	first, rest, glob := strings.Cut(wanted, "*")
	if !glob {
		return wanted == name
	}
	name, begins := strings.CutPrefix(name, first)
	if !begins {
		return false
	}
	for i := range len(name) + 1 {
		if matches(rest, name[i:]) {
			return true
		}
	}
	return false
}

// lacksVolume returns a host volume of the group that the node lacks; "" when it has all.
// It skips volumes for single instances, whose names only the scheduler knows.
func (n *nodeCapacity) lacksVolume(g *api.TaskGroup) string {
	for _, name := range slices.Sorted(maps.Keys(g.Volumes)) {
		if v := g.Volumes[name]; v.Type == "host" && !v.PerAlloc && n.volumes != nil && !slices.Contains(n.volumes, v.Source) {
			return v.Source
		}
	}
	return ""
}

// refuses returns why an instance of the group cannot be on the node; "" when it can.
func (n *nodeCapacity) refuses(j *api.Job, g *api.TaskGroup) string {
	if reason := n.misplaced(j); reason != "" {
		return reason
	}
	switch {
	case n.Status != api.NodeStatusReady:
		return "is " + n.Status
	case n.Drain:
		return "is draining"
	case n.SchedulingEligibility != api.NodeSchedulingEligible:
		return "takes nothing new (ineligible)"
	}
	for _, t := range g.Tasks {
		if d := n.Drivers[t.Driver]; d == nil || !d.Healthy {
			return fmt.Sprintf("has no driver %s", t.Driver)
		}
	}
	if volume := n.lacksVolume(g); volume != "" {
		return fmt.Sprintf("has no host_volume %q in its client block", volume)
	}
	cpu, cores, memory, devices := wants(g)
	for name, count := range devices {
		free, all := countDevices(n.devices, name), countDevices(n.allDevices, name)
		if all == 0 {
			return "has no device " + name
		}
		if free < count {
			return fmt.Sprintf("has %d of %d %s free, and %d are needed", free, all, name, count)
		}
	}
	switch {
	case n.cpu < cpu:
		return fmt.Sprintf("lacks processors: %d MHz are needed", cpu)
	case n.cores() < cores:
		return fmt.Sprintf("lacks cores: %d are needed", cores)
	case n.memory < memory:
		return fmt.Sprintf("lacks memory: %d MiB are needed", memory)
	}
	for _, network := range g.Networks {
		for _, p := range network.ReservedPorts {
			if n.ports[p.Value] {
				return fmt.Sprintf("port %d is taken", p.Value)
			}
		}
	}
	return ""
}

// countDevices adds up the devices that an asked name covers: vendor/type covers every
// model.
func countDevices(devices map[string]int, asked string) int {
	n := 0
	for name, count := range devices {
		if name == asked || strings.HasPrefix(name, asked+"/") {
			n += count
		}
	}
	return n
}

// cores returns the free whole cores. A reserved core counts with its share of the node's
// MHz, since servers do not list the reserved cores.
func (n *nodeCapacity) cores() int64 {
	if n.mhz == 0 {
		return 0
	}
	return n.cpu / n.mhz
}

// hold takes the resources of one instance.
func (n *nodeCapacity) hold(g *api.TaskGroup) {
	cpu, cores, memory, devices := wants(g)
	n.cpu, n.memory = n.cpu-cpu-cores*n.mhz, n.memory-memory
	for asked, count := range devices {
		for name := range n.devices {
			if name == asked || strings.HasPrefix(name, asked+"/") {
				take := min(count, n.devices[name])
				n.devices[name] -= take
				count -= take
			}
		}
	}
	for _, network := range g.Networks {
		for _, p := range network.ReservedPorts {
			n.ports[p.Value] = true
		}
	}
}

// NodeUsage holds the resources of one node and the part that allocations hold.
type NodeUsage struct {
	*api.NodeListStub
	// AllDevices counts the healthy devices by vendor/type/name, TakenDevices the held ones.
	AllDevices, TakenDevices map[string]int
	// FreeDevices are AllDevices less TakenDevices.
	FreeDevices map[string]int
	// CPU is in MHz, Memory in MiB, Cores counts whole cores; each is held and total.
	CPU, Memory, Cores [2]int64
}

// State returns the node's condition: ready, down, draining or ineligible.
func (n NodeUsage) State() string {
	switch {
	case n.Status != api.NodeStatusReady:
		return n.Status
	case n.Drain:
		return "draining"
	case n.SchedulingEligibility != api.NodeSchedulingEligible:
		return "ineligible"
	default:
		return n.Status
	}
}

// Nodes returns all nodes, sorted by name.
func (r *Capacity) Nodes() []NodeUsage {
	var out []NodeUsage
	for _, n := range r.nodes {
		taken := map[string]int{}
		for name, all := range n.allDevices {
			taken[name] = all - n.devices[name]
		}
		full := newNodeCapacity(n.NodeListStub)
		out = append(out, NodeUsage{
			NodeListStub: n.NodeListStub, AllDevices: n.allDevices, TakenDevices: taken, FreeDevices: maps.Clone(n.devices),
			Cores: [2]int64{full.cores() - n.cores(), full.cores()},
			CPU:   [2]int64{full.cpu - n.cpu, full.cpu}, Memory: [2]int64{full.memory - n.memory, full.memory},
		})
	}
	return out
}
