// Package schedulerbench runs the scheduler of internal/inference/scheduler under simulated time:
// engines by a roofline, rollouts that were drawn or stored. It compares policies with
// each other, with an oracle and with a bound. It measures nothing of this machine but
// what a decision costs.
//
// Invariant: equal settings and seeds give equal tables.
package schedulerbench

import (
	"container/heap"
	"fmt"
	"time"

	"temper/internal/inference/scheduler"
)

// Setting is one simulation.
type Setting struct {
	Hardware Hardware
	Engines  int
	Config   scheduler.Config
	// Lockstep lets the tools of an engine's rollouts run together, when all its turns
	// have ended.
	Lockstep bool
	// Window is how many steps may be sampled ahead; 0 ends each before the next.
	Window int
	// History are steps whose lengths the scheduler has seen before.
	History [][]Rollout
	Stage   int
}

// Outcome is what a simulation gave.
type Outcome struct {
	// Seconds of all steps, and when each ended.
	Seconds float64
	Ends    []float64
	// Preempted is the number of trajectories that lost their cache while they ran.
	Preempted, Trajectories        int
	Recomputed, Prefilled, Sampled int64
	Moves, Drops, Decisions        int64
	Reserved                       int64
	Busy                           float64 // share of the engines' time
}

type counts struct {
	recomputed, prefilled, preemptions int64
}

// job is one trajectory on its way.
type job struct {
	*Rollout
	step      int
	turn      int
	left      int   // tokens of its turn that are still to be sampled
	context   int64 // tokens, as of when its row began or ended
	cached    int64 // of them in an idle cache
	fresh     int64 // of them never in any cache before
	attempt   int
	at        *machine
	row       *row
	preempted bool
	done      bool
}

type eventKind int

const (
	burstEnds eventKind = iota
	toolEnds
)

type event struct {
	at      float64
	seq     int64
	kind    eventKind
	machine *machine
	version int
	job     *job
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	*h = (*h)[:last]
	return e
}

type simulation struct {
	Setting
	sched    *scheduler.Scheduler
	machines []*machine
	byName   map[string]*machine
	jobs     map[string]*job
	events   eventHeap
	seq      int64
	now      float64
	steps    [][]Rollout
	open     []int // trajectories of each step that have not ended
	next     int   // step that starts next
	out      Outcome
	count    counts
	touched  map[*machine]bool
	order    []*machine
	waiting  map[*machine][]*job // tools of a lockstep
}

// Simulate samples steps one after the other.
func Simulate(set Setting, steps [][]Rollout) (Outcome, error) {
	sched, err := scheduler.New(set.Config)
	if err != nil {
		return Outcome{}, err
	}
	s := &simulation{Setting: set, sched: sched, byName: map[string]*machine{}, jobs: map[string]*job{}, steps: steps, open: make([]int, len(steps)), touched: map[*machine]bool{}, waiting: map[*machine][]*job{}}
	if err := s.replayHistory(); err != nil {
		return Outcome{}, err
	}
	for i := range set.Engines {
		m := &machine{name: fmt.Sprintf("e%02d", i), hw: &s.Hardware, alive: true}
		s.machines = append(s.machines, m)
		s.byName[m.name] = m
		if err := s.tell(scheduler.Join{Engine: m.name, Capacity: set.Hardware.Capacity}); err != nil {
			return Outcome{}, err
		}
	}
	for range min(set.Window+1, len(steps)) {
		if err := s.submit(); err != nil {
			return Outcome{}, err
		}
	}
	for len(s.events) > 0 {
		if err := s.turn(); err != nil {
			return Outcome{}, err
		}
	}
	return s.finish()
}

func (s *simulation) turn() error {
	e := heap.Pop(&s.events).(event)
	if e.kind == burstEnds && e.version != e.machine.version {
		return nil
	}
	s.now = e.at
	var err error
	switch e.kind {
	case burstEnds:
		err = s.burstEnded(e.machine)
	case toolEnds:
		err = s.toolEnded(e.job)
	}
	if err != nil {
		return err
	}
	s.replan()
	return nil
}

// tell gives the scheduler an event and carries out what it decides.
func (s *simulation) tell(e scheduler.Event) error {
	s.out.Decisions++
	decisions, err := s.sched.Handle(time.Duration(s.now*float64(time.Second)), e)
	if err != nil {
		return fmt.Errorf("at %.3f s: %w", s.now, err)
	}
	for _, d := range decisions {
		if err := s.carryOut(d); err != nil {
			return err
		}
	}
	return nil
}

func (s *simulation) carryOut(d scheduler.Decision) error {
	j, m := s.jobs[d.ID], s.byName[d.Engine]
	switch d.Kind {
	case scheduler.Start:
		j.attempt, j.at = d.Attempt, m
		s.touch(m)
		m.queue = append(m.queue, j)
	case scheduler.Stop:
		s.touch(m)
		if j.row == nil {
			for i, q := range m.queue {
				if q == j {
					m.queue = append(m.queue[:i], m.queue[i+1:]...)
					break
				}
			}
			return nil
		}
		m.remove(j.row)
	case scheduler.Drop:
		m.takeIdle(j)
	case scheduler.Drained, scheduler.Refuse:
		return fmt.Errorf("simulation: unexpected decision %+v", d)
	}
	return nil
}

