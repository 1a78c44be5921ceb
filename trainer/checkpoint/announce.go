package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"temper/internal/blob"
)

// A checkpoint that is about to exist and a garbage collection exclude each
// other as in Dekker's algorithm: each first writes that it is there, then
// looks for the other. A writer announces the shards that it will name, and
// then waits for the collections that it sees and that may delete one of them;
// a collection says what it may delete, and then keeps the shards of the
// announcements that it sees. At least one of the two sees the other. A
// collection that does not end may be dead, or asleep before its next deletion:
// what it may delete is stored once more, under a key that it does not know.

const (
	pendingFolder = "pending"       // below a prefix: announcements
	collectFolder = casRoot + "/gc" // collections under way
	// maxCollect bounds a collection after it began; it stops deleting then, and a
	// writer that waits for it gives up after that time and some slack for its
	// last deletion.
	maxCollect = 2 * time.Minute
	slack      = 30 * time.Second
	// maxSave bounds the time from an announcement to its manifest.
	maxSave = 12 * time.Hour
	// pendingLost is the age at which what a process left behind no longer counts.
	// No live process sleeps that long between two calls.
	pendingLost = 7 * 24 * time.Hour
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
// and may delete what it names, with the keys in question.
type announcement struct {
	store  blob.Store
	key    string
	before []string // keys of the announcements that it goes on from
	since  time.Time
	other  map[string][]string
	clock  clock
}

// announce writes that the shards of m will be named by a manifest below the
// prefix. Writers that die leave it to expire.
func announce(ctx context.Context, store blob.Store, prefix string, m manifest, c clock) (*announcement, error) {
	a := &announcement{store: store, since: c.time(), other: map[string][]string{}, clock: c}
	a.key = path.Join(prefix, pendingFolder, fmt.Sprintf("step-%06d-%d-%s.json", m.Step, a.since.UnixNano(), rand.Text()[:8]))
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
		for _, ref := range c.Shards {
			if named[ref.Key] {
				a.other[info.Key] = append(a.other[info.Key], ref.Key)
			}
		}
	}
	return a, nil
}

// settle waits for the collections that may not have seen the announcement.
// waited says that there were some: what was in the store before may be gone.
// lost are the keys that a collection which does not end may delete at any time.
func (a *announcement) settle(ctx context.Context) (waited bool, lost []string, err error) {
	for _, key := range slices.Sorted(maps.Keys(a.other)) {
		ended, err := a.await(ctx, key)
		if err != nil {
			return true, nil, err
		}
		if !ended {
			lost = append(lost, a.other[key]...)
		}
	}
	if took := a.clock.time().Sub(a.since); took > maxSave {
		return true, nil, fmt.Errorf("storing the shards took %v, limit is %v: try again, stored shards are not sent twice", took, maxSave)
	}
	return len(a.other) > 0, lost, nil
}

// await reports whether a collection ends within the time that collections
// have.
func (a *announcement) await(ctx context.Context, key string) (ended bool, err error) {
	for {
		_, err := a.store.Stat(ctx, key)
		if errors.Is(err, blob.ErrNotExist) {
			return true, nil
		}
		if err != nil || a.clock.time().Sub(a.since) >= maxCollect+slack {
			return false, err
		}
		if err := a.clock.wait(ctx, pollCollect); err != nil {
			return false, err
		}
	}
}

// claim announces the shards of m and calls put to store them. It repeats both
// until no collection can delete one of them; put gets the keys that have
// changed. It returns the manifest that may now be written, and the
// announcement, which the caller withdraws after that.
func claim(ctx context.Context, store blob.Store, prefix string, m manifest, c clock, put func(m manifest, moved map[string]string) error) (*announcement, manifest, error) {
	moved := map[string]string{} // from new keys to old ones
	a, err := announce(ctx, store, prefix, m, c)
	if err != nil {
		return nil, m, err
	}
	for {
		if err := put(m, moved); err != nil {
			return a, m, err
		}
		waited, lost, err := a.settle(ctx)
		if err == nil && waited && len(lost) == 0 {
			err = put(m, moved)
		}
		if err != nil || len(lost) == 0 {
			return a, m, err
		}
		m = m.move(lost, moved)
		next, err := announce(ctx, store, prefix, m, c)
		if err != nil {
			return a, m, err
		}
		next.before = append(a.before, a.key) // withdrawn together, so that a listing under way sees one of them
		a = next
	}
}

// move gives the shards with the given keys new ones, which nobody knows yet.
// Equal shards go on sharing a key.
func (m manifest) move(keys []string, moved map[string]string) manifest {
	anew := map[string]string{}
	shards := map[string][]blob.Ref{}
	for kind, refs := range m.Shards {
		for _, ref := range refs {
			if slices.Contains(keys, ref.Key) {
				if anew[ref.Key] == "" {
					to := strings.TrimSuffix(shardKey(ref.SHA256), shardSuffix) + "-" + rand.Text()[:8] + shardSuffix
					anew[ref.Key], moved[to] = to, ref.Key
				}
				ref.Key = anew[ref.Key]
			}
			shards[kind] = append(shards[kind], ref)
		}
	}
	m.Shards = shards
	return m
}

// withdraw ends the announcement, after the manifest was written.
func (a *announcement) withdraw(ctx context.Context) error {
	err := a.store.Delete(ctx, a.key)
	for _, key := range a.before {
		err = errors.Join(err, a.store.Delete(ctx, key))
	}
	return err
}

// isPending reports whether a key is an announcement.
func isPending(key string) bool {
	dir, name := path.Split(key)
	return path.Base(dir) == pendingFolder && strings.HasPrefix(name, "step-") && strings.HasSuffix(name, ".json")
}
