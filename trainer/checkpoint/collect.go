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

// Writing a checkpoint and collecting garbage exclude each other as in Dekker's algorithm:
// each side first announces itself, then looks for the other. A writer announces the shards
// that its manifest will name, and waits for the visible collections that may delete one of
// them. A collection announces the shards that it may delete, and keeps the shards of visible
// writers. At least one side sees the other. A collection that does not end may be dead, or
// suspended before its next deletion: the writer stores the shards again, under keys that
// the collection does not know.

const (
	pendingFolder = "pending"       // below a prefix: announcements of writers
	collectFolder = casRoot + "/gc" // announcements of collections
	// maxCollect bounds a collection: it deletes nothing after that time, and a writer waits
	// for it that long and, for its last deletion, some slack.
	maxCollect = 2 * time.Minute
	slack      = 30 * time.Second
	// maxSave bounds the time from an announcement to its manifest.
	maxSave = 12 * time.Hour
	// pendingLost is the age from which the announcement of a writer is ignored. A live
	// process never pauses that long between two calls.
	pendingLost = 7 * 24 * time.Hour
	// pollCollect is the time between two checks for a collection.
	pollCollect = 200 * time.Millisecond
)

// clock is the time; tests replace it.
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

// mark lists the shards that a manifest will name, or that a collection may delete.
type mark struct {
	Shards []blob.Ref `json:"shards"`
}

// announcement is the mark of a writer, and the collections that began before it and may
// delete its shards.
type announcement struct {
	store  blob.Store
	key    string
	before []string // keys of the announcements that it replaces
	since  time.Time
	other  map[string][]string
	clock  clock
}

// announce stores a mark with the shards of m below the prefix. The announcement of a
// writer that dies expires.
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
		if err != nil && !errors.Is(err, blob.ErrNotExist) { // the collection has ended
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

// settle waits for the collections that may not have seen the announcement. waited reports
// whether there were any: shards of the store may be gone. lost has the keys that a
// collection without end may delete at any time.
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

// await reports whether a collection ends within the time limit of collections.
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

// claim announces the shards of m and calls put to store them. It repeats both until no
// collection can delete any of them; moved has the keys that changed. It returns the
// manifest to write, and the announcement, which the caller withdraws after the write.
func claim(ctx context.Context, store blob.Store, prefix string, m manifest, c clock, put func(m manifest, moved map[string]string) error) (*announcement, manifest, error) {
	moved := map[string]string{} // new keys -> old keys
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
		next.before = append(a.before, a.key) // withdrawn together, so that a concurrent listing sees one of them
		a = next
	}
}

// move gives the shards with the given keys new, unguessable keys. Equal shards share one.
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

// withdraw deletes the announcement, after the manifest was written.
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

// Grace is the age below which Collect keeps a shard, named or not. It is longer than any
// store needs to take a shard.
const Grace = time.Hour

// ErrUncollected means that Collect deleted nothing because it cannot read a manifest, which
// may belong to any run.
var ErrUncollected = errors.New("nothing was deleted")

// CollectOptions change a collection. The zero value has the defaults.
type CollectOptions struct {
	DryRun bool
	// Grace is the age from which shards are deleted; 0 means Grace.
	Grace time.Duration

	clock clock
}

// Collected is the result of a garbage collection.
type Collected struct {
	Checkpoints int   `json:"checkpoints"` // of all runs
	Policies    int   `json:"policies"`    // of all runs, with weights in shards
	Shards      int   `json:"shards"`
	Bytes       int64 `json:"bytes"`
	// Young counts shards that no manifest names and that are younger than the grace.
	Young   int   `json:"young"`
	Deleted int   `json:"deleted"`
	Freed   int64 `json:"freed"` // bytes
	// Unfinished is true when the collection ran out of time: repeat it.
	Unfinished bool `json:"unfinished,omitempty"`
}

// Collect deletes the shards that no checkpoint, policy or announcement below root names. It
// may run beside writers and other collections. If it cannot read a manifest, it stops before
// the first deletion.
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
	only   map[string]int64 // keys that may be deleted, with their sizes in bytes; nil = every old shard
	out    Collected
	used   map[string]bool
	stale  []string // announcements of dead writers
}

// collect lists the shards that it may delete, announces them, and marks again before it deletes.
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

// candidates lists the shards that no manifest names and that are old enough.
func (c *collector) candidates(ctx context.Context) (map[string]int64, error) {
	if err := c.markStill(ctx, c.clock.time()); err != nil {
		return nil, err
	}
	shards, err := c.store.List(ctx, casRoot+"/")
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for _, info := range shards {
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

// sweepOnly deletes the candidates that are still unused.
func (c *collector) sweepOnly(ctx context.Context) (err error) {
	began := c.clock.time()
	var m mark
	for _, key := range slices.Sorted(maps.Keys(c.only)) {
		m.Shards = append(m.Shards, blob.Ref{Key: key, Size: c.only[key]})
	}
	key := path.Join(collectFolder, fmt.Sprintf("%d-%s.json", began.UnixNano(), rand.Text()[:8]))
	defer func() {
		err = errors.Join(err, c.store.Delete(context.WithoutCancel(ctx), key)) // a remaining announcement makes writers wait
	}()
	if _, err := blob.PutJSON(ctx, c.store, key, m, blob.Always); err != nil {
		return err // the store may have it all the same
	}
	seen := c.out
	if err := c.markStill(ctx, began); err != nil {
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

// errMoved means that an announcement became a manifest after the listing.
var errMoved = errors.New("checkpoints were written faster than they can be listed: try again")

// markStill repeats mark while announcements become manifests.
func (c *collector) markStill(ctx context.Context, began time.Time) error {
	for {
		err := c.mark(ctx)
		if !errors.Is(err, errMoved) || c.clock.time().Sub(began) > maxCollect {
			return err
		}
	}
}

// mark fills used. Keys come in order, announcements before manifests, so that one which
// becomes the other meanwhile is seen.
func (c *collector) mark(ctx context.Context) error {
	infos, err := c.store.List(ctx, c.root+"/")
	if err != nil {
		return err
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
		}
		if err != nil {
			return err
		}
	}
	return nil
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

var shardForm = regexp.MustCompile(`^cas/[0-9a-f]{2}/[0-9a-f]{64}(-[0-9A-Z]+)?\.safetensors$`)

// tidy deletes the announcements of dead writers.
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
