package pool

import (
	"sync"
	"time"
)

// Bounds of the retry time that a refused caller gets.
const (
	minRetryAfter  = 50 * time.Millisecond
	idleRetryAfter = time.Second // while the pace is unknown
	maxRetryAfter  = 5 * time.Second
	recent         = 8 * time.Second // older ends do not count
)

// pace records when slots became free.
type pace struct {
	mu    sync.Mutex
	ended [64]time.Time // ring buffer
	n     int           // number of all ends; the newest is at (n-1) % len(ended)
}

func (p *pace) add(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[p.n%len(p.ended)] = now
	p.n++
}

// retryAfter returns the time in which an eighth of a full queue drains at the recent pace:
// long enough to make room for several callers, short enough that slots do not stay empty.
func (p *pace) retryAfter(now time.Time, queue int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, span := 0, time.Duration(0)
	for known < min(p.n, len(p.ended)) {
		age := now.Sub(p.ended[(p.n-1-known)%len(p.ended)])
		if age > recent {
			break
		}
		known, span = known+1, age
	}
	if known < 2 {
		return idleRetryAfter
	}
	eighth := time.Duration(float64(span) / float64(known) * max(float64(queue)/8, 1))
	return min(max(eighth, minRetryAfter), maxRetryAfter)
}
