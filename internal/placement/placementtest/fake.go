// Package placementtest owns a cluster in memory and the conformance suite of
// placement.Backend. Callers must not rely on anything that the suite does not check.
//
// Invariant: the suite knows the port only, never a scheduler.
package placementtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"temper/internal/placement"
)

// Fake is a scheduler in memory. Instances run at once and end at once, unless it is told
// otherwise. It places a job whole or not at all, replaces instances that are lost where
// there is room, and is safe for concurrent use.
type Fake struct {
	mu        sync.Mutex
	changed   chan struct{} // closed at each change
	index     uint64
	nodes     map[string]*fakeNode
	jobs      map[string]*fakeJob
	instances map[string]*placement.Instance
	// ended are instances that only Instance still tells of.
	ended  map[string]*placement.Instance
	serial int
	flaws  Flaws
	scaled []placement.Scaling
}

// Flaws are how a Fake behaves otherwise than well.
type Flaws struct {
	// Away has every call fail with ErrUnavailable.
	Away bool
	// LoseAnswers is the number of Start calls that do their work and fail nevertheless.
	LoseAnswers int
	// SlowStart leaves instances pending until RunMembers, SlowStop leaves stopped ones until
	// EndMembers.
	SlowStart, SlowStop bool
	// NeverReplace leaves a job without the instances that it has lost.
	NeverReplace bool
}

type fakeNode struct {
	placement.Node
}

type fakeJob struct {
	placement.Job
	index       uint64
	stopped     bool
	least, most int
}

var _ placement.Backend = (*Fake)(nil)

// NewFake makes a cluster of these nodes, which are ready unless they say otherwise.
func NewFake(nodes ...placement.Node) *Fake {
	f := &Fake{changed: make(chan struct{}), index: 1, nodes: map[string]*fakeNode{}, jobs: map[string]*fakeJob{}, instances: map[string]*placement.Instance{}, ended: map[string]*placement.Instance{}}
	for _, n := range nodes {
		n.State = cmp.Or(n.State, placement.NodeReady)
		f.nodes[n.ID] = &fakeNode{Node: n}
	}
	return f
}

// GPUNodes are n nodes of 8 devices "amd/gpu" each, in the pool gpu.
func GPUNodes(n int) []placement.Node {
	out := make([]placement.Node, n)
	for i := range out {
		id := fmt.Sprintf("node-%03d", i)
		out[i] = placement.Node{ID: id, Name: id, Pool: "gpu", Has: placement.Resources{Cores: 96, MemoryMiB: 1 << 20, Devices: map[string]int{"amd/gpu": 8}}}
	}
	return out
}

// Flaw changes how the cluster behaves from now on.
func (f *Fake) Flaw(flaws Flaws) {
	defer f.change()()
	f.flaws = flaws
}

// AddService adds a job of the operator's with the bounds for Scale.
func (f *Fake) AddService(id string, count, least, most int) {
	defer f.change()()
	f.jobs[id] = &fakeJob{Job: placement.Job{ID: id, Instances: count}, index: f.index, least: least, most: most}
}

// Scalings are all that were carried out, in their order.
func (f *Fake) Scalings() []placement.Scaling {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.scaled)
}

// LoseNode takes a node away; its instances are lost, and replaced where there is room.
func (f *Fake) LoseNode(id string) {
	defer f.change()()
	f.nodes[id].State = placement.NodeDown
	for _, m := range f.sortedMembers() {
		if m.Node == id && m.State != placement.InstanceEnded {
			f.drop(m, placement.InstanceLost)
		}
	}
}

// ReturnNode brings a node back, empty.
func (f *Fake) ReturnNode(id string) {
	defer f.change()()
	f.nodes[id].State = placement.NodeReady
	for _, m := range f.instances {
		if m.Node == id {
			m.State, m.Wanted = placement.InstanceEnded, false
		}
	}
	f.replaceMissing()
}

// RunMembers has all pending instances run.
func (f *Fake) RunMembers() {
	defer f.change()()
	for _, m := range f.instances {
		if m.State == placement.InstancePending {
			m.State = placement.InstanceRunning
		}
	}
}

// EndMembers has all instances end that were told to.
func (f *Fake) EndMembers() {
	defer f.change()()
	for _, m := range f.instances {
		if !m.Wanted && m.State != placement.InstanceLost {
			m.State = placement.InstanceEnded
		}
	}
	f.replaceMissing()
}

// change locks the cluster; what it returns unlocks it and wakes who watches.
func (f *Fake) change() func() {
	f.mu.Lock()
	return func() {
		for id, m := range f.instances {
			if m.State == placement.InstanceEnded {
				f.ended[id] = m
				delete(f.instances, id)
			}
		}
		f.index++
		close(f.changed)
		f.changed = make(chan struct{})
		f.mu.Unlock()
	}
}

