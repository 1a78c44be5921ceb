package engine

import (
	"sync"
	"time"
)

// commandQueue holds the commands of other goroutines for a shard. Use newCommandQueue.
type commandQueue struct {
	wakeup chan struct{} // holds one

	mu       sync.Mutex
	jobs     []*job
	releases []string
	swap     *swap
	quit     bool
}

func newCommandQueue() *commandQueue { return &commandQueue{wakeup: make(chan struct{}, 1)} }

// wake wakes the shard.
func (b *commandQueue) wake() {
	select {
	case b.wakeup <- struct{}{}:
	default: // a wakeup is pending
	}
}

// put changes the queue and wakes the shard.
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

// change requests other weights. The caller waits for one swap before the next.
func (b *commandQueue) change(s *swap) { b.put(func() { b.swap = s }) }

const (
	burstGap = 200 * time.Microsecond // longest gap between commands of one burst
	maxBurst = 2 * time.Millisecond   // longest burst
)

// waitForBurst returns when no command has come for burstGap. Concurrent requests arrive one
// after another, and on a device that makes several tokens in one call all but the first
// would wait for the end of its call.
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

// commands are the content of a queue.
type commands struct {
	jobs     []*job
	releases []string
	swap     *swap
	quit     bool
}

// drain removes all commands.
func (b *commandQueue) drain() commands {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := commands{b.jobs, b.releases, b.swap, b.quit}
	b.jobs, b.releases, b.swap = nil, nil, nil
	return m
}
