package checkpoint

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
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

// Grace is the age below which Collect leaves a shard alone whoever names it.
// It is longer than any store needs to take a shard.
const Grace = time.Hour

// ErrUncollected means that shards stay, since nobody knows what a manifest names that
// cannot be read. It may be of another run.
var ErrUncollected = errors.New("nothing was deleted")

// CollectOptions change what Collect does. The zero value is good.
type CollectOptions struct {
	DryRun bool
	// Grace is the age from which shards are deleted; 0 means Grace.
	Grace time.Duration

	clock clock
}

// Collected says what a garbage collection found.
type Collected struct {
	Checkpoints int   `json:"checkpoints"` // of all runs
	Policies    int   `json:"policies"`    // of all runs, whose weights are shards
	Shards      int   `json:"shards"`
	Bytes       int64 `json:"bytes"`
	// Young shards are named by nothing and below the grace.
	Young   int   `json:"young"`
	Deleted int   `json:"deleted"`
	Freed   int64 `json:"freed"` // bytes
	// Unfinished is true when the collection ran out of time: repeat it.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Collect deletes the shards that no checkpoint and no policy below root names, and that
// nothing that is under way will. It may run beside anything. If a manifest cannot
// be read, it stops before the first deletion.
func Collect(ctx context.Context, store blob.Store, root string, o CollectOptions) (Collected, error) {
	if o.Grace == 0 {
		o.Grace = Grace
	}
	c := collector{store: store, root: root, clock: o.clock, grace: o.Grace, dryRun: o.DryRun}
	out, err := c.collect(ctx)
	if err != nil {
		return out, fmt.Errorf("collect garbage: %w", err)
	}
	return out, nil
}

type collector struct {
	store  blob.Store
	root   string
	clock  clock
	grace  time.Duration
	dryRun bool
	only   map[string]int64 // keys that may be deleted and their bytes; nil = all that is old
	out    Collected
	used   map[string]bool
	stale  []string // announcements of writers that died
}

// collect finds what it may delete, says so, and looks again what is in use.
func (c *collector) collect(ctx context.Context) (_ Collected, err error) {
	if c.only == nil {
		if c.only, err = c.candidates(ctx); err != nil || c.dryRun {
			return c.out, err
		}
	}
	if len(c.only) > 0 {
		if err := c.sweepOnly(ctx); err != nil {
			return c.out, err
		}
	}
	return c.out, c.tidy(ctx)
}

// candidates lists the shards that nothing names and that are old enough.
func (c *collector) candidates(ctx context.Context) (map[string]int64, error) {
	old, err := c.markStill(ctx, c.clock.time())
	if err != nil {
		return nil, err
	}
	shards, err := c.store.List(ctx, casRoot+"/")
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, info := range append(shards, old...) {
		if !shardForm.MatchString(info.Key) {
			continue
		}
		c.out.Shards++
		c.out.Bytes += info.Size
		switch {
		case c.used[info.Key]:
		case c.clock.time().Sub(info.ModTime) < c.grace:
			c.out.Young++
		default:
			out[info.Key] = info.Size
			if c.dryRun {
				c.out.Deleted, c.out.Freed = c.out.Deleted+1, c.out.Freed+info.Size
			}
		}
	}
	return out, nil
}

// sweepOnly deletes the candidates that are still not in use.
func (c *collector) sweepOnly(ctx context.Context) (err error) {
	began := c.clock.time()
	var m mark
	for _, key := range slices.Sorted(maps.Keys(c.only)) {
		m.Shards = append(m.Shards, blob.Ref{Key: key, Size: c.only[key]})
	}
	key := path.Join(collectFolder, fmt.Sprintf("%d-%s.json", began.UnixNano(), rand.Text()[:8]))
	defer func() {
		err = errors.Join(err, c.store.Delete(context.WithoutCancel(ctx), key)) // else writers would wait for it
	}()
	if _, err := blob.PutJSON(ctx, c.store, key, m, blob.Always); err != nil {
		return err // it may be there all the same
	}
	seen := c.out
	if _, err := c.markStill(ctx, began); err != nil {
		return err
	}
	c.out = seen
	for _, ref := range m.Shards {
		if c.used[ref.Key] {
			continue
		}
		if c.clock.time().Sub(began) > maxCollect {
			c.out.Unfinished = true
			return nil
		}
		if err := c.store.Delete(ctx, ref.Key); err != nil {
			return err
		}
		c.out.Deleted, c.out.Freed = c.out.Deleted+1, c.out.Freed+ref.Size
	}
	return nil
}

// errMoved: an announcement became a manifest that the list does not have.
var errMoved = errors.New("checkpoints were written faster than they can be listed: try again")

// markStill is mark, repeated while announcements become manifests.
func (c *collector) markStill(ctx context.Context, began time.Time) (old []blob.Info, err error) {
	for {
		old, err = c.mark(ctx)
		if !errors.Is(err, errMoved) || c.clock.time().Sub(began) > maxCollect {
			return old, err
		}
	}
}

// mark fills used and returns the shards that lie beside manifests, as older
// programs stored them. Keys come in order, announcements before manifests, so
// that one which becomes the other meanwhile is seen.
func (c *collector) mark(ctx context.Context) (old []blob.Info, err error) {
	infos, err := c.store.List(ctx, c.root+"/")
	if err != nil {
		return nil, err
	}
	c.used, c.stale, c.out.Checkpoints, c.out.Policies = map[string]bool{}, nil, 0, 0
	for _, info := range infos {
		_, isManifest := stepOf(info.Key)
		switch {
		case isManifest:
			err = c.markManifest(ctx, info.Key)
		case isShardList(info.Key):
			err = c.markPolicy(ctx, info.Key)
		case isPending(info.Key) && c.clock.time().Sub(info.ModTime) > pendingLost:
			c.stale = append(c.stale, info.Key)
		case isPending(info.Key):
			err = c.markPending(ctx, info.Key)
		case shardForm.MatchString(info.Key):
			old = append(old, info)
		}
		if err != nil {
			return nil, err
		}
	}
	return old, nil
}

func (c *collector) markManifest(ctx context.Context, key string) error {
	data, err := blob.ReadKey(ctx, c.store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil // pruned meanwhile
	}
	if err != nil {
		return err
	}
	m, err := decodeManifest(key, data)
	if errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("%w, for it is not known what this checkpoint names; delete %s if it is of no use: %w", ErrUncollected, c.store.Locate(key), err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUncollected, err)
	}
	c.out.Checkpoints++
	for _, ref := range m.refs() {
		c.used[ref.Key] = true
	}
	return nil
}

