package checkpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"temper/internal/blob"
	"temper/internal/blob/object"
	"temper/trainer/model"
)

// About names the run of a checkpoint and its place in the run. It is a function of
// the run's configuration and the step.
type About struct {
	Run          string `json:"run"`
	ConfigSHA256 string `json:"config_sha256"` // of the frozen configuration and the amendments up to the step
	Seed         uint64 `json:"seed"`          // the seed of every draw, with a path
	// Stage (from 1) and StageStep of the newest update; 0 in supervised training.
	Stage     int `json:"stage"`
	StageStep int `json:"stage_step"`
	// LedgerProblems is the number of problems of the stage's order dealt out.
	LedgerProblems int `json:"ledger_problems"`
	// MetricsStep is the newest step whose record is part of this state.
	MetricsStep int `json:"metrics_step"`
}

// manifest names every byte of a checkpoint.
type manifest struct {
	Format   int                   `json:"format"`
	Step     int                   `json:"step"`
	About    About                 `json:"about"`
	Counters Counters              `json:"counters"`
	Model    model.Config          `json:"model"`
	Shards   map[string][]blob.Ref `json:"shards"` // by kind: weights, first_moments, second_moments
	// CRC64NVME holds the checksums of the shards by their SHA-256. A load checks them: they
	// find damage as reliably at a tenth of the cost.
	CRC64NVME map[string]string `json:"crc64nvme,omitempty"`
	Written   written           `json:"written"`
}

// written is the origin of a manifest. It is not part of the state: manifests that differ in
// nothing else describe one checkpoint.
type written struct {
	Epoch  int64     `json:"epoch"`
	Parent *blob.Ref `json:"parent,omitempty"` // the manifest that the head named before
	// Adopted is the manifest of another run that this one copies.
	Adopted *blob.Ref `json:"adopted,omitempty"`
}

const (
	// manifestFormat is the one format that this program writes and reads.
	manifestFormat = 3
	manifestName   = "manifest.json"
)

// Kinds of tensors in a manifest.
const (
	kindWeights = "weights"
	kindFirst   = "first_moments"
	kindSecond  = "second_moments"
)

// ErrNewer means that a later version of the program wrote a checkpoint.
var ErrNewer = errors.New("checkpoint of a newer program")

func manifestKey(prefix string, step int) string {
	return path.Join(Folder(prefix, step), manifestName)
}

// Folder returns the folder of the checkpoint of a step, below the prefix of all.
func Folder(prefix string, step int) string { return path.Join(prefix, fmt.Sprintf("step-%06d", step)) }

// stepOf parses the step from a manifest's key.
func stepOf(key string) (step int, ok bool) {
	dir, name := path.Split(key)
	digits, ok := strings.CutPrefix(path.Base(dir), "step-")
	step, err := strconv.Atoi(digits)
	return step, ok && err == nil && step >= 0 && name == manifestName && manifestKey(path.Dir(path.Clean(dir)), step) == key
}

// decodeManifest reads a manifest. Errors: ErrCorrupt, ErrNewer.
func decodeManifest(key string, data []byte) (manifest, error) {
	var probe struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &probe); err != nil {
		return manifest{}, fmt.Errorf("%s: manifest of %d bytes is damaged: %w: %w", key, len(data), err, ErrCorrupt)
	}
	if probe.Format > manifestFormat {
		return manifest{}, fmt.Errorf("%s: format %d, this program reads up to %d: update temper, or go back to a checkpoint that it wrote: %w",
			key, probe.Format, manifestFormat, ErrNewer)
	}
	if probe.Format > 0 && probe.Format < manifestFormat {
		return manifest{}, fmt.Errorf("%s: format %d of a build before v0.1.0, this program reads %d: read it with that build: %w",
			key, probe.Format, manifestFormat, ErrCorrupt)
	}
	var m manifest
	if err := strictJSON(data, &m); err != nil {
		return manifest{}, fmt.Errorf("%s: %w: %w", key, err, ErrCorrupt)
	}
	if step, ok := stepOf(key); m.Format != manifestFormat || ok && step != m.Step {
		return manifest{}, fmt.Errorf("%s: format %d, step %d: %w", key, m.Format, m.Step, ErrCorrupt)
	}
	for _, refs := range m.Shards {
		for _, ref := range refs {
			if len(ref.SHA256) != 64 || ref.Size < 0 || blob.CheckKey(ref.Key) != nil {
				return manifest{}, fmt.Errorf("%s: shard %q of %d bytes: %w", key, ref.Key, ref.Size, ErrCorrupt)
			}
			if crc := m.CRC64NVME[ref.SHA256]; !object.ValidChecksum(crc) {
				return manifest{}, fmt.Errorf("%s: shard %q with crc64nvme %q: %w", key, ref.Key, crc, ErrCorrupt)
			}
		}
	}
	return m, nil
}

func readManifest(ctx context.Context, store blob.Store, ref blob.Ref) (manifest, error) {
	data, err := blob.ReadRef(ctx, store, ref)
	if err != nil {
		return manifest{}, err
	}
	return decodeManifest(ref.Key, data)
}

// encode returns the bytes of a manifest.
func (m manifest) encode() ([]byte, error) {
	data, err := json.MarshalIndent(m, "", "  ")
	return append(data, '\n'), err
}

// sameState reports whether two manifests describe one checkpoint.
func (m manifest) sameState(o manifest) bool {
	m, o = m.essence(), o.essence()
	a, errA := m.encode()
	b, errB := o.encode()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

// places reports whether m has all shards of o under the same keys.
func (m manifest) places(o manifest) bool {
	return !slices.ContainsFunc(o.refs(), func(ref blob.Ref) bool { return !slices.Contains(m.refs(), ref) })
}

// essence returns the manifest without the parts outside the state: its origin, and the keys
// of its shards.
func (m manifest) essence() manifest {
	shards := map[string][]blob.Ref{}
	for kind, refs := range m.Shards {
		for _, ref := range refs {
			ref.Key = ""
			shards[kind] = append(shards[kind], ref)
		}
	}
	m.Written, m.Shards = written{}, shards
	return m
}

// refs lists the shards of a manifest.
func (m manifest) refs() []blob.Ref {
	var out []blob.Ref
	for _, refs := range m.Shards {
		out = append(out, refs...)
	}
	return out
}

// Description is a manifest without the tensors.
type Description struct {
	Step     int
	About    About
	Counters Counters
	Model    model.Config
	Epoch    int64
	Size     int64 // bytes of all shards
	Format   int
	// Adopted is true for a checkpoint of another run from which this one began.
	Adopted bool
}

// Describe reads the manifest at ref, without the shards.
// Errors: ErrCorrupt, ErrNewer, blob.ErrNotExist.
func Describe(ctx context.Context, store blob.Store, ref blob.Ref) (Description, error) {
	m, err := readManifest(ctx, store, ref)
	if err != nil {
		return Description{}, fmt.Errorf("checkpoint: %w", err)
	}
	d := Description{Step: m.Step, About: m.About, Counters: m.Counters, Model: m.Model,
		Epoch: m.Written.Epoch, Format: m.Format, Adopted: m.Written.Adopted != nil}
	for _, r := range m.refs() {
		d.Size += r.Size
	}
	return d, nil
}

// strictJSON decodes data and refuses unknown fields.
func strictJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}
