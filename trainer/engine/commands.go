package engine

import (
	"sync"
	"time"
)

// inbox is what others send to a shard. The zero value is not usable.
type commandQueue struct {
	wakeup chan struct{} // holds one

	mu       sync.Mutex
	jobs     []*job
	releases []string
	swap     *swap
	quit     bool
}

func newCommandQueue() *commandQueue { return &commandQueue{wakeup: make(chan struct{}, 1)} }

// ring wakes the shard.
func (b *commandQueue) wake() {
	select {
	case b.wakeup <- struct{}{}:
	default: // it has not answered the last ring
	}
}

// put changes the inbox and wakes the shard.
func (b *commandQueue) put(change func()) {
	b.mu.Lock()
	change()
	b.mu.Unlock()
	b.wake()
}

func (b *commandQueue) deliver(j *job) { b.put(func() { b.jobs = append(b.jobs, j) }) }
func (b *commandQueue) release(session string) {
	b.put(func() { b.releases = append(b.releases, session) })
}
func (b *commandQueue) close() { b.put(func() { b.quit = true }) }

// change asks for other weights. The caller waits for one swap before the next.
func (b *commandQueue) change(s *swap) { b.put(func() { b.swap = s }) }

const (
	burstGap = 200 * time.Microsecond // without mail
	maxBurst = 2 * time.Millisecond   // in all
)

// calm returns when nothing has come for a moment. Requests that are made together arrive one
// after another, and on a device that makes several tokens at a time all but the first would wait
// for the end of its call.
func (b *commandQueue) waitForBurst() {
	end := time.NewTimer(maxBurst)
	defer end.Stop()
	quiet := time.NewTimer(burstGap)
	defer quiet.Stop()
	for {
		select {
		case <-b.wakeup:
			quiet.Reset(burstGap)
		case <-quiet.C:
			return
		case <-end.C:
			return
		}
	}
}

// mail is what an inbox held.
type commands struct {
	jobs     []*job
	releases []string
	swap     *swap
	quit     bool
}

// empty takes everything out.
func (b *commandQueue) drain() commands {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := commands{b.jobs, b.releases, b.swap, b.quit}
	b.jobs, b.releases, b.swap = nil, nil, nil
	return m
}
