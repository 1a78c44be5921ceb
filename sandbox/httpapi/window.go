package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"temper/sandbox"
)

// Bounds of what the window remembers; the oldest answers go first.
const (
	windowCount = 1 << 18
	maxScratch  = 64 << 10
)

// window gives a repeated call of a run the answer of the first one. Errors are not
// remembered: the next call with that ID is a first one.
type window struct {
	ttl          time.Duration
	bytes, count int       // bounds
	scratch      sync.Pool // of *[]byte, for fingerprints

	mu      sync.Mutex
	entries map[callName]*entry
	order   []*entry // finished entries, oldest first
	held    int      // bytes of order
	timed   bool     // a sweep is to come
}

// callName is what names a call: two runs may use the same IDs, and neither gets the
// answers of the other or can take its names away.
type callName struct{ run, id string }

// entry is one call; res, ok and until are valid when done is closed.
type entry struct {
	name  callName
	mark  fingerprint
	done  chan struct{}
	res   *sandbox.Result // shared: nobody changes it
	ok    bool
	until time.Time
}

func newWindow(ttl time.Duration, bytes int) *window {
	return &window{ttl: ttl, bytes: bytes, count: windowCount, entries: make(map[callName]*entry)}
}

// do runs call unless the ID of req has an answer or is about to get one. Results are
// pointers: a call that waits would have a copy of the Result on its stack.
func (w *window) do(ctx context.Context, req *sandbox.Request, call func() (*sandbox.Result, error)) (*sandbox.Result, error) {
	if req.ID == "" {
		return call()
	}
	mark := w.fingerprint(req)
	for {
		e, mine := w.claim(callName{req.Run, req.ID}, mark)
		if mine {
			res, err := call()
			// A failure of the sandbox is no answer: the next attempt may get one.
			w.settle(e, res, err == nil && res.Status != sandbox.StatusInternal)
			return res, err
		}
		if e.mark != mark {
			return nil, sandbox.ErrConflict
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if e.ok {
			return e.res, nil
		}
	}
}

// claim returns the entry of a call, and whether the caller has to fill it.
func (w *window) claim(name callName, mark fingerprint) (*entry, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(time.Now())
	if e := w.entries[name]; e != nil {
		return e, false
	}
	e := &entry{name: name, mark: mark, done: make(chan struct{})}
	w.entries[name] = e
	return e, true
}

// settle stores the answer and wakes those who wait for it.
func (w *window) settle(e *entry, res *sandbox.Result, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	e.res, e.ok, e.until = res, ok, now.Add(w.ttl)
	if ok {
		w.order = append(w.order, e)
		w.held += e.size()
		w.expire(now)
		w.sweepLater(now)
	} else {
		delete(w.entries, e.name)
	}
	close(e.done)
}

// sweepLater has the answers dropped when they are old, also when no call comes any more.
func (w *window) sweepLater(now time.Time) {
	if w.timed || len(w.order) == 0 {
		return
	}
	w.timed = true
	time.AfterFunc(w.order[0].until.Sub(now)+w.ttl/8, w.sweep)
}

// sweep drops what is too old. A window without calls gives its tables back as well:
// they do not shrink by themselves.
func (w *window) sweep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timed = false
	now := time.Now()
	w.expire(now)
	if len(w.entries) == 0 {
		w.entries, w.order = make(map[callName]*entry), nil
	}
	w.sweepLater(now)
}

// expire drops what is too old or too much.
func (w *window) expire(now time.Time) {
	for len(w.order) > 0 && (now.After(w.order[0].until) || w.held > w.bytes || len(w.order) > w.count) {
		e := w.order[0]
		w.order[0] = nil
		w.order = w.order[1:]
		w.held -= e.size()
		delete(w.entries, e.name)
	}
}

// size estimates the memory of an entry.
func (e *entry) size() int {
	return 768 + 2*(len(e.name.run)+len(e.name.id)) + sizeOf(e.res)
}

// fingerprint tells two programs of one name apart.
type fingerprint [sha256.Size]byte

// fingerprint covers what decides the answer, but for the run, which is a part of the
// name. History is added on the way when a session moves: a repeated call may differ
// in it.
func (w *window) fingerprint(r *sandbox.Request) fingerprint {
	scratch, _ := w.scratch.Get().(*[]byte)
	if scratch == nil {
		scratch = new([]byte)
	}
	b := (*scratch)[:0]
	for _, s := range [...]string{r.Code, r.Stdin, r.Fixture, string(r.Profile), r.Session, r.BranchOf} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	for _, n := range [...]int64{int64(r.Limits.Wall), int64(r.Limits.CPU), r.Limits.Memory, r.Limits.Output} {
		b = binary.AppendVarint(b, n)
	}
	sum := sha256.Sum256(b)
	if *scratch = b; cap(b) <= maxScratch {
		w.scratch.Put(scratch)
	}
	return sum
}
