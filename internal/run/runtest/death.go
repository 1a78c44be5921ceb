package runtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"temper/internal/blob"
)

// ErrDied is the error of every call of a process that is dead.
var ErrDied = errors.New("died")

// Fate counts what a process does to the world, and ends the process at one moment. Its
// fields are for before and after: what writes at once shares it.
type Fate struct {
	mu sync.Mutex

	Count int
	// At is the moment of death, from 1; 0 never comes.
	At   int
	Dead bool
	// Names lists the moments, for people who read a failed test.
	Names []string
}

// moment counts a moment and reports whether the process is dead.
func (f *Fate) moment(format string, args ...any) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Count++
	f.Names = append(f.Names, fmt.Sprintf(format, args...))
	f.Dead = f.Dead || f.Count == f.At
	return f.Dead
}

func (f *Fate) dead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Dead
}

// Mortal is the store of a process that may die before and after each write.
type Mortal struct {
	blob.Store
	Fate *Fate
}

// Put counts two moments.
func (m Mortal) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if m.Fate.moment("before put %s", key) {
		return blob.Ref{}, ErrDied
	}
	ref, err := m.Store.Put(ctx, key, r, cond)
	if m.Fate.moment("after put %s", key) {
		return blob.Ref{}, ErrDied
	}
	return ref, err
}

// Swap counts two moments.
func (m Mortal) Swap(ctx context.Context, key string, old blob.Ref, data []byte) (blob.Ref, error) {
	if m.Fate.moment("before swap %s", key) {
		return blob.Ref{}, ErrDied
	}
	ref, err := m.Store.Swap(ctx, key, old, data)
	if m.Fate.moment("after swap %s", key) {
		return blob.Ref{}, ErrDied
	}
	return ref, err
}

// Delete counts one moment.
func (m Mortal) Delete(ctx context.Context, key string) error {
	if m.Fate.moment("before delete %s", key) {
		return ErrDied
	}
	return m.Store.Delete(ctx, key)
}

// Get reads nothing for the dead.
func (m Mortal) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if m.Fate.dead() {
		return nil, ErrDied
	}
	return m.Store.Get(ctx, key)
}

// List reads nothing for the dead.
func (m Mortal) List(ctx context.Context, prefix string) ([]blob.Info, error) {
	if m.Fate.dead() {
		return nil, ErrDied
	}
	return m.Store.List(ctx, prefix)
}
