package rollout

import (
	"sync"
	"time"
)

// stopwatch counts the time in which at least one of several tasks goes on.
type stopwatch struct {
	mu    sync.Mutex
	tasks int // that go on
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

// Judged is the time in which trajectories were given their rewards, with the waits for
// verifiers. What goes on side by side counts once.
func (r *Runner) Judged() time.Duration {
	r.judged.mu.Lock()
	defer r.judged.mu.Unlock()
	return r.judged.total
}
