package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/blob/object"
	"temper/trainer/model"
	"temper/trainer/weights/safetensors"
	"temper/trainer/weights/tensor"
)

// The weights of a large policy are shards by content, cut like a checkpoint, so
// that shards that did not change, or that a checkpoint has stored, are not stored again. The
// same rules collect them: shards.json lies beside policy.json, where a listing of the run
// finds it.

// fileShards names the shards of a policy.
const fileShards = "shards.json"

// shardListFormat is the version of shards.json.
const shardListFormat = 1

// shardList is shards.json.
type shardList struct {
	Format int        `json:"format"`
	Shards []blob.Ref `json:"shards"`
	// CRC64NVME of the shards by their SHA-256, which loads check.
	CRC64NVME map[string]string `json:"crc64nvme"`
}

// Shard is a part of the weights of a policy.
type Shard struct {
	blob.Ref
	CRC64NVME string
}

// manifest returns the list as a manifest, the form that collections read.
func (l shardList) manifest() manifest {
	return manifest{Format: manifestFormat, Shards: map[string][]blob.Ref{kindWeights: slices.Clone(l.Shards)}, CRC64NVME: l.CRC64NVME}
}

// sameBytes reports whether two lists name the same bytes, under any keys.
func (l shardList) sameBytes(o shardList) bool {
	return slices.EqualFunc(l.Shards, o.Shards, func(a, b blob.Ref) bool { return a.SHA256 == b.SHA256 && a.Size == b.Size })
}

// decodeShardList reads and checks a list. Errors: ErrCorrupt, ErrNewer.
func decodeShardList(key string, data []byte) (l shardList, err error) {
	if err := strictJSON(data, &l); err != nil {
		return l, fmt.Errorf("%s: %w: %w", key, err, ErrCorrupt)
	}
	if l.Format > shardListFormat {
		return l, fmt.Errorf("%s: format %d, this program reads up to %d: update temper: %w", key, l.Format, shardListFormat, ErrNewer)
	}
	for _, ref := range l.Shards {
		if len(ref.SHA256) != 64 || ref.Size < 0 || blob.CheckKey(ref.Key) != nil || !object.ValidChecksum(l.CRC64NVME[ref.SHA256]) {
			return l, fmt.Errorf("%s: shard %q of %d bytes: %w", key, ref.Key, ref.Size, ErrCorrupt)
		}
	}
	return l, nil
}

// readList reads a list that is pinned.
func readList(ctx context.Context, store blob.Store, ref blob.Ref) (shardList, error) {
	data, err := blob.ReadRef(ctx, store, ref)
	if err != nil {
		return shardList{}, err
	}
	return decodeShardList(ref.Key, data)
}

// asStored returns the list in a policy's folder if it names the same bytes: a dead attempt
// may have moved shards.
func (l shardList) asStored(ctx context.Context, store blob.Store, prefix string) (shardList, error) {
	key := path.Join(prefix, fileShards)
	data, err := blob.ReadKey(ctx, store, key)
	if blob.IsDamage(err) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	if there, err := decodeShardList(key, data); err == nil && there.sameBytes(l) {
		return there, nil
	}
	return l, nil
}

// readShardList reads the shards of a policy.
func readShardList(ctx context.Context, store blob.Store, ref blob.Ref) ([]Shard, error) {
	l, err := readList(ctx, store, ref)
	out := make([]Shard, len(l.Shards))
	for i, ref := range l.Shards {
		out[i] = Shard{Ref: ref, CRC64NVME: l.CRC64NVME[ref.SHA256]}
	}
	return out, err
}

// PolicyShards returns the shards of the policy of the manifest at ref; nil for a policy with
// its weights in a file.
func PolicyShards(ctx context.Context, store blob.Store, ref blob.Ref) ([]Shard, error) {
	m, err := readPolicyManifest(ctx, store, ref)
	if err != nil || m.Format == policyFormat {
		return nil, err
	}
	return readShardList(ctx, store, m.Files[fileShards])
}

// FolderShards returns the shards that the folder of a policy names, complete or not; nil
// when it has no readable list.
func FolderShards(ctx context.Context, store blob.Store, prefix string) ([]blob.Ref, error) {
	key := path.Join(prefix, fileShards)
	data, err := blob.ReadKey(ctx, store, key)
	if errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrCorrupt) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l, err := decodeShardList(key, data)
	if errors.Is(err, ErrCorrupt) {
		return nil, nil
	}
	return l.Shards, err
}

// Release deletes the shards that no manifest below root names. It may run beside anything.
func Release(ctx context.Context, store blob.Store, root string, shards []blob.Ref) error {
	only := map[string]int64{}
	for _, ref := range shards {
		only[ref.Key] = ref.Size
	}
	if len(only) == 0 {
		return nil
	}
	c := collector{store: store, root: root, only: only}
	if _, err := c.collect(ctx); err != nil {
		return fmt.Errorf("release shards: %w", err)
	}
	return nil
}

// Read reads a shard from a store and checks every byte. It reads a shard with a wrong sum
// once more, in case the transfer damaged it. Errors: ErrCorrupt, blob.ErrNotExist, each in
// a blob.RefError.
func (s Shard) Read(ctx context.Context, store blob.Store) ([]model.Tensor, error) {
	out, err := readShard(ctx, store, s.Ref, s.digest())
	if errors.Is(err, ErrCorrupt) {
		out, err = readShard(ctx, store, s.Ref, s.digest())
	}
	return out, blob.AtRef(err, s.Ref)
}

func (s Shard) digest() digest {
	return manifest{CRC64NVME: map[string]string{s.SHA256: s.CRC64NVME}}.digestOf(s.Ref)
}

// View returns the tensors of a shard over its bytes in memory. With trusted it does not
// check the sum. Errors: ErrCorrupt.
func (s Shard) View(ctx context.Context, data []byte, trusted bool) ([]tensor.Stored, error) {
	if int64(len(data)) != s.Size {
		return nil, fmt.Errorf("%s: %d bytes, want %d: %w", s.Key, len(data), s.Size, ErrCorrupt)
	}
	if !trusted {
		sum := s.digest()
		for next := range slices.Chunk(data, piece) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			sum.Write(next)
		}
		if err := sum.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Key, err)
		}
	}
	file, err := safetensors.New(bytes.NewReader(data), s.Size, path.Base(s.Key))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	out := make([]tensor.Stored, len(file.Tensors))
	for i, t := range file.Tensors {
		values, err := safetensors.F32View(data, t)
		if err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w: %w", s.Key, t.Name, err, ErrCorrupt)
		}
		out[i] = tensor.Stored{Name: t.Name, Shape: t.Shape, Float32: values}
	}
	return out, nil
}

// isShardList reports whether a key is the list of a policy.
func isShardList(key string) bool { return strings.HasSuffix(key, "/"+fileShards) }
