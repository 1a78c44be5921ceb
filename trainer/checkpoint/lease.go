package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"temper/internal/blob"
)

// ErrFenced means that another trainer holds the run: this one must not write to it.
var ErrFenced = errors.New("another trainer took the run over")

// Head names the process that may write to a run, and the run's newest checkpoint.
type Head struct {
	Format int `json:"format"`
	// Epoch grows with every takeover; the process with the highest may write.
	Epoch  int64  `json:"epoch"`
	Holder string `json:"holder"`
	// Step and Manifest of the newest checkpoint; zero before the first.
	Step     int      `json:"step"`
	Manifest blob.Ref `json:"manifest"`
}

const headFormat = 1

// readHead returns the head at key. Errors: blob.ErrNotExist, ErrCorrupt, ErrNewer.
func readHead(ctx context.Context, store blob.Store, key string) (Head, blob.Ref, error) {
	data, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return Head{}, blob.Ref{}, err
	}
	ref := blob.RefOf(key, data)
	var h Head
	if err := json.Unmarshal(data, &h); err != nil {
		return Head{}, ref, fmt.Errorf("%s: %w: %w", store.Locate(key), err, ErrCorrupt)
	}
	if h.Format > headFormat {
		return Head{}, ref, fmt.Errorf("%s: format %d, this program reads up to %d: update temper: %w", store.Locate(key), h.Format, headFormat, ErrNewer)
	}
	return h, ref, nil
}

// Lease is the right to write to a run, until another process takes it. Its methods may be
// called concurrently.
type Lease struct {
	store  blob.Store
	key    string
	holder string
	epoch  int64

	mu   sync.Mutex
	head Head
	ref  blob.Ref // of the head, as this process wrote it
}

// Acquire takes the lease of the head at key from any holder: the new epoch is above all
// earlier ones. holder must be unique among all processes. Acquire does not wait: the process
// that is asked to train a run trains it, and the earlier holder learns that at its next
// write. When the head is missing or unreadable, Acquire calls floor and takes an epoch above
// its result. Errors: ErrNewer.
func Acquire(ctx context.Context, store blob.Store, key, holder string, floor func(context.Context) (int64, error)) (*Lease, error) {
	for {
		l, err := acquire(ctx, store, key, holder, floor)
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, blob.ErrConflict) {
			return nil, fmt.Errorf("take lease: %w", err)
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("take lease: %w", err)
		}
	}
}

func acquire(ctx context.Context, store blob.Store, key, holder string, floor func(context.Context) (int64, error)) (*Lease, error) {
	head, ref, err := readHead(ctx, store, key)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
		head = Head{}
		head.Epoch, err = floor(ctx)
	}
	if err != nil {
		return nil, err
	}
	head.Format, head.Epoch, head.Holder = headFormat, head.Epoch+1, holder
	l := &Lease{store: store, key: key, holder: holder, epoch: head.Epoch}
	if err := l.swap(ctx, ref, head); err != nil {
		return nil, err
	}
	return l, nil
}

// swap replaces the head at ref old. The caller holds l.mu or owns l.
func (l *Lease) swap(ctx context.Context, old blob.Ref, h Head) error {
	data, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", l.key, err)
	}
	ref, err := l.store.Swap(ctx, l.key, old, append(data, '\n'))
	if err != nil {
		return err
	}
	l.head, l.ref = h, ref
	return nil
}

// Epoch returns the number of the lease; later leases have higher ones.
func (l *Lease) Epoch() int64 { return l.epoch }

// Head returns the head as this process last wrote it.
func (l *Lease) Head() Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Check returns ErrFenced when another process took the lease.
func (l *Lease) Check(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(ctx)
}

func (l *Lease) check(ctx context.Context) error {
	h, ref, err := readHead(ctx, l.store, l.key)
	switch {
	case err == nil && h.Epoch == l.epoch && h.Holder == l.holder:
		l.head, l.ref = h, ref // unchanged, unless the answer to a swap was lost
		return nil
	case err == nil:
		return fmt.Errorf("%s: epoch %d of %s, this is epoch %d of %s: %w", l.store.Locate(l.key), h.Epoch, h.Holder, l.epoch, l.holder, ErrFenced)
	case errors.Is(err, blob.ErrNotExist), errors.Is(err, ErrCorrupt), errors.Is(err, ErrNewer):
		return fmt.Errorf("lease of epoch %d is gone: %v: %w", l.epoch, err, ErrFenced) //nolint:errorlint // the run is opened again
	default:
		return err
	}
}

// Advance moves the head forward to a checkpoint. Errors: ErrFenced.
func (l *Lease) Advance(ctx context.Context, step int, manifest blob.Ref) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		h := l.head
		if step < h.Step || step == h.Step && manifest == h.Manifest {
			return l.check(ctx)
		}
		h.Step, h.Manifest = step, manifest
		err := l.swap(ctx, l.ref, h)
		if !errors.Is(err, blob.ErrConflict) {
			return err
		}
		if err := l.check(ctx); err != nil {
			return err
		} // else the answer to an earlier swap was lost; the head is known now
	}
}
