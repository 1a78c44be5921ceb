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
	"time"

	"temper/internal/blob"
)

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

// errMoved: an announcement became a manifest that the list does not have.
var errMoved = errors.New("checkpoints were written faster than they can be listed: try again")

// markStill is mark, repeated while announcements become manifests.
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
