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

	"golang.org/x/sync/errgroup"

	"temper/internal/blob"
	"temper/internal/proc/failpoint"
	"temper/trainer/model"
	"temper/trainer/weights/hf"
	"temper/trainer/weights/safetensors"
)

// Files of a published policy, with the names of Hugging Face. Runs need these;
// `temper run export` adds the files for other programs.
const (
	fileConfig    = hf.ConfigFile
	fileWeights   = "model.safetensors"
	fileTokenizer = hf.TokenizerFile
	filePolicy    = "policy.json" // the manifest
)

// Values of policy.json: the weights are one file, or shards by content.
const (
	policyFormat       = 1
	policyFormatShards = 2
)

// Policy is a published policy.
type Policy struct {
	Model     model.Config
	Weights   []model.Tensor
	Tokenizer []byte // tokenizer.json; may be nil
	// Files describe the model to other programs: any of DescriptionFiles, by name; may be
	// nil. They are not part of the model.
	Files map[string][]byte
	// Form to publish the policy in. A policy that was read has the zero Form.
	Form Form
}

// Form is the way to publish a policy. The zero value is one file of weights.
type Form struct {
	// ShardFrom is the size in bytes from which weights become shards by content, which
	// policies and checkpoints share; 0 is never.
	ShardFrom int64
	// Memory receives the shards, for engines of this host; nil for none.
	Memory ShardMemory
}

// ShardMemory is host memory from which the shards of a policy are published, and which
// engines of this host read instead of the store. The store stays the truth: without memory
// the policy is published all the same.
type ShardMemory interface {
	// Take returns memory of the given sizes, aligned for float32. The caller calls keep
	// after it stored the policy, else drop. Both return the memory.
	Take(sizes []int64) (shards [][]byte, keep func(policy blob.Ref, sums []string), drop func(), err error)
}

// DescriptionFiles returns the files of a model directory that a policy keeps unchanged:
// those with the chat template.
func DescriptionFiles() []string {
	return []string{hf.TokenizerConfigFile, hf.TemplateFile}
}

// policyManifest names the files of a policy.
type policyManifest struct {
	Format int                 `json:"format"`
	Files  map[string]blob.Ref `json:"files"`
}

// PublishFrom stores a policy as a folder in Hugging Face layout and returns the Ref of its
// manifest. It asks weights for each tensor of the model in turn, twice, and holds one at a
// time; p has no Weights. Publishing the same policy again is a no-op. Another policy under
// the same prefix is blob.ErrExists, and the stored one stays. With shards it holds a few
// of them at a time, and stores only those that the store lacks. A stored policy keeps its
// form.
func PublishFrom(ctx context.Context, store blob.Store, prefix string, p Policy, weights Source) (blob.Ref, error) {
	sharded, err := inShards(ctx, store, prefix, p)
	var ref blob.Ref
	switch {
	case err != nil:
	case sharded:
		ref, err = publishShards(ctx, store, prefix, p, weights)
	default:
		var file content
		if file, err = tensorFile(p.Model.Tensors(), weights); err == nil {
			ref, err = publish(ctx, store, prefix, p, file)
		}
	}
	if err != nil {
		return blob.Ref{}, fmt.Errorf("publish policy %s: %w", prefix, err)
	}
	return ref, nil
}

func publish(ctx context.Context, store blob.Store, prefix string, p Policy, weights content) (blob.Ref, error) {
	files, err := policyFiles(p)
	if err != nil {
		return blob.Ref{}, err
	}
	files[fileWeights] = weights
	m, err := manifestOf(policyFormat, prefix, files)
	if err != nil {
		return blob.Ref{}, err
	}
	if ref, err := storedPolicy(ctx, store, prefix, m); err != nil || !ref.IsZero() {
		return ref, err
	}
	return putPolicy(ctx, store, prefix, m, files)
}

// manifestOf builds the manifest of files.
func manifestOf(format int, prefix string, files map[string]content) (policyManifest, error) {
	m := policyManifest{Format: format, Files: map[string]blob.Ref{}}
	var err error
	for name, file := range files {
		if m.Files[name], err = file.ref(path.Join(prefix, name)); err != nil {
			return m, err
		}
	}
	return m, nil
}

// storedPolicy returns the Ref of m if it is stored, zero if no policy is. Another policy is
// blob.ErrExists. It is called first, so that a complete policy is never overwritten.
func storedPolicy(ctx context.Context, store blob.Store, prefix string, m policyManifest) (blob.Ref, error) {
	key := path.Join(prefix, filePolicy)
	same, ref, err := holds(ctx, store, key, m)
	switch {
	case errors.Is(err, blob.ErrNotExist):
		return blob.Ref{}, nil
	case err == nil && !same:
		err = fmt.Errorf("%s holds other content: %w", key, blob.ErrExists)
	}
	return ref, err
}

// putPolicy stores files, then the manifest that names them.
func putPolicy(ctx context.Context, store blob.Store, prefix string, m policyManifest, files map[string]content) (blob.Ref, error) {
	for name, file := range files {
		if err := file.put(ctx, store, m.Files[name]); err != nil {
			return blob.Ref{}, err
		}
	}
	failpoint.Hit("policy/before-manifest")
	return putManifest(ctx, store, path.Join(prefix, filePolicy), m)
}

// policyFiles returns the files of a policy without its weights and its manifest.
func policyFiles(p Policy) (map[string]content, error) {
	config, err := model.EncodeConfig(p.Model, hf.TorchName(safetensors.F32))
	if err != nil {
		return nil, err
	}
	files := map[string]content{fileConfig: bytesOf(config)}
	if p.Tokenizer != nil {
		files[fileTokenizer] = bytesOf(p.Tokenizer)
	}
	for name, data := range p.Files {
		if !slices.Contains(DescriptionFiles(), name) {
			return nil, fmt.Errorf("file %q is no part of a policy, want one of %s", name, strings.Join(DescriptionFiles(), ", "))
		}
		files[name] = bytesOf(data)
	}
	return files, nil
}

