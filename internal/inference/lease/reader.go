package lease

import (
	"context"
	"path"
	"strings"
	"time"

	"temper/internal/blob"
)

// Found is a lease as a reader judges it.
type Found struct {
	Entry
	// Alive is true while the counter changes, and for some beats after the reader has
	// seen the lease for the first time: whether that engine answers shows when it is
	// called.
	Alive bool
}

// Reader finds the engines of a run. It is used by one goroutine.
type Reader struct {
	store blob.Store
	run   string
	now   func() time.Time
	every time.Duration
	seen  map[string]observation
}

// observation is the last change of a lease that a reader has seen.
type observation struct {
	holder string
	beat   int64
	at     time.Time // when it was seen to change, by the reader's clock
}

// NewReader reads leases that are renewed at the given pace; 0 is the constant.
func NewReader(store blob.Store, run string, now func() time.Time, every time.Duration) *Reader {
	if every <= 0 {
		every = Every
	}
	return &Reader{store: store, run: run, now: now, every: every, seen: map[string]observation{}}
}

// Look reads all leases of the run, by name. A lease of a later format, or one
// that is no JSON, counts as none. An error says nothing about any engine.
func (r *Reader) Look(ctx context.Context) ([]Found, error) {
	infos, _, err := r.store.ListFolder(ctx, folder(r.run))
	if err != nil {
		return nil, err
	}
	var out []Found
	there := map[string]bool{}
	for _, info := range infos {
		name, ok := strings.CutSuffix(path.Base(info.Key), ".json")
		if !ok || CheckName(name) != nil {
			continue
		}
		e, ref, err := readEntry(ctx, r.store, info.Key)
		if e.Format > format { // of a later program, for its readers
			continue
		}
		if err != nil {
			return nil, err
		}
		if ref.IsZero() || e.Gone || e.Name != name || e.Run != r.run {
			continue
		}
		there[name] = true
		out = append(out, r.judge(e))
	}
	for name := range r.seen {
		if !there[name] {
			delete(r.seen, name)
		}
	}
	return out, nil
}

// judge compares a lease with the last time that it changed. The clock is read after
// the lease was: a reader that was stopped for a while does not blame the engine.
func (r *Reader) judge(e Entry) Found {
	now := r.now()
	last, known := r.seen[e.Name]
	switch {
	case !known || last.holder != e.Holder:
		last = observation{holder: e.Holder, beat: e.Beat, at: now}
	case last.beat != e.Beat:
		last.beat, last.at = e.Beat, now
	}
	r.seen[e.Name] = last
	return Found{Entry: e, Alive: now.Sub(last.at) <= missed*r.every+r.every/2}
}
