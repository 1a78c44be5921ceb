package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/failpoint"
	"temper/trainer/qwen3"
)

// State is the full state of training, on the host.
type State struct {
	Counters Counters
	Model    qwen3.Config
	Weights  []qwen3.Tensor
	// Moments of AdamW under the names of their weights.
	FirstMoments, SecondMoments []qwen3.Tensor
}

// Counters are the numbers that the next update depends on.
type Counters struct {
	// Updates since the moments were last zero; AdamW's bias correction needs it.
	Updates int64 `json:"updates"`
	// TotalUpdates since the weights were initialised.
	TotalUpdates int64 `json:"total_updates"`
	// Schedule is the position in the learning-rate schedule of the last update.
	Schedule int `json:"schedule"`
}

// manifest names every byte of a checkpoint.
type manifest struct {
	Format   int                   `json:"format"`
	Step     int                   `json:"step"`
	Counters Counters              `json:"counters"`
	Model    qwen3.Config          `json:"model"`
	Shards   map[string][]blob.Ref `json:"shards"` // by kind: weights, first_moments, second_moments
}

const (
	manifestFormat = 1
	manifestName   = "manifest.json"
	// maxShard bounds the values of a shard in bytes; a larger tensor has its own.
	maxShard = 256 << 20
)

// Kinds of tensors in a manifest.
const (
	kindWeights = "weights"
	kindFirst   = "first_moments"
	kindSecond  = "second_moments"
)

// kinds lists the tensors of the state by kind.
func (s *State) kinds() map[string]*[]qwen3.Tensor {
	return map[string]*[]qwen3.Tensor{kindWeights: &s.Weights, kindFirst: &s.FirstMoments, kindSecond: &s.SecondMoments}
}

func manifestKey(prefix string, step int) string {
	return path.Join(prefix, fmt.Sprintf("step-%06d", step), manifestName)
}

func shardFolder(prefix string) string { return path.Join(prefix, "shards") }

// Save stores the state as the checkpoint of a step and returns the Ref of its
// manifest. Saving the same state again is a no-op; another state for a step
// that has a checkpoint is blob.ErrExists, and the stored one stays.
func Save(ctx context.Context, store blob.Store, prefix string, step int, state State) (blob.Ref, error) {
	m := manifest{Format: manifestFormat, Step: step, Counters: state.Counters, Model: state.Model, Shards: map[string][]blob.Ref{}}
	for kind, tensors := range state.kinds() {
		for _, shard := range split(*tensors, maxShard) {
			ref, err := putShard(ctx, store, prefix, shard)
			if err != nil {
				return blob.Ref{}, fmt.Errorf("save checkpoint of step %d: %w", step, err)
			}
			m.Shards[kind] = append(m.Shards[kind], ref)
		}
	}
	failpoint.Hit("checkpoint/before-manifest")
	ref, err := putManifest(ctx, store, manifestKey(prefix, step), m)
	if err != nil {
		return blob.Ref{}, fmt.Errorf("save checkpoint of step %d: %w", step, err)
	}
	return ref, nil
}

// Load reads the checkpoint whose manifest is at ref.
func Load(ctx context.Context, store blob.Store, ref blob.Ref) (step int, state State, err error) {
	data, err := blob.ReadRef(ctx, store, ref)
	if err != nil {
		return 0, State{}, fmt.Errorf("load checkpoint: %w", err)
	}
	var m manifest
	if err := strictJSON(data, &m); err != nil {
		return 0, State{}, fmt.Errorf("load checkpoint %s: %w: %w", ref.Key, err, ErrCorrupt)
	}
	if m.Format != manifestFormat {
		return 0, State{}, fmt.Errorf("load checkpoint %s: format %d, this program reads %d", ref.Key, m.Format, manifestFormat)
	}
	state = State{Counters: m.Counters, Model: m.Model}
	for kind, tensors := range state.kinds() {
		for _, shard := range m.Shards[kind] {
			part, err := readTensors(ctx, store, shard)
			if err != nil {
				return 0, State{}, fmt.Errorf("load checkpoint %s: %w", ref.Key, err)
			}
			*tensors = append(*tensors, part...)
		}
	}
	return m.Step, state, nil
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
		var step int
		if n, err := fmt.Sscanf(strings.TrimPrefix(info.Key, prefix+"/"), "step-%06d/", &step); n != 1 || err != nil ||
			info.Key != manifestKey(prefix, step) {
			continue
		}
		data, err := blob.ReadKey(ctx, store, info.Key)
		if errors.Is(err, blob.ErrNotExist) {
			continue // pruned since it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("list checkpoints: %w", err)
		}
		out = append(out, Entry{Step: step, Ref: blob.RefOf(info.Key, data)})
	}
	slices.SortFunc(out, func(a, b Entry) int { return a.Step - b.Step })
	return out, nil
}

