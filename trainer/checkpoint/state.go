package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
	"temper/internal/proc/failpoint"
	"temper/trainer/model"
)

// State is the full state of training, in host memory.
type State struct {
	About    About
	Counters Counters
	Model    model.Config
	Weights  []model.Tensor
	// Moments of AdamW under the names of their weights.
	FirstMoments, SecondMoments []model.Tensor
}

// Counters are the numbers on which the next update depends.
type Counters struct {
	// Updates since the moments were last zero; AdamW's bias correction needs it.
	Updates int64 `json:"updates"`
	// TotalUpdates since the weights were initialised.
	TotalUpdates int64 `json:"total_updates"`
	// Schedule is the position in the learning-rate schedule of the last update.
	Schedule int `json:"schedule"`
}

// kinds lists the tensors of the state by kind.
func (s *State) kinds() map[string]*[]model.Tensor {
	return map[string]*[]model.Tensor{kindWeights: &s.Weights, kindFirst: &s.FirstMoments, kindSecond: &s.SecondMoments}
}

// Size returns the bytes of all tensors.
func (s *State) Size() int64 {
	var n int64
	for _, tensors := range s.kinds() {
		for _, t := range *tensors {
			n += 4 * int64(len(t.Data))
		}
	}
	return n
}

// SaveOptions change how a checkpoint is written. The zero value has the defaults.
type SaveOptions struct {
	// Lease, when given, must be held when the manifest is written; then the head moves to
	// the checkpoint.
	Lease *Lease
	// Repair writes every shard again, also a stored one that may be damaged.
	Repair bool

	clock clock
}

// Save stores the state as the checkpoint of a step and returns the Ref of its manifest.
// Saving the same state again is a no-op; another state for a step that has a checkpoint is
// blob.ErrExists, and the stored one stays. Save replaces a manifest that cannot be read.
func Save(ctx context.Context, store blob.Store, prefix string, step int, state State) (blob.Ref, error) {
	return SaveWith(ctx, store, prefix, step, state, SaveOptions{})
}

// SaveWith is Save with options. It hashes and stores shards in parallel, from the state's
// own memory. Errors: the errors of Save, ErrFenced.
func SaveWith(ctx context.Context, store blob.Store, prefix string, step int, state State, o SaveOptions) (blob.Ref, error) {
	s := saver{store: store, prefix: prefix, o: o}
	ref, err := s.save(ctx, step, state)
	if err != nil {
		return blob.Ref{}, fmt.Errorf("save checkpoint of step %d: %w", step, s.orFenced(ctx, err))
	}
	return ref, nil
}

type saver struct {
	store  blob.Store
	prefix string
	o      SaveOptions
	shards []*shard
}

// orFenced returns ErrFenced when the lease is lost: its new holder may have stored another
// checkpoint of the step.
func (s *saver) orFenced(ctx context.Context, err error) error {
	if s.o.Lease == nil || !errors.Is(err, blob.ErrExists) && !errors.Is(err, blob.ErrConflict) {
		return err
	}
	if lost := s.o.Lease.Check(ctx); errors.Is(lost, ErrFenced) {
		return lost
	}
	return err
}

func (s *saver) save(ctx context.Context, step int, state State) (blob.Ref, error) {
	m := manifest{Format: manifestFormat, Step: step, About: state.About, Counters: state.Counters, Model: state.Model}
	if err := s.seal(ctx, &state, &m); err != nil {
		return blob.Ref{}, err
	}
	key := manifestKey(s.prefix, step)
	old, there, same, err := s.stored(ctx, key, m)
	if err != nil {
		return blob.Ref{}, err
	}
	if same && !s.o.Repair {
		return old, s.advance(ctx, step, old)
	}
	if same {
		s.place(&m, there)
	}
	repair := s.o.Repair
	a, m, err := claim(ctx, s.store, s.prefix, m, s.o.clock, func(m manifest, moved map[string]string) error {
		s.follow(moved)
		err := s.upload(ctx, repair)
		repair = false
		return err
	})
	if err != nil {
		return blob.Ref{}, err // the announcement stays: the next attempt finds the shards
	}
	ref := old
	failpoint.Hit("checkpoint/before-manifest")
	if !same || !there.places(m) {
		if ref, err = s.commit(ctx, key, old, m); err != nil {
			return blob.Ref{}, err
		}
	}
	failpoint.Hit("checkpoint/before-head")
	if err := s.advance(ctx, step, ref); err != nil {
		return blob.Ref{}, err
	}
	failpoint.Hit("checkpoint/before-withdraw")
	return ref, a.withdraw(ctx)
}

