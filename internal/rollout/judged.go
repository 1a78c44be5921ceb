package rollout

import (
	"sync"
	"time"
)

// stopwatch measures the time in which at least one of several tasks runs.
type stopwatch struct {
	mu    sync.Mutex
	tasks int // that run now
	since time.Time
	total time.Duration
}

// during runs a task.
func (w *stopwatch) during(now func() time.Time, task func() error) error {
	w.change(now, 1)
	defer w.change(now, -1)
	return task()
}

func (w *stopwatch) change(now func() time.Time, tasks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := now()
	if w.tasks > 0 {
		w.total += at.Sub(w.since)
	}
	w.tasks, w.since = w.tasks+tasks, at
}

// Judged returns the time in which trajectories got their rewards, waits for verifiers
// included. Time that several trajectories share counts once.
func (r *Runner) Judged() time.Duration {
	r.judged.mu.Lock()
	defer r.judged.mu.Unlock()
	return r.judged.total
}