func (f *Fake) sortedMembers() []*placement.Instance {
	out := make([]*placement.Instance, 0, len(f.instances))
	for _, id := range slices.Sorted(maps.Keys(f.instances)) {
		out = append(out, f.instances[id])
	}
	return out
}

// drop takes an instance off the record and puts another in its place where it can.
func (f *Fake) drop(m *placement.Instance, as placement.InstanceState) {
	m.State, m.Wanted = as, false
	f.replaceMissing()
}

// replaceMissing places what jobs lack.
func (f *Fake) replaceMissing() {
	if f.flaws.NeverReplace {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
		if j := f.jobs[id]; !j.stopped && j.Role != "" {
			f.place(j)
		}
	}
}

// place puts the instances that a job lacks on nodes, as many as there is room for.
func (f *Fake) place(j *fakeJob) {
	taken := map[int]bool{}
	on := map[string]bool{}
	for _, m := range f.instances {
		if m.Job == j.ID && m.Epoch == j.Epoch && m.Current() {
			taken[m.Index], on[m.Node] = true, true
		}
	}
	for i := range j.Instances {
		if taken[i] {
			continue
		}
		node := f.nodeFor(j, on)
		if node == nil {
			return
		}
		on[node.ID] = true
		f.serial++
		state := placement.InstanceRunning
		if f.flaws.SlowStart {
			state = placement.InstancePending
		}
		id := fmt.Sprintf("alloc-%06d", f.serial)
		f.instances[id] = &placement.Instance{ID: id, Job: j.ID, Epoch: j.Epoch, Index: i, Node: node.ID, State: state, Wanted: true, Each: j.Each}
	}
}

func (f *Fake) nodeFor(j *fakeJob, not map[string]bool) *fakeNode {
	for _, id := range slices.Sorted(maps.Keys(f.nodes)) {
		n := f.nodes[id]
		if n.State == placement.NodeReady && !not[id] && (j.Pool == "" || j.Pool == n.Pool) && f.free(n).Holds(j.Each) {
			return n
		}
	}
	return nil
}

// free is the room of a node that no instance holds.
func (f *Fake) free(n *fakeNode) placement.Resources {
	room := n.Has
	for _, m := range f.instances {
		if m.Node == n.ID && (m.State == placement.InstancePending || m.State == placement.InstanceRunning) {
			room = room.Minus(m.Each)
		}
	}
	return room
}

func (f *Fake) away(ctx context.Context) error {
	if f.flaws.Away {
		return fmt.Errorf("the fake cluster: %w", placement.ErrUnavailable)
	}
	return ctx.Err()
}

// Nodes implements placement.Backend.
func (f *Fake) Nodes(ctx context.Context) ([]placement.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.away(ctx); err != nil {
		return nil, err
	}
	on := map[string][]placement.Instance{}
	for _, m := range f.sortedMembers() {
		on[m.Node] = append(on[m.Node], *m)
	}
	var out []placement.Node
	for _, id := range slices.Sorted(maps.Keys(f.nodes)) {
		n := f.nodes[id].Node
		n.Free, n.Instances = f.free(f.nodes[id]), on[id]
		out = append(out, n)
	}
	return out, nil
}

// Start implements placement.Backend.
func (f *Fake) Start(ctx context.Context, job placement.Job, index uint64) (uint64, error) {
	defer f.change()()
	if err := f.away(ctx); err != nil {
		return 0, err
	}
	if err := f.register(job, index); err != nil {
		return 0, err
	}
	if f.flaws.LoseAnswers > 0 {
		f.flaws.LoseAnswers--
		return 0, fmt.Errorf("the answer of the fake cluster was lost: %w", placement.ErrUnavailable)
	}
	return f.jobs[job.ID].index, nil
}

func (f *Fake) register(job placement.Job, index uint64) error {
	j := f.jobs[job.ID]
	if j != nil && !j.stopped {
		if j.Epoch == job.Epoch {
			return nil
		}
		return &placement.ConflictError{Job: job.ID, Have: j.index, Epoch: j.Epoch, Text: fmt.Sprintf("epoch %d was to be started", job.Epoch)}
	}
	if index != 0 && (j == nil || j.index != index) {
		return &placement.ConflictError{Job: job.ID, Text: fmt.Sprintf("index %d was expected", index)}
	}
	if j != nil && j.Epoch > job.Epoch {
		return &placement.ConflictError{Job: job.ID, Have: j.index, Epoch: j.Epoch, Text: fmt.Sprintf("epoch %d was to be started", job.Epoch)}
	}
	before := f.serial
	next := &fakeJob{Job: job, index: f.index, least: job.Instances, most: max(job.Instances, job.Most)}
	f.place(next)
	if placed := f.serial - before; placed < job.Instances {
		for n := before + 1; n <= f.serial; n++ {
			delete(f.instances, fmt.Sprintf("alloc-%06d", n))
		}
		f.serial = before
		return &placement.NoCapacityError{Job: job.ID, Why: []string{fmt.Sprintf("%d of %d instances: no other node has %s free", placed, job.Instances, job.Each)}}
	}
	f.jobs[job.ID] = next
	return nil
}

