package rollout

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestStopwatchCountsTasksSideBySideOnce, and no time between them.
func TestStopwatchCountsTasksSideBySideOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Runner
		var wg sync.WaitGroup
		task := func(after, length time.Duration) {
			wg.Go(func() {
				time.Sleep(after)
				_ = r.judged.during(time.Now, func() error { time.Sleep(length); return nil }) // it has no error
			})
		}
		task(0, 3*time.Second)
		task(2*time.Second, 2*time.Second)
		task(10*time.Second, time.Second)
		wg.Wait()
		if got := r.Judged(); got != 5*time.Second {
			t.Errorf("judged for %s, want 4 s and 1 s", got)
		}
	})
}