// touch stops an engine at the pass that ends next, so that it can be changed.
func (s *simulation) touch(m *machine) {
	if s.touched[m] {
		return
	}
	s.touched[m] = true
	s.order = append(s.order, m)
	if m.clock < s.now {
		if n := m.passesBy(s.now); n > 0 {
			m.make(n)
		}
		m.clock = max(m.clock, s.now)
	}
}

// replan plans the next burst of each engine that was changed.
func (s *simulation) replan() {
	for _, m := range s.order {
		m.plan(&s.count)
		if len(m.rows) > 0 {
			s.push(event{at: m.clock + m.span(m.planned), kind: burstEnds, machine: m, version: m.version})
		}
		delete(s.touched, m)
	}
	s.order = s.order[:0]
}

func (s *simulation) push(e event) {
	s.seq++
	e.seq = s.seq
	heap.Push(&s.events, e)
}

func (s *simulation) burstEnded(m *machine) error {
	s.touched[m] = true
	s.order = append(s.order, m)
	if m.planned > 0 {
		m.make(m.planned)
	}
	var ended []*job
	for len(m.rows) > 0 && m.rows[0].ends <= m.passes {
		j := m.rows[0].job
		m.remove(m.rows[0])
		ended = append(ended, j)
	}
	for _, j := range ended {
		if err := s.turnEnded(m, j); err != nil {
			return err
		}
	}
	if err := s.tell(scheduler.Advance{Engine: m.name, Passes: m.passes, Used: min(1, float64(m.used())/float64(m.hw.Capacity))}); err != nil {
		return err
	}
	return s.lockstep(m)
}

func (s *simulation) turnEnded(m *machine, j *job) error {
	s.out.Sampled += int64(j.Turns[j.turn])
	if j.turn == len(j.Turns)-1 {
		j.done = true
		if j.preempted {
			s.out.Preempted++
		}
		if err := s.tell(scheduler.Finish{ID: j.ID, Attempt: j.attempt, Context: int(j.context)}); err != nil {
			return err
		}
		delete(s.jobs, j.ID)
		s.open[j.step]--
		return s.advanceSteps()
	}
	m.keepIdle(j)
	if err := s.tell(scheduler.Pause{ID: j.ID, Attempt: j.attempt, Context: int(j.context)}); err != nil {
		return err
	}
	if s.Lockstep {
		s.waiting[m] = append(s.waiting[m], j)
		return nil
	}
	s.push(event{at: s.now + j.Tools[j.turn].Seconds, kind: toolEnds, job: j})
	return nil
}

// lockstep starts the tools of an engine when none of its turns runs.
func (s *simulation) lockstep(m *machine) error {
	if !s.Lockstep || len(m.rows) > 0 || len(m.queue) > 0 {
		return nil
	}
	slowest := 0.0
	for _, j := range s.waiting[m] {
		slowest = max(slowest, j.Tools[j.turn].Seconds)
	}
	for _, j := range s.waiting[m] {
		s.push(event{at: s.now + slowest, kind: toolEnds, job: j})
	}
	s.waiting[m] = s.waiting[m][:0]
	return nil
}

func (s *simulation) toolEnded(j *job) error {
	call := j.Tools[j.turn]
	j.turn++
	j.left = j.Turns[j.turn]
	j.context += int64(call.Tokens)
	j.fresh = int64(call.Tokens)
	return s.tell(scheduler.Resume{ID: j.ID, Attempt: j.attempt, Context: int(j.context)})
}

// advanceSteps starts the next step when the one that it waits for has ended.
func (s *simulation) advanceSteps() error {
	for len(s.out.Ends) < len(s.steps) && len(s.out.Ends) < s.next && s.open[len(s.out.Ends)] == 0 {
		s.out.Ends = append(s.out.Ends, s.now)
		if s.next < len(s.steps) {
			if err := s.submit(); err != nil {
				return err
			}
		}
	}
	return nil
}

// submit asks for the trajectories of the next step.
func (s *simulation) submit() error {
	step := s.next
	s.next++
	list := s.steps[step]
	s.open[step] = len(list)
	s.out.Trajectories += len(list)
	trajectories := make([]scheduler.Trajectory, 0, len(list))
	for i := range list {
		r := &list[i]
		s.jobs[r.ID] = &job{Rollout: r, step: step, left: r.Turns[0], context: int64(r.Prompt), fresh: int64(r.Prompt)}
		trajectories = append(trajectories, s.trajectory(r, step))
	}
	err := s.tell(scheduler.Submit{Trajectories: trajectories})
	s.replan()
	return err
}

func (s *simulation) trajectory(r *Rollout, step int) scheduler.Trajectory {
	return scheduler.Trajectory{ID: r.ID, Run: "run", Problem: r.Problem, Stage: s.Stage, Step: step, Prompt: r.Prompt, Limit: r.Limit, Length: r.Length()}
}

func (s *simulation) finish() (Outcome, error) {
	if len(s.out.Ends) != len(s.steps) {
		return Outcome{}, fmt.Errorf("simulation: %d of %d steps ended; %d trajectories are left", len(s.out.Ends), len(s.steps), len(s.jobs))
	}
	st := s.sched.Stats()
	s.out.Seconds = s.now
	s.out.Recomputed, s.out.Prefilled = s.count.recomputed, s.count.prefilled
	s.out.Moves, s.out.Drops, s.out.Reserved = st.Moves, st.Drops, st.Reserved
	for _, m := range s.machines {
		s.out.Busy += m.busy / (s.now * float64(len(s.machines)))
	}
	return s.out, nil
}