// CopyPolicy copies the published policy of the manifest at src to another prefix, byte for
// byte and without holding it in memory, and returns the Ref of its manifest there. Both
// policies name the same shards. It is idempotent; another policy there is blob.ErrExists.
func CopyPolicy(ctx context.Context, store blob.Store, src blob.Ref, prefix string) (blob.Ref, error) {
	ref, err := copyPolicy(ctx, store, src, prefix)
	if err != nil {
		return blob.Ref{}, fmt.Errorf("copy policy %s to %s: %w", src.Key, prefix, err)
	}
	return ref, nil
}

func copyPolicy(ctx context.Context, store blob.Store, src blob.Ref, prefix string) (blob.Ref, error) {
	from, err := readPolicyManifest(ctx, store, src)
	if err != nil {
		return blob.Ref{}, err
	}
	if from.Format == policyFormatShards {
		return copyShards(ctx, store, from, prefix)
	}
	m := policyManifest{Format: from.Format, Files: map[string]blob.Ref{}}
	for name, ref := range from.Files {
		ref.Key = path.Join(prefix, name)
		m.Files[name] = ref
	}
	key := path.Join(prefix, filePolicy)
	if same, ref, err := holds(ctx, store, key, m); err == nil && same {
		return ref, nil
	}
	for name, ref := range from.Files {
		if err := storedContent(ctx, store, ref.Key).put(ctx, store, m.Files[name]); err != nil {
			return blob.Ref{}, err
		}
	}
	return putManifest(ctx, store, key, m)
}

// DropPolicy deletes the manifest of the policy under the prefix; the remaining files are no
// policy. The caller deletes them, and then the shards by Release. A missing policy is not
// an error.
func DropPolicy(ctx context.Context, store blob.Store, prefix string) error {
	return store.Delete(ctx, path.Join(prefix, filePolicy))
}

// LoadWeights reads the published policy of the manifest at ref.
func LoadWeights(ctx context.Context, store blob.Store, ref blob.Ref) (Policy, error) {
	p, err := loadPolicy(ctx, store, ref, true)
	if err != nil {
		return Policy{}, fmt.Errorf("load policy %s: %w", ref.Key, err)
	}
	return p, nil
}

// LoadDescription is LoadWeights without the weights.
func LoadDescription(ctx context.Context, store blob.Store, ref blob.Ref) (Policy, error) {
	p, err := loadPolicy(ctx, store, ref, false)
	if err != nil {
		return Policy{}, fmt.Errorf("load description of policy %s: %w", ref.Key, err)
	}
	return p, nil
}

func loadPolicy(ctx context.Context, store blob.Store, ref blob.Ref, weights bool) (Policy, error) {
	m, err := readPolicyManifest(ctx, store, ref)
	if err != nil {
		return Policy{}, err
	}
	var p Policy
	config, err := blob.ReadRef(ctx, store, m.Files[fileConfig])
	if err != nil {
		return Policy{}, err
	}
	parsed, err := model.ParseConfig(config)
	if err != nil {
		return Policy{}, fmt.Errorf("%s: %w: %w", fileConfig, err, ErrCorrupt)
	}
	p.Model = parsed.Config
	if weights {
		if p.Weights, err = readWeights(ctx, store, m); err != nil {
			return Policy{}, err
		}
	}
	if tokenizer, ok := m.Files[fileTokenizer]; ok {
		if p.Tokenizer, err = blob.ReadRef(ctx, store, tokenizer); err != nil {
			return Policy{}, err
		}
	}
	p.Files, err = readFiles(ctx, store, m)
	return p, err
}

func readPolicyManifest(ctx context.Context, store blob.Store, ref blob.Ref) (m policyManifest, err error) {
	data, err := blob.ReadRef(ctx, store, ref)
	if err != nil {
		return m, err
	}
	if err := strictJSON(data, &m); err != nil {
		return m, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	if m.Format < policyFormat || m.Format > policyFormatShards {
		return m, fmt.Errorf("format %d, this program reads up to %d: update temper: %w", m.Format, policyFormatShards, ErrNewer)
	}
	return m, nil
}

// readWeights reads the weights that a manifest names, sorted by name.
func readWeights(ctx context.Context, store blob.Store, m policyManifest) ([]model.Tensor, error) {
	if m.Format == policyFormat {
		return readTensors(ctx, store, m.Files[fileWeights])
	}
	shards, err := readShardList(ctx, store, m.Files[fileShards])
	if err != nil {
		return nil, err
	}
	parts := make([][]model.Tensor, len(shards))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, s := range shards {
		g.Go(func() (err error) {
			parts[i], err = s.Read(ctx, store)
			return err
		})
	}
	err = g.Wait()
	return byName(slices.Concat(parts...)), err
}

// readFiles reads the description files of a policy.
func readFiles(ctx context.Context, store blob.Store, m policyManifest) (map[string][]byte, error) {
	var files map[string][]byte
	for _, name := range DescriptionFiles() {
		ref, ok := m.Files[name]
		if !ok {
			continue
		}
		data, err := blob.ReadRef(ctx, store, ref)
		if err != nil {
			return nil, err
		}
		if files == nil {
			files = map[string][]byte{}
		}
		files[name] = data
	}
	return files, nil
}

// putManifest stores v under key unless the key holds another object.
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

// holds reports whether the object at key is v as PutJSON writes it.
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
