package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"temper/internal/blob"
)

// A checkpoint that is about to exist and a garbage collection exclude each
// other as in Dekker's algorithm: each first writes that it is there, then looks
// for the other. A writer announces the shards that it will name, and then
// waits for the collections that it sees and that may delete one of them; a
// collection says what it may delete, and then keeps the shards of the
// announcements that it sees. One of both sees the other.

const (
	pendingFolder = "pending"       // below a prefix: announcements
	collectFolder = casRoot + "/gc" // collections under way
	// maxCollect bounds a collection after it began; it stops deleting then, and
	// who waits for it waits no longer than that and slack for its last deletion.
	maxCollect = 2 * time.Minute
	slack      = 30 * time.Second
	// maxSave bounds the time from an announcement to its manifest.
	maxSave = 12 * time.Hour
	// pendingLost is when an announcement without an end no longer counts.
	pendingLost = 24 * time.Hour
	// pollCollect is the pause between two looks at a collection.
	pollCollect = 200 * time.Millisecond
)

// clock is the time, for tests to replace.
type clock struct {
	now   func() time.Time
	pause func(context.Context, time.Duration) error
}

func (c clock) time() time.Time {
	if c.now == nil {
		return time.Now()
	}
	return c.now()
}

func (c clock) wait(ctx context.Context, d time.Duration) error {
	if c.pause != nil {
		return c.pause(ctx, d)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mark names the shards that a manifest will name, or that a collection may delete.
type mark struct {
	Shards []blob.Ref `json:"shards"`
}

// announcement is a mark in a store and the collections that were there before
// and may delete what it names.
type announcement struct {
	store blob.Store
	key   string
	since time.Time
	other []string
	clock clock
}

// announce writes that the shards of m will be named by a manifest below the
// prefix. Writers that die leave it to expire.
func announce(ctx context.Context, store blob.Store, prefix string, m manifest, c clock) (*announcement, error) {
	a := &announcement{store: store, since: c.time(), clock: c}
	a.key = path.Join(prefix, pendingFolder, fmt.Sprintf("step-%06d-%d.json", m.Step, a.since.UnixNano()))
	if _, err := blob.PutJSON(ctx, store, a.key, mark{Shards: m.refs()}, blob.Always); err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, ref := range m.refs() {
		named[ref.Key] = true
	}
	infos, err := store.List(ctx, collectFolder+"/")
	if err != nil {
		return nil, err
	}
	for _, info := range infos {
		var c mark
		err := blob.ReadJSON(ctx, store, info.Key, &c)
		if err != nil && !errors.Is(err, blob.ErrNotExist) { // it has ended
			return nil, err
		}
		if slices.ContainsFunc(c.Shards, func(ref blob.Ref) bool { return named[ref.Key] }) {
			a.other = append(a.other, info.Key)
		}
	}
	return a, nil
}

// settle waits for the collections that may not have seen the announcement.
// waited says that there were some: what was in the store before may be gone.
func (a *announcement) settle(ctx context.Context) (waited bool, err error) {
	for _, key := range a.other {
		for a.clock.time().Sub(a.since) < maxCollect+slack { // else it died
			_, err := a.store.Stat(ctx, key)
			if errors.Is(err, blob.ErrNotExist) {
				break
			}
			if err != nil {
				return true, err
			}
			if err := a.clock.wait(ctx, pollCollect); err != nil {
				return true, err
			}
		}
	}
	if took := a.clock.time().Sub(a.since); took > maxSave {
		return true, fmt.Errorf("storing the shards took %v, limit is %v: try again, stored shards are not sent twice", took, maxSave)
	}
	return len(a.other) > 0, nil
}

// withdraw ends the announcement, after the manifest was written.
func (a *announcement) withdraw(ctx context.Context) error { return a.store.Delete(ctx, a.key) }

// isPending reports whether a key is an announcement.
func isPending(key string) bool {
	dir, name := path.Split(key)
	return path.Base(dir) == pendingFolder && strings.HasPrefix(name, "step-") && strings.HasSuffix(name, ".json")
}
