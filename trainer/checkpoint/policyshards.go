package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
	"temper/internal/proc/failpoint"
	"temper/trainer/model"
	"temper/trainer/weights/hostmem"
	"temper/trainer/weights/safetensors"
)

// inShards decides the form of a policy: the form of the stored one, else p.Form.
func inShards(ctx context.Context, store blob.Store, prefix string, p Policy) (bool, error) {
	sharded, ok, err := StoredInShards(ctx, store, prefix)
	if err != nil || ok {
		return sharded, err
	}
	return p.Form.ShardFrom > 0 && 4*int64(p.Model.NumParameters()) >= p.Form.ShardFrom, nil
}

// StoredInShards reports whether the weights of the policy under the prefix are shards; ok is
// false when it cannot read a policy.
func StoredInShards(ctx context.Context, store blob.Store, prefix string) (sharded, ok bool, err error) {
	var m struct {
		Format int `json:"format"`
	}
	err = blob.ReadJSON(ctx, store, path.Join(prefix, filePolicy), &m)
	if err == nil {
		return m.Format == policyFormatShards, true, nil
	}
	if errors.Is(err, blob.ErrUnavailable) || errors.Is(err, blob.ErrMisconfigured) || ctx.Err() != nil {
		return false, false, err
	}
	return false, false, nil
}

// shardPublication publishes a policy in shards.
type shardPublication struct {
	store   blob.Store
	source  Source
	headers []*safetensors.Header
	memory  [][]byte // of the whole shards; nil for none
	list    shardList
}

func publishShards(ctx context.Context, store blob.Store, prefix string, p Policy, weights Source) (ref blob.Ref, err error) {
	s, err := newShardPublication(store, p.Model.Tensors(), weights)
	if err != nil {
		return blob.Ref{}, err
	}
	if p.Form.Memory != nil {
		var keep func(blob.Ref, []string)
		var drop func()
		if s.memory, keep, drop, err = p.Form.Memory.Take(s.sizes()); err != nil {
			s.memory = nil // ShardMemory logs the reason
		} else {
			defer func() {
				if err != nil {
					drop()
					return
				}
				keep(ref, s.sums())
			}()
		}
	}
	if err := s.seal(ctx); err != nil {
		return blob.Ref{}, err
	}
	return s.publish(ctx, prefix, p)
}

// newShardPublication cuts the tensors into the same shards as checkpoints do.
func newShardPublication(store blob.Store, specs []model.TensorSpec, source Source) (*shardPublication, error) {
	s := &shardPublication{store: store, source: source, list: shardList{Format: shardListFormat, CRC64NVME: map[string]string{}}}
	for _, group := range split(specs, maxShard, func(t model.TensorSpec) int { return 4 * t.Size() }) {
		infos := make([]safetensors.Info, len(group))
		for i, t := range group {
			infos[i] = safetensors.Info{Name: t.Name, DType: safetensors.F32, Shape: t.Shape}
		}
		header, err := fileHeader(infos)
		if err != nil {
			return nil, err
		}
		s.headers = append(s.headers, header)
	}
	return s, nil
}

func (s *shardPublication) sizes() []int64 {
	out := make([]int64, len(s.headers))
	for i, h := range s.headers {
		out[i] = h.FileSize()
	}
	return out
}

// sums returns the SHA-256 of the shards.
func (s *shardPublication) sums() []string {
	out := make([]string, len(s.list.Shards))
	for i, ref := range s.list.Shards {
		out[i] = ref.SHA256
	}
	return out
}

