// Package lease owns how engines are found: each engine keeps a lease in the store, and
// readers judge by the leases which engines live. There is no service behind it.
//
// Invariant: clocks of two machines are never compared. A lease lives
// while its counter changes within the reader's own time.
package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"sync"
	"time"

	"temper/internal/blob"
)

// Entry is a lease as it is stored.
type Entry struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	Run    string `json:"run"`
	// Address is where clients reach the engine.
	Address string `json:"address"`
	// Holder is a unique name of the process.
	Holder string `json:"holder"`
	// Beat grows each time the holder renews the lease.
	Beat int64 `json:"beat"`
	// Draining engines take nothing new.
	Draining bool `json:"draining,omitempty"`
	// Gone is set by a holder that ends. The key stays, because a key that is swapped
	// must not be deleted, and the next engine of the name takes it over at once.
	Gone bool `json:"gone,omitempty"`
}

const format = 1

const (
	// Every is the time between two beats, and between two looks of a reader.
	Every = 2 * time.Second
	// missed is the number of beats after which a lease has expired.
	missed = 3
)

// ErrTaken means that another engine has the name.
var ErrTaken = errors.New("the name of the engine is taken")

// ErrLost means that another engine took the name over: this one must end.
var ErrLost = errors.New("another engine took the name over")

// validName is what may stand in a key.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName refuses a name that cannot be a key.
func CheckName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("is %.80q, want 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit", name)
	}
	return nil
}

// folder is where the leases of a run's engines lie.
func folder(run string) string { return path.Join("engines", run) }

// Lease is the right of a process to be found under a name. Its methods may be called
// by several goroutines.
type Lease struct {
	store blob.Store
	key   string
	every time.Duration

	mu    sync.Mutex
	entry Entry
	ref   blob.Ref // of the entry as this holder wrote it
}

// Config of a lease.
type Config struct {
	Store blob.Store
	// Entry has Name, Run, Address and Holder.
	Entry Entry
	// Every is the time between two beats; 0 is the constant.
	Every time.Duration
}

// Hold takes a name. Where another process has it, Hold looks for some beats whether
// that one lives. Errors: ErrTaken, which names the other.
func Hold(ctx context.Context, c Config) (*Lease, error) {
	if err := CheckName(c.Entry.Name); err != nil {
		return nil, fmt.Errorf("name of the engine: %w", err)
	}
	if c.Every <= 0 {
		c.Every = Every
	}
	l := &Lease{store: c.Store, every: c.Every, entry: c.Entry, key: path.Join(folder(c.Entry.Run), c.Entry.Name+".json")}
	l.entry.Format = format
	for {
		other, ref, err := readEntry(ctx, c.Store, l.key)
		if err != nil {
			return nil, err
		}
		if other, ref, err = l.awaitExpiry(ctx, other, ref); err != nil {
			return nil, err
		}
		l.ref, l.entry.Beat = ref, other.Beat
		err = l.renew(ctx)
		if !errors.Is(err, blob.ErrConflict) {
			return l, err
		} // a third process was faster: look again
	}
}

// awaitExpiry waits until the holder of the lease has stopped renewing it or has released
// it.
func (l *Lease) awaitExpiry(ctx context.Context, other Entry, ref blob.Ref) (Entry, blob.Ref, error) {
	for range missed + 1 {
		if ref.IsZero() || other.Gone || other.Holder == l.entry.Holder {
			return other, ref, nil
		}
		if err := pause(ctx, l.every); err != nil {
			return other, ref, err
		}
		now, nowRef, err := readEntry(ctx, l.store, l.key)
		if err != nil {
			return other, ref, err
		}
		if nowRef != ref && !now.Gone {
			return other, ref, fmt.Errorf("%w: %q of run %s is %s at %s: end it or choose another name", ErrTaken, now.Name, now.Run, now.Holder, now.Address)
		}
		other, ref = now, nowRef
	}
	return other, ref, nil
}

// readEntry returns a lease, or the zero Ref if there is none. A lease that cannot be read
// counts as expired.
func readEntry(ctx context.Context, store blob.Store, key string) (Entry, blob.Ref, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return Entry{}, blob.Ref{}, nil
	}
	if err != nil {
		return Entry{}, blob.Ref{}, fmt.Errorf("lease %s: %w", store.Locate(key), err)
	}
	var e Entry
	if err := json.Unmarshal(data, &e); err != nil {
		e = Entry{}
	}
	if e.Format > format {
		return e, blob.Ref{}, fmt.Errorf("lease %s: format %d, this program reads up to %d: update temper", store.Locate(key), e.Format, format)
	}
	return e, blob.RefOf(key, data), nil
}

// renew writes the next beat.
func (l *Lease) renew(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.entry
	next.Beat++
	return l.swap(ctx, next)
}

// swap replaces what this holder wrote last. The caller holds l.mu or owns l.
func (l *Lease) swap(ctx context.Context, next Entry) error {
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode %s: %w", l.key, err)
	}
	ref, err := l.store.Swap(ctx, l.key, l.ref, append(data, '\n'))
	if err != nil {
		return err
	}
	l.entry, l.ref = next, ref
	return nil
}

// Keep renews the lease until ctx ends. A store that does not answer is asked again:
// readers find the lease expired meanwhile, and alive afterwards. Errors: ErrLost.
func (l *Lease) Keep(ctx context.Context) error {
	for {
		if err := pause(ctx, l.every); err != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		timed, cancel := context.WithTimeout(ctx, missed*l.every)
		err := l.renewOrResume(timed)
		cancel()
		if errors.Is(err, ErrLost) {
			return err
		}
	}
}

// renewOrResume renews the lease, even if the store holds another version than this holder
// wrote.
func (l *Lease) renewOrResume(ctx context.Context) error {
	err := l.renew(ctx)
	if errors.Is(err, blob.ErrConflict) {
		err = l.resume(ctx)
	}
	return err
}

// resume takes the lease up again after the store has held another version than this holder
// wrote.
func (l *Lease) resume(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, ref, err := readEntry(ctx, l.store, l.key)
	switch {
	case err != nil:
		return err
	case !ref.IsZero() && now.Holder != l.entry.Holder:
		return fmt.Errorf("%w: %q of run %s is %s at %s now", ErrLost, now.Name, now.Run, now.Holder, now.Address)
	}
	l.ref = ref // the answer to a swap was lost, or the key was deleted
	l.entry.Beat = max(l.entry.Beat, now.Beat)
	next := l.entry
	next.Beat++
	return l.swap(ctx, next)
}

// Drain says that the engine takes nothing new.
func (l *Lease) Drain(ctx context.Context) error {
	return l.amend(ctx, func(e *Entry) { e.Draining = true })
}

// Leave gives the name back.
func (l *Lease) Leave(ctx context.Context) error {
	return l.amend(ctx, func(e *Entry) { e.Gone = true })
}

// amend changes the entry. Where the store does not answer, the next beat writes it.
func (l *Lease) amend(ctx context.Context, change func(*Entry)) error {
	l.mu.Lock()
	change(&l.entry)
	l.mu.Unlock()
	return l.renewOrResume(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
