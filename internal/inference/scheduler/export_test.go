package scheduler

import "fmt"

// Leftover names what an empty scheduler still holds, for tests: every count of every
// engine must be back at zero when all trajectories have ended.
func (s *Scheduler) Leftover() []string {
	var out []string
	for _, e := range s.engines.list {
		if len(e.rows) != 0 || e.running != 0 || e.base != 0 || e.budget != 0 {
			out = append(out, fmt.Sprintf("engine %s: %d rows, %d running, base %d, budget %d", e.name, len(e.rows), e.running, e.base, e.budget))
		}
		for i := range e.forecast.mean {
			if e.forecast.mean[i] != 0 || e.forecast.vary[i] != 0 {
				out = append(out, fmt.Sprintf("engine %s: span %d: %d, %d", e.name, i, e.forecast.mean[i], e.forecast.vary[i]))
			}
		}
	}
	if s.queue.waiting != 0 || len(s.queue.tasks) != 0 || len(s.queue.groups) != 0 || len(s.queue.runs) != 0 || len(s.queue.byRun) != 0 {
		out = append(out, fmt.Sprintf("%d waiting, %d trajectories, %d groups, %d and %d runs", s.queue.waiting, len(s.queue.tasks), len(s.queue.groups), len(s.queue.runs), len(s.queue.byRun)))
	}
	return out
}

// PlainPeak makes the forecast of an engine from nothing, as if each row were new: what
// a decision costs without keeping sums.
func (s *Scheduler) PlainPeak(name string) int64 {
	e := s.engines.byName[name]
	var f forecast
	var d demand
	for _, t := range e.rows {
		s.curves.predict(&d, t.group.stage, &t.group.belief, t, t.tokens(), e.passes)
		f.add(&d)
	}
	return f.peak(e.passes/int64(s.curves.width), s.cfg.margin())
}

// Peak is the forecast of an engine as it is kept.
func (s *Scheduler) Peak(name string) int64 { return s.engines.byName[name].top }

// Used is what the scheduler counts as held by an engine.
func (s *Scheduler) Used(name string) int64 { return s.engines.byName[name].used() }
