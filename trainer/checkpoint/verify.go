package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
)

// Verified is the result of a verification.
type Verified struct {
	Checkpoints int   `json:"checkpoints"`
	Policies    int   `json:"policies"` // with weights in shards
	Shards      int   `json:"shards"`
	Bytes       int64 `json:"bytes"` // of all shards
	// Damaged is sorted by key, and empty for no damage.
	Damaged []Damage `json:"damaged,omitempty"`
}

// Damage is an object whose bytes differ from the hash in a manifest.
type Damage struct {
	Key     string `json:"key"`
	Problem string `json:"problem"`
	// Checkpoints lists the manifests that name the object, including manifests of policies;
	// for a damaged manifest it holds the key of the manifest.
	Checkpoints []string `json:"checkpoints"`
}

// Verify reads every shard that a checkpoint or a policy below the prefix names, and compares
// it with its SHA-256 and with the checksum that loads check. It changes nothing and holds
// no shard in memory. Damage is a result, not an error.
func Verify(ctx context.Context, store blob.Store, prefix string) (Verified, error) {
	v := verifier{store: store, shards: map[blob.Ref]*named{}}
	err := v.manifests(ctx, prefix)
	if err == nil {
		err = v.all(ctx)
	}
	if err != nil {
		return v.out, fmt.Errorf("verify checkpoints: %w", err)
	}
	slices.SortFunc(v.out.Damaged, func(a, b Damage) int { return cmp.Compare(a.Key, b.Key) })
	return v.out, nil
}

// verifier collects the shards to read and the damage found.
type verifier struct {
	store  blob.Store
	shards map[blob.Ref]*named
	mu     sync.Mutex // guards out while several goroutines read shards
	out    Verified
}

// named is a shard as manifests describe it.
type named struct {
	sums []digest
	by   []string
}

// manifests finds the shards of all checkpoints below the prefix.
func (v *verifier) manifests(ctx context.Context, prefix string) error {
	infos, err := v.store.List(ctx, strings.TrimSuffix(prefix, "/")+"/")
	if err != nil {
		return err
	}
	for _, info := range infos {
		_, isManifest := stepOf(info.Key)
		if !isManifest && !isShardList(info.Key) {
			continue
		}
		data, err := blob.ReadKey(ctx, v.store, info.Key)
		if errors.Is(err, blob.ErrNotExist) {
			continue // pruned meanwhile
		}
		if err != nil {
			return err
		}
		m, err := v.decode(info.Key, data, isManifest)
		if err != nil {
			v.out.Damaged = append(v.out.Damaged, Damage{Key: info.Key, Problem: err.Error(), Checkpoints: []string{info.Key}})
			continue
		}
		v.name(info.Key, m)
	}
	return nil
}

// decode reads and counts an object that names shards.
func (v *verifier) decode(key string, data []byte, isManifest bool) (manifest, error) {
	if isManifest {
		v.out.Checkpoints++
		return decodeManifest(key, data)
	}
	v.out.Policies++
	l, err := decodeShardList(key, data)
	return l.manifest(), err
}

// name adds the shards of a manifest.
func (v *verifier) name(key string, m manifest) {
	for _, ref := range m.refs() {
		n := v.shards[ref]
		if n == nil {
			n = &named{sums: []digest{sha256Of(ref)}}
			v.shards[ref] = n
		}
		if slices.Contains(n.by, key) {
			continue // equal moments
		}
		n.by = append(n.by, key)
		if d := m.digestOf(ref); !slices.ContainsFunc(n.sums, func(o digest) bool { return o.want == d.want }) {
			n.sums = append(n.sums, d)
		}
	}
}

// all reads the shards.
func (v *verifier) all(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for ref, n := range v.shards {
		g.Go(func() error { return v.shard(ctx, ref, n) })
	}
	return g.Wait()
}

// shard reads one shard. A missing shard is damaged when a manifest still names it.
func (v *verifier) shard(ctx context.Context, ref blob.Ref, n *named) error {
	err := v.read(ctx, ref, n)
	if errors.Is(err, blob.ErrNotExist) {
		if n.by, err = v.still(ctx, n.by); err != nil || len(n.by) == 0 {
			return err
		}
		err = fmt.Errorf("is missing: %w", ErrCorrupt)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.out.Shards, v.out.Bytes = v.out.Shards+1, v.out.Bytes+ref.Size
	if errors.Is(err, blob.ErrCorrupt) {
		v.out.Damaged = append(v.out.Damaged, Damage{Key: ref.Key, Problem: err.Error(), Checkpoints: n.by})
		return nil
	}
	return err
}

// read compares the bytes of a shard with every known sum.
func (v *verifier) read(ctx context.Context, ref blob.Ref, n *named) error {
	rc, err := v.store.Get(ctx, ref.Key)
	if err != nil {
		return err
	}
	defer rc.Close() //nolint:errcheck // nothing was written through this handle
	size := &length{}
	into := []io.Writer{size}
	for _, d := range n.sums {
		into = append(into, d)
	}
	if _, err := io.CopyBuffer(io.MultiWriter(into...), rc, make([]byte, piece)); err != nil {
		return err
	}
	if size.bytes != ref.Size {
		return fmt.Errorf("%d bytes, want %d: %w", size.bytes, ref.Size, ErrCorrupt)
	}
	for _, d := range n.sums {
		if err := d.check(); err != nil {
			return err
		}
	}
	return nil
}

// still returns the manifests that exist now.
func (v *verifier) still(ctx context.Context, keys []string) (there []string, err error) {
	for _, key := range keys {
		_, err := v.store.Stat(ctx, key)
		if err == nil {
			there = append(there, key)
		} else if !errors.Is(err, blob.ErrNotExist) {
			return nil, err
		}
	}
	return there, nil
}
