package httpapi

import (
	"context"
	"sync"
	"time"

	"temper/sandbox"
)

// windowBytes bounds what the window remembers; the oldest answers go first.
const windowBytes = 256 << 20

// window gives a repeated call ID the answer of the first call. Errors are not
// remembered: the next call with that ID is a first one.
type window struct {
	ttl time.Duration

	mu      sync.Mutex
	entries map[string]*entry
	order   []*entry // finished entries, oldest first
	bytes   int
}

// entry is one ID; res, ok and until are valid when done is closed.
type entry struct {
	id    string
	done  chan struct{}
	res   sandbox.Result
	ok    bool
	until time.Time
}

func newWindow(ttl time.Duration) *window {
	return &window{ttl: ttl, entries: make(map[string]*entry)}
}

// do runs call unless id has an answer or is about to get one.
func (w *window) do(ctx context.Context, id string, call func() (sandbox.Result, error)) (sandbox.Result, error) {
	if id == "" {
		return call()
	}
	for {
		e, mine := w.claim(id)
		if mine {
			res, err := call()
			// A failure of the sandbox is no answer: the next attempt may get one.
			w.settle(e, res, err == nil && res.Status != sandbox.StatusInternal)
			return res, err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return sandbox.Result{}, ctx.Err()
		}
		if e.ok {
			return e.res, nil
		}
	}
}

// claim returns the entry of id, and whether the caller has to fill it.
func (w *window) claim(id string) (*entry, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(time.Now())
	if e := w.entries[id]; e != nil {
		return e, false
	}
	e := &entry{id: id, done: make(chan struct{})}
	w.entries[id] = e
	return e, true
}

// settle stores the answer and wakes those who wait for it.
func (w *window) settle(e *entry, res sandbox.Result, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.res, e.ok, e.until = res, ok, time.Now().Add(w.ttl)
	if ok {
		w.order = append(w.order, e)
		w.bytes += e.size()
	} else {
		delete(w.entries, e.id)
	}
	close(e.done)
}

// expire drops what is too old or too much.
func (w *window) expire(now time.Time) {
	for len(w.order) > 0 && (now.After(w.order[0].until) || w.bytes > windowBytes) {
		e := w.order[0]
		w.order[0] = nil
		w.order = w.order[1:]
		w.bytes -= e.size()
		delete(w.entries, e.id)
	}
}

// size estimates the memory of an entry.
func (e *entry) size() int {
	return 512 + len(e.id) + len(e.res.Stdout) + len(e.res.Stderr) + len(e.res.Value)
}
