package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestCalm(t *testing.T) {
	arrivals := func(n int, gap time.Duration) (took time.Duration, jobs int) {
		synctest.Test(t, func(t *testing.T) {
			b := newCommandQueue()
			go func() {
				for range n {
					b.deliver(&job{})
					time.Sleep(gap)
				}
			}()
			<-b.wakeup
			begin := time.Now()
			b.waitForBurst()
			took, jobs = time.Since(begin), len(b.drain().jobs)
			synctest.Wait()
			time.Sleep(time.Duration(n) * gap) // the sender ends
		})
		return took, jobs
	}
	if took, jobs := arrivals(1, 0); took != burstGap || jobs != 1 {
		t.Errorf("one request: %d after %v", jobs, took)
	}
	if took, jobs := arrivals(16, 50*time.Microsecond); took != 15*50*time.Microsecond+burstGap || jobs != 16 {
		t.Errorf("16 requests, 50 us apart: %d after %v", jobs, took)
	}
	if took, jobs := arrivals(2, time.Millisecond); took != burstGap || jobs != 1 {
		t.Errorf("a second request a millisecond later: %d after %v", jobs, took)
	}
	if took, _ := arrivals(1000, 100*time.Microsecond); took != maxBurst {
		t.Errorf("requests without end: went on after %v", took)
	}
}