// seal hashes the shards in parallel, while it fetches the next ones.
func (s *shardPublication) seal(ctx context.Context) error {
	s.list.Shards = make([]blob.Ref, len(s.headers))
	crcs := make([]string, len(s.headers))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range s.headers {
		sh, err := s.fetch(i)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error {
			err := sh.seal(ctx)
			s.list.Shards[i], crcs[i] = sh.ref, sh.crc
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, ref := range s.list.Shards {
		s.list.CRC64NVME[ref.SHA256] = crcs[i]
	}
	return nil
}

// fetch makes a shard, in the shared memory if there is some.
func (s *shardPublication) fetch(i int) (*shard, error) {
	h := s.headers[i]
	start := h.Start()
	sh := &shard{size: h.FileSize(), parts: [][]byte{start}}
	if s.memory != nil {
		copy(s.memory[i], start)
		sh.parts = [][]byte{s.memory[i]}
	}
	for _, info := range h.Tensors {
		t, err := s.source(info.Name)
		if err != nil {
			return nil, err
		}
		raw := safetensors.F32Bytes(t.Data)
		if int64(len(raw)) != info.Size() {
			return nil, fmt.Errorf("encode safetensors: tensor %s has %d bytes, want %d for shape %v", info.Name, len(raw), info.Size(), info.Shape)
		}
		if s.memory == nil {
			sh.parts = append(sh.parts, raw)
			continue
		}
		hostmem.CopyBytes(s.memory[i][int64(len(start))+info.Begin:], raw)
	}
	return sh, nil
}

// publish stores the missing shards, the list, and then the manifest.
func (s *shardPublication) publish(ctx context.Context, prefix string, p Policy) (blob.Ref, error) {
	var err error
	if s.list, err = s.list.asStored(ctx, s.store, prefix); err != nil {
		return blob.Ref{}, err
	}
	if ref, err := s.stored(ctx, prefix, p); err != nil || !ref.IsZero() {
		return ref, err
	}
	a, m, err := claim(ctx, s.store, prefix, s.list.manifest(), clock{}, func(m manifest, _ map[string]string) error { return s.upload(ctx, m) })
	if err != nil {
		return blob.Ref{}, err // the announcement stays: the next attempt finds the shards
	}
	s.list.Shards = m.Shards[kindWeights]
	files, manifest, err := s.files(prefix, p)
	if err != nil {
		return blob.Ref{}, withdrawn(ctx, a, err)
	}
	failpoint.Hit("policy/before-list")
	ref, err := putPolicy(ctx, s.store, prefix, manifest, files)
	if err != nil {
		return blob.Ref{}, err
	}
	failpoint.Hit("policy/before-withdraw")
	return ref, a.withdraw(ctx)
}

// stored returns the Ref of the policy if it is stored.
func (s *shardPublication) stored(ctx context.Context, prefix string, p Policy) (blob.Ref, error) {
	_, m, err := s.files(prefix, p)
	if err != nil {
		return blob.Ref{}, err
	}
	return storedPolicy(ctx, s.store, prefix, m)
}

// files returns the files of the policy, with the list of its shards.
func (s *shardPublication) files(prefix string, p Policy) (map[string]content, policyManifest, error) {
	files, err := policyFiles(p)
	if err != nil {
		return nil, policyManifest{}, err
	}
	m, err := manifestWith(files, prefix, s.list)
	return files, m, err
}

// manifestWith adds a list to the files of a policy and builds their manifest.
func manifestWith(files map[string]content, prefix string, l shardList) (policyManifest, error) {
	list, err := encodeJSON(l)
	if err != nil {
		return policyManifest{}, err
	}
	files[fileShards] = bytesOf(list)
	return manifestOf(policyFormatShards, prefix, files)
}

// upload stores the missing shards.
func (s *shardPublication) upload(ctx context.Context, m manifest) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, ref := range m.Shards[kindWeights] {
		info, err := s.store.Stat(ctx, ref.Key)
		if err == nil && info.Size == ref.Size {
			continue
		}
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			return errors.Join(err, g.Wait())
		}
		sh, err := s.shardAgain(i, ref)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error { return s.putShard(ctx, sh, ref) })
	}
	return g.Wait()
}

// shardAgain returns the content of a shard that was sealed before.
func (s *shardPublication) shardAgain(i int, ref blob.Ref) (*shard, error) {
	if s.memory == nil {
		return s.fetch(i)
	}
	return &shard{size: ref.Size, parts: [][]byte{s.memory[i]}}, nil
}

// putShard stores a shard. It hashes a shard that was fetched again: its bytes could differ
// from the sealed ones.
func (s *shardPublication) putShard(ctx context.Context, sh *shard, ref blob.Ref) error {
	if s.memory == nil {
		if err := sh.seal(ctx); err != nil {
			return err
		}
		if sh.ref.SHA256 != ref.SHA256 {
			return fmt.Errorf("%s: content changed while it was stored: %w", ref.Key, blob.ErrCorrupt)
		}
	}
	sh.ref = ref
	if err := sh.put(ctx, s.store); err != nil {
		return err
	}
	failpoint.Hit("policy/after-shard")
	return nil
}

// copyShards writes a policy under another prefix with the shards of a stored policy.
func copyShards(ctx context.Context, store blob.Store, from policyManifest, prefix string) (blob.Ref, error) {
	files := map[string]content{}
	for name, ref := range from.Files {
		data, err := blob.ReadRef(ctx, store, ref)
		if err != nil {
			return blob.Ref{}, err
		}
		files[name] = bytesOf(data)
	}
	l, err := readList(ctx, store, from.Files[fileShards])
	if err == nil {
		l, err = l.asStored(ctx, store, prefix)
	}
	if err != nil {
		return blob.Ref{}, err
	}
	m, err := manifestWith(files, prefix, l)
	if err != nil {
		return blob.Ref{}, err
	}
	if ref, err := storedPolicy(ctx, store, prefix, m); err != nil || !ref.IsZero() {
		return ref, err
	}
	a, claimed, err := claim(ctx, store, prefix, l.manifest(), clock{}, func(m manifest, moved map[string]string) error {
		for _, ref := range m.refs() {
			if err := copyShard(ctx, store, ref, moved[ref.Key]); err != nil {
				return err
			}
		}
		return m.complete(ctx, store)
	})
	if err != nil {
		return blob.Ref{}, withdrawn(ctx, a, err)
	}
	l.Shards = claimed.Shards[kindWeights]
	if m, err = manifestWith(files, prefix, l); err != nil {
		return blob.Ref{}, withdrawn(ctx, a, err)
	}
	ref, err := putPolicy(ctx, store, prefix, m, files)
	return ref, errors.Join(err, a.withdraw(ctx))
}