// Prune deletes the checkpoints under the prefix for which keep is false, and
// then the shards that no checkpoint names. It must not run while a Save under
// the same prefix does. The newest checkpoint always stays, and nothing is
// deleted unless it can be read in full.
func Prune(ctx context.Context, store blob.Store, prefix string, keep func(step int) bool) error {
	entries, err := List(ctx, store, prefix)
	if err != nil || len(entries) == 0 {
		return err
	}
	newest := entries[len(entries)-1]
	if _, _, err := Load(ctx, store, newest.Ref); err != nil {
		return fmt.Errorf("prune checkpoints: the newest is unreadable, nothing was deleted: %w", err)
	}
	used := map[string]bool{}
	for _, e := range entries {
		if e.Step == newest.Step || keep(e.Step) {
			err = markShards(ctx, store, e.Ref.Key, used)
		} else {
			err = store.Delete(ctx, e.Ref.Key)
		}
		if err != nil {
			return fmt.Errorf("prune checkpoint of step %d: %w", e.Step, err)
		}
	}
	return sweepShards(ctx, store, prefix, used)
}

// markShards adds the keys of the shards that a manifest names.
func markShards(ctx context.Context, store blob.Store, key string, used map[string]bool) error {
	var m manifest
	if err := blob.ReadJSON(ctx, store, key, &m); err != nil {
		return err
	}
	for _, refs := range m.Shards {
		for _, ref := range refs {
			used[ref.Key] = true
		}
	}
	return nil
}

// sweepShards deletes the shards that are not in use.
func sweepShards(ctx context.Context, store blob.Store, prefix string, used map[string]bool) error {
	shards, err := store.List(ctx, shardFolder(prefix)+"/")
	if err != nil {
		return fmt.Errorf("prune checkpoints: %w", err)
	}
	for _, info := range shards {
		if !used[info.Key] {
			if err := store.Delete(ctx, info.Key); err != nil {
				return fmt.Errorf("prune %s: %w", info.Key, err)
			}
		}
	}
	return nil
}

// split cuts the tensors into runs of at most limit bytes.
func split(tensors []qwen3.Tensor, limit int) [][]qwen3.Tensor {
	var out [][]qwen3.Tensor
	size := 0
	for _, t := range tensors {
		n := 4 * len(t.Data)
		if len(out) == 0 || size+n > limit {
			out, size = append(out, nil), 0
		}
		out[len(out)-1] = append(out[len(out)-1], t)
		size += n
	}
	return out
}

// putShard stores tensors under the hash of their bytes.
func putShard(ctx context.Context, store blob.Store, prefix string, tensors []qwen3.Tensor) (blob.Ref, error) {
	data, err := encodeTensors(tensors)
	if err != nil {
		return blob.Ref{}, err
	}
	ref := blob.RefOf("", data)
	ref.Key = path.Join(shardFolder(prefix), ref.SHA256+".safetensors")
	if _, err := blob.PutBytes(ctx, store, ref.Key, data, blob.IfAbsent); err != nil && !errors.Is(err, blob.ErrExists) {
		return blob.Ref{}, err
	}
	return ref, nil
}

// readTensors reads a safetensors file and checks it against its Ref.
func readTensors(ctx context.Context, store blob.Store, ref blob.Ref) ([]qwen3.Tensor, error) {
	data, err := blob.ReadRef(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	tensors, err := decodeTensors(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref.Key, err)
	}
	return tensors, nil
}

// putManifest stores v under key unless something else is there.
func putManifest(ctx context.Context, store blob.Store, key string, v any) (blob.Ref, error) {
	ref, err := blob.PutJSON(ctx, store, key, v, blob.IfAbsent)
	if !errors.Is(err, blob.ErrExists) {
		return ref, err
	}
	same, ref, readErr := holds(ctx, store, key, v)
	if readErr != nil {
		return blob.Ref{}, readErr
	}
	if !same {
		return blob.Ref{}, fmt.Errorf("%s holds other content: %w", key, blob.ErrExists)
	}
	return ref, nil
}

// holds reports whether key holds v as PutJSON writes it.
func holds(ctx context.Context, store blob.Store, key string, v any) (bool, blob.Ref, error) {
	stored, err := blob.ReadKey(ctx, store, key)
	if err != nil {
		return false, blob.Ref{}, err
	}
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return false, blob.Ref{}, fmt.Errorf("encode %s: %w", key, err)
	}
	return bytes.Equal(stored, append(data, '\n')), blob.RefOf(key, stored), nil
}

// strictJSON decodes data and refuses unknown fields.
func strictJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}