// Job implements placement.Backend.
func (f *Fake) Job(ctx context.Context, id string) (placement.JobState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.away(ctx); err != nil {
		return placement.JobState{}, err
	}
	j := f.jobs[id]
	if j == nil {
		return placement.JobState{}, fmt.Errorf("job %s: %w", id, placement.ErrNotExist)
	}
	out := placement.JobState{ID: id, Epoch: j.Epoch, Index: j.index, Stopped: j.stopped, Count: j.Instances, Least: j.least, Most: j.most}
	for _, m := range f.sortedMembers() {
		if m.Job == id && m.State != placement.InstanceEnded {
			out.Instances = append(out.Instances, *m)
		}
	}
	return out, nil
}

// Stop implements placement.Backend.
func (f *Fake) Stop(ctx context.Context, id string, epoch int) error {
	defer f.change()()
	if err := f.away(ctx); err != nil {
		return err
	}
	j := f.jobs[id]
	if j == nil || j.Epoch > epoch || j.stopped {
		return nil
	}
	j.stopped, j.index = true, f.index
	for _, m := range f.sortedMembers() {
		if m.Job == id {
			f.tellToEnd(m)
		}
	}
	f.replaceMissing()
	return nil
}

// tellToEnd takes an instance off the record. It ends, at once or in a while.
func (f *Fake) tellToEnd(m *placement.Instance) {
	m.Wanted = false
	if !f.flaws.SlowStop && m.State != placement.InstanceLost {
		m.State = placement.InstanceEnded
	}
}

// Scale implements placement.Backend.
func (f *Fake) Scale(ctx context.Context, s placement.Scaling) error {
	defer f.change()()
	if err := f.away(ctx); err != nil {
		return err
	}
	j := f.jobs[s.Job]
	switch {
	case j == nil || j.stopped:
		return fmt.Errorf("job %s: %w", s.Job, placement.ErrNotExist)
	case j.most > 0 && (s.To < j.least || s.To > j.most):
		return fmt.Errorf("job %s: %d is %w: want %d to %d", s.Job, s.To, placement.ErrOutOfBounds, j.least, j.most)
	case s.From >= 0 && s.From != j.Instances:
		return &placement.ConflictError{Job: s.Job, Have: j.index, Epoch: j.Epoch, Text: fmt.Sprintf("its count is %d, not %d", j.Instances, s.From)}
	}
	j.Instances, j.index = s.To, f.index
	f.scaled = append(f.scaled, s)
	for _, m := range f.sortedMembers() {
		if m.Job == s.Job && m.Current() && m.Index >= s.To {
			f.tellToEnd(m)
		}
	}
	f.replaceMissing()
	return nil
}

// SetEligible implements placement.Backend.
func (f *Fake) SetEligible(ctx context.Context, node string, eligible bool, _ string) error {
	defer f.change()()
	if err := f.away(ctx); err != nil {
		return err
	}
	n := f.nodes[node]
	if n == nil {
		return fmt.Errorf("node %s: %w", node, placement.ErrNotExist)
	}
	switch {
	case n.State == placement.NodeDown:
	case eligible:
		n.State = placement.NodeReady
	case n.State == placement.NodeReady:
		n.State = placement.NodeClosed
	}
	f.replaceMissing()
	return nil
}

// Drain implements placement.Backend.
func (f *Fake) Drain(ctx context.Context, node string, _ time.Duration) error {
	defer f.change()()
	if err := f.away(ctx); err != nil {
		return err
	}
	n := f.nodes[node]
	if n == nil {
		return fmt.Errorf("node %s: %w", node, placement.ErrNotExist)
	}
	if n.State != placement.NodeDown {
		n.State = placement.NodeDraining
	}
	for _, m := range f.sortedMembers() {
		if m.Node == node && m.Current() {
			f.tellToEnd(m)
		}
	}
	f.replaceMissing()
	return nil
}

// Watch implements placement.Backend.
func (f *Fake) Watch(ctx context.Context, index uint64) (uint64, error) {
	for {
		f.mu.Lock()
		now, changed, err := f.index, f.changed, f.away(ctx)
		f.mu.Unlock()
		if err != nil || now > index {
			return now, err
		}
		select {
		case <-ctx.Done():
			return index, ctx.Err()
		case <-changed:
		}
	}
}

// Instance implements placement.Records.
func (f *Fake) Instance(ctx context.Context, id string) (placement.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.away(ctx); err != nil {
		return placement.Instance{}, err
	}
	m := cmp.Or(f.instances[id], f.ended[id])
	if m == nil {
		return placement.Instance{}, fmt.Errorf("instance %s: %w", id, placement.ErrNotExist)
	}
	return *m, nil
}