func (c *collector) markPolicy(ctx context.Context, key string) error {
	data, err := blob.ReadKey(ctx, c.store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return nil // pruned meanwhile
	}
	if err != nil {
		return err
	}
	l, err := decodeShardList(key, data)
	if err != nil {
		return fmt.Errorf("%w, for it is not known what this policy names; delete the folder of %s if it is of no use: %w", ErrUncollected, c.store.Locate(key), err)
	}
	c.out.Policies++
	for _, ref := range l.Shards {
		c.used[ref.Key] = true
	}
	return nil
}

func (c *collector) markPending(ctx context.Context, key string) error {
	var m mark
	err := blob.ReadJSON(ctx, c.store, key, &m)
	if errors.Is(err, blob.ErrNotExist) {
		return errMoved
	}
	if err != nil {
		return err
	}
	for _, ref := range m.Shards {
		c.used[ref.Key] = true
	}
	return nil
}

var shardForm = regexp.MustCompile(`(^cas/[0-9a-f]{2}|/shards)/[0-9a-f]{64}(-[0-9A-Z]+)?\.safetensors$`)

// tidy removes what processes that died left behind.
func (c *collector) tidy(ctx context.Context) error {
	infos, err := c.store.List(ctx, collectFolder+"/")
	if err != nil {
		return err
	}
	for _, info := range infos {
		if c.clock.time().Sub(info.ModTime) > pendingLost {
			c.stale = append(c.stale, info.Key)
		}
	}
	for _, key := range c.stale {
		if err := c.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
