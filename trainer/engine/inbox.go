package engine

import (
	"sync"
	"time"
)

// inbox is what others send to a shard. The zero value is not usable.
type inbox struct {
	bell chan struct{} // holds one

	mu       sync.Mutex
	jobs     []*job
	releases []string
	swap     *swap
	quit     bool
}

func newInbox() *inbox { return &inbox{bell: make(chan struct{}, 1)} }

// ring wakes the shard.
func (b *inbox) ring() {
	select {
	case b.bell <- struct{}{}:
	default: // it has not answered the last ring
	}
}

// put changes the inbox and wakes the shard.
func (b *inbox) put(change func()) {
	b.mu.Lock()
	change()
	b.mu.Unlock()
	b.ring()
}

func (b *inbox) deliver(j *job)         { b.put(func() { b.jobs = append(b.jobs, j) }) }
func (b *inbox) release(session string) { b.put(func() { b.releases = append(b.releases, session) }) }
func (b *inbox) close()                 { b.put(func() { b.quit = true }) }

// change asks for other weights. The caller waits for one swap before the next.
func (b *inbox) change(s *swap) { b.put(func() { b.swap = s }) }

const (
	calmFor  = 200 * time.Microsecond // without mail
	calmMost = 2 * time.Millisecond   // in all
)

// calm returns when nothing has come for a moment. Requests that are made together arrive one
// after another, and on a device that makes several tokens at a time all but the first would wait
// for the end of its call.
func (b *inbox) calm() {
	end := time.NewTimer(calmMost)
	defer end.Stop()
	quiet := time.NewTimer(calmFor)
	defer quiet.Stop()
	for {
		select {
		case <-b.bell:
			quiet.Reset(calmFor)
		case <-quiet.C:
			return
		case <-end.C:
			return
		}
	}
}

// mail is what an inbox held.
type mail struct {
	jobs     []*job
	releases []string
	swap     *swap
	quit     bool
}

// empty takes everything out.
func (b *inbox) empty() mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := mail{b.jobs, b.releases, b.swap, b.quit}
	b.jobs, b.releases, b.swap = nil, nil, nil
	return m
}