// seal hashes all shards and adds them to the manifest.
func (s *saver) seal(ctx context.Context, state *State, m *manifest) error {
	byKind := map[string][]*shard{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for kind, tensors := range state.kinds() {
		for _, part := range split(*tensors, maxShard, func(t model.Tensor) int { return 4 * len(t.Data) }) {
			sh, err := newShard(part)
			if err != nil {
				return errors.Join(err, g.Wait())
			}
			byKind[kind] = append(byKind[kind], sh)
			s.shards = append(s.shards, sh)
			g.Go(func() error { return sh.seal(ctx) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	m.Shards, m.CRC64NVME = map[string][]blob.Ref{}, map[string]string{}
	for kind, shards := range byKind {
		for _, sh := range shards {
			m.Shards[kind] = append(m.Shards[kind], sh.ref)
			m.CRC64NVME[sh.ref.SHA256] = sh.crc
		}
	}
	return nil
}

// stored compares the object under key with a manifest. old is zero for no object. Another
// checkpoint is blob.ErrExists.
func (s *saver) stored(ctx context.Context, key string, m manifest) (old blob.Ref, there manifest, same bool, err error) {
	data, err := blob.ReadKey(ctx, s.store, key)
	if errors.Is(err, blob.ErrNotExist) {
		return blob.Ref{}, there, false, nil
	}
	if err != nil {
		return blob.Ref{}, there, false, err
	}
	old = blob.RefOf(key, data)
	there, err = decodeManifest(key, data)
	switch {
	case err == nil && there.sameState(m):
		return old, there, true, nil
	case errors.Is(err, ErrCorrupt):
		return old, there, false, nil
	default:
		return blob.Ref{}, there, false, errors.Join(fmt.Errorf("%s holds other content: %w", key, blob.ErrExists), err)
	}
}

// place gives the shards of m the keys of another manifest.
func (s *saver) place(m *manifest, there manifest) {
	known := map[string]string{}
	for _, ref := range there.refs() {
		known[ref.SHA256] = ref.Key
	}
	moved := map[string]string{}
	for _, refs := range m.Shards {
		for i, ref := range refs {
			if key := known[ref.SHA256]; key != "" && key != ref.Key {
				refs[i].Key = key
				moved[key] = ref.Key
			}
		}
	}
	s.follow(moved)
}

// follow gives the shards the keys to which they moved.
func (s *saver) follow(moved map[string]string) {
	for to, from := range moved {
		for _, sh := range s.shards {
			if sh.ref.Key == from {
				sh.ref.Key = to
			}
		}
	}
}

// upload stores the missing shards, or all of them.
func (s *saver) upload(ctx context.Context, all bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, sh := range s.shards {
		g.Go(func() error {
			if !all {
				info, err := s.store.Stat(ctx, sh.ref.Key)
				if err == nil && info.Size == sh.size {
					return nil
				}
				if err != nil && !errors.Is(err, blob.ErrNotExist) {
					return err
				}
			}
			if err := sh.put(ctx, s.store); err != nil {
				return err
			}
			failpoint.Hit("checkpoint/after-shard")
			return nil
		})
	}
	return g.Wait()
}

// commit writes the manifest. old is a damaged manifest to replace.
func (s *saver) commit(ctx context.Context, key string, old blob.Ref, m manifest) (blob.Ref, error) {
	if s.o.Lease != nil {
		if err := s.o.Lease.Check(ctx); err != nil {
			return blob.Ref{}, err
		}
		m.Written.Epoch = s.o.Lease.Epoch()
		if head := s.o.Lease.Head(); !head.Manifest.IsZero() && head.Step < m.Step {
			m.Written.Parent = &head.Manifest
		}
	}
	if old.IsZero() {
		return putManifestOnce(ctx, s.store, key, m) // another trainer may write first
	}
	data, err := m.encode()
	if err != nil {
		return blob.Ref{}, err
	}
	return s.store.Swap(ctx, key, old, data)
}

func (s *saver) advance(ctx context.Context, step int, ref blob.Ref) error {
	if s.o.Lease == nil {
		return nil
	}
	return s.o.Lease.Advance(ctx, step, ref)
}

// Load reads the checkpoint of the manifest at ref, and checks every byte.
// Errors: ErrCorrupt, ErrNewer, blob.ErrNotExist.
func Load(ctx context.Context, store blob.Store, ref blob.Ref) (step int, state State, err error) {
	m, err := readManifest(ctx, store, ref)
	if err != nil {
		return 0, State{}, fmt.Errorf("load checkpoint %s: %w", ref.Key, err)
	}
	state = State{About: m.About, Counters: m.Counters, Model: m.Model}
	if err := loadKinds(ctx, store, m, state.kinds()); err != nil {
		return 0, State{}, fmt.Errorf("load checkpoint %s: %w", ref.Key, err)
	}
	return m.Step, state, nil
}

// LoadModel is Load for the weights alone.
func LoadModel(ctx context.Context, store blob.Store, ref blob.Ref) (network model.Config, weights []model.Tensor, err error) {
	m, err := readManifest(ctx, store, ref)
	if err == nil {
		err = loadKinds(ctx, store, m, map[string]*[]model.Tensor{kindWeights: &weights})
	}
	if err != nil {
		return model.Config{}, nil, fmt.Errorf("load weights of checkpoint %s: %w", ref.Key, err)
	}
	return m.Model, weights, nil
}

// loadKinds reads the tensors of the given kinds.
func loadKinds(ctx context.Context, store blob.Store, m manifest, kinds map[string]*[]model.Tensor) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	parts := map[string][][]model.Tensor{}
	for kind := range kinds {
		shards := make([][]model.Tensor, len(m.Shards[kind]))
		parts[kind] = shards
		for i, shard := range m.Shards[kind] {
			g.Go(func() (err error) {
				shards[i], err = readShard(ctx, store, shard, m.digestOf(shard))
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for kind, tensors := range kinds {
		*tensors = slices.Concat(parts[kind]...)
	}
	return nil
}

// Entry is a checkpoint in a store.
type Entry struct {
	Step int
	Ref  blob.Ref
}

// List returns the checkpoints under the prefix, oldest step first.
func List(ctx context.Context, store blob.Store, prefix string) ([]Entry, error) {
	infos, err := store.List(ctx, path.Join(prefix, "step-"))
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var out []Entry
	for _, info := range infos {
		step, ok := stepOf(info.Key)
		if !ok || !strings.HasPrefix(info.Key, prefix+"/step-") {
			continue
		}
		data, err := blob.ReadKey(ctx, store, info.Key)
		if errors.Is(err, blob.ErrNotExist) {
			continue // pruned meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("list checkpoints: %w", err)
		}
		out = append(out, Entry{Step: step, Ref: blob.RefOf(info.Key, data)})
	}
	slices.SortFunc(out, func(a, b Entry) int { return a.Step - b.Step })
	return out, nil
}
