package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"temper/sandbox"
)

// Bounds of the window; it drops the oldest answers first.
const (
	windowCount = 1 << 18
	maxScratch  = 64 << 10
)

// window answers a repeated call of a run with the answer to the first one. It does not
// keep errors: after an error the next call with that ID runs again.
type window struct {
	ttl          time.Duration
	bytes, count int       // bounds of order
	scratch      sync.Pool // *[]byte buffers for fingerprints

	mu      sync.Mutex
	entries map[callName]*entry
	order   []*entry // finished entries, oldest first
	held    int      // bytes of order
	timed   bool     // a sweep is scheduled
}

// callName identifies a call. Two runs may use the same IDs: neither gets an answer of the
// other or can block its IDs.
type callName struct{ run, id string }

// entry is one call; res, ok and until are valid when done is closed.
type entry struct {
	name  callName
	mark  fingerprint
	done  chan struct{}
	res   *sandbox.Result // shared and never changed
	ok    bool
	until time.Time
}

func newWindow(ttl time.Duration, bytes int) *window {
	return &window{ttl: ttl, bytes: bytes, count: windowCount, entries: make(map[callName]*entry)}
}

// do runs call unless the ID of req has an answer or a running call. It passes pointers to
// results, so that a waiting call has no copy of a Result on its stack.
func (w *window) do(ctx context.Context, req *sandbox.Request, call func() (*sandbox.Result, error)) (*sandbox.Result, error) {
	if req.ID == "" {
		return call()
	}
	mark := w.fingerprint(req)
	for {
		e, mine := w.claim(callName{req.Run, req.ID}, mark)
		if mine {
			res, err := call()
			// A failure of the sandbox is not kept: the next attempt may succeed.
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

// settle stores the answer and wakes the calls that wait for it.
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

// sweepLater schedules a sweep, so that old answers are dropped even without further calls.
func (w *window) sweepLater(now time.Time) {
	if w.timed || len(w.order) == 0 {
		return
	}
	w.timed = true
	time.AfterFunc(w.order[0].until.Sub(now)+w.ttl/8, w.sweep)
}

// sweep drops old answers. An empty window also releases its maps, which do not shrink by
// themselves.
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

// expire drops answers that are too old or above the bounds.
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

// fingerprint distinguishes two programs with one name.
type fingerprint [sha256.Size]byte

// fingerprint covers the fields that decide the answer, except for the run, which is a part
// of the name, and the history, which a gateway adds when a session moves, so that it may
// differ in a repeated call.
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
