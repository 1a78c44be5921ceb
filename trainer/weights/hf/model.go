package hf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"temper/trainer/model"
	"temper/trainer/weights/safetensors"
)

// Bounds of the files that are read whole, in bytes.
const (
	maxConfig = 1 << 20
	maxIndex  = 64 << 20
	maxOther  = 512 << 20 // tokenizers
)

// Model is an open directory. The weights stay on disk until they are asked
// for. Its methods may be called concurrently.
type Model struct {
	Config model.FileConfig
	path   string
	shards []*safetensors.File          // by file name
	at     map[string]*safetensors.File // by tensor
}

// Load opens a directory and checks it against its config.json without reading
// the weights: each line of the error is a problem, and all are there. The
// caller closes the Model.
func Load(dir string) (*Model, error) {
	m := &Model{path: dir, at: map[string]*safetensors.File{}}
	if err := m.load(); err != nil {
		return nil, errors.Join(named(dir, err), m.Close())
	}
	return m, nil
}

func (m *Model) load() error {
	if _, err := os.ReadDir(m.path); err != nil {
		return errors.Unwrap(err) // the caller names the path
	}
	data, configErr := m.read(ConfigFile, maxConfig)
	if configErr == nil {
		if m.Config, configErr = model.ParseConfig(data); configErr != nil {
			configErr = named(ConfigFile, configErr)
		}
	}
	weightsErr := m.open()
	if configErr != nil || weightsErr != nil {
		return errors.Join(configErr, weightsErr)
	}
	return m.check()
}

// ReadFile returns a file of the directory; a file that is not there is
// os.ErrNotExist.
func (m *Model) ReadFile(name string) ([]byte, error) { return m.read(name, maxOther) }

func (m *Model) read(name string, limit int64) ([]byte, error) {
	path := filepath.Join(m.path, name)
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: is no regular file", name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, errors.Unwrap(err))
	}
	defer f.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: more than %d bytes", name, limit)
	}
	return data, nil
}

// Close closes the files.
func (m *Model) Close() error {
	var errs []error
	for _, s := range m.shards {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Shards returns the files of the weights, by name.
func (m *Model) Shards() []*safetensors.File { return m.shards }

// check compares the tensors with the ones that the configuration requires.
func (m *Model) check() error {
	if n := m.Config.NumHiddenLayers; n > len(m.at) { // bounds the list of tensors, too
		return fmt.Errorf("%s: num_hidden_layers: %d, but the weights are %d tensors", ConfigFile, n, len(m.at))
	}
	var errs []error
	wanted, storedHead := map[string]bool{}, false
	for _, spec := range m.Config.Tensors() {
		wanted[spec.Name] = true
		file, ok := m.at[spec.Name]
		if !ok {
			errs = append(errs, fmt.Errorf("tensor %s is missing", spec.Name))
			continue
		}
		t, _ := file.Lookup(spec.Name)
		if !slices.Equal(t.Shape, spec.Shape) {
			errs = append(errs, fmt.Errorf("%s: tensor %s: shape %v, want %v", file.Name(), t.Name, t.Shape, spec.Shape))
		}
		if !t.DType.IsFloat() {
			errs = append(errs, fmt.Errorf("%s: tensor %s: dtype %s, want F32, F16 or BF16", file.Name(), t.Name, t.DType))
		}
	}
	for _, file := range m.shards {
		for _, t := range file.Tensors {
			switch {
			case wanted[t.Name]:
			case t.Name == model.NameHead && m.Config.TieWordEmbeddings:
				storedHead = true
			default:
				errs = append(errs, fmt.Errorf("%s: tensor %s is no part of the network", file.Name(), t.Name))
			}
		}
	}
	if len(errs) == 0 && storedHead {
		errs = append(errs, m.checkTiedHead())
	}
	return errors.Join(errs...)
}

// checkTiedHead compares the two copies of a tied model's embedding.
func (m *Model) checkTiedHead() error {
	embed, _ := m.at[model.NameEmbed].Lookup(model.NameEmbed)
	head, _ := m.at[model.NameHead].Lookup(model.NameHead)
	same := embed.DType == head.DType && slices.Equal(embed.Shape, head.Shape)
	if same {
		var err error
		same, err = equalReaders(m.at[model.NameEmbed].Section(embed), m.at[model.NameHead].Section(head))
		if err != nil {
			return err
		}
	}
	if !same {
		return fmt.Errorf("tie_word_embeddings is true, but %s differs from %s", model.NameHead, model.NameEmbed)
	}
	return nil
}

// equalReaders compares two streams of equal length.
func equalReaders(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, err := io.ReadFull(a, x)
		if _, err := io.ReadFull(b, y[:n]); err != nil && n > 0 {
			return false, err
		}
		if string(x[:n]) != string(y[:n]) {
			return false, nil
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return true, nil
		case err != nil:
			return false, err
		}
	}
}

// Tensor reads a weight as float32, which is exact for all three types.
func (m *Model) Tensor(name string) (model.Tensor, error) {
	file, ok := m.at[name]
	if !ok {
		return model.Tensor{}, fmt.Errorf("%s: tensor %s is missing", m.path, name)
	}
	info, _ := file.Lookup(name)
	values, err := file.Float32s(name)
	if err != nil {
		return model.Tensor{}, fmt.Errorf("%s: %w", m.path, err)
	}
	return model.Tensor{Name: name, Shape: info.Shape, Data: values}, nil
}

// All reads the weights one after the other, in the order of Config.Tensors.
// It ends with the first error.
func (m *Model) All() iter.Seq2[model.Tensor, error] {
	return func(yield func(model.Tensor, error) bool) {
		for _, spec := range m.Config.Tensors() {
			t, err := m.Tensor(spec.Name)
			if !yield(t, err) || err != nil {
				return
			}
		}
	}
}

// Digest returns the sha256 of the content that decides a model's output: the weights, the
// configuration, the tokenizer and the template. It reads every byte of the weights, several
// files at a time.
func Digest(ctx context.Context, m *Model) (string, error) {
	names := []string{ConfigFile, GenerationFile, TokenizerFile, TokenizerConfigFile, TemplateFile}
	for _, shard := range m.shards {
		names = append(names, filepath.Base(shard.Name()))
	}
	sums := make([][]byte, len(names))
	files, ctx := errgroup.WithContext(ctx)
	files.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range names {
		files.Go(func() (err error) {
			if sums[i], err = sumOfFile(ctx, filepath.Join(m.path, name)); errors.Is(err, os.ErrNotExist) {
				return nil // not every directory has all of them
			}
			return err
		})
	}
	if err := files.Wait(); err != nil {
		return "", err
	}
	all := sha256.New()
	for i, name := range names {
		if sums[i] != nil {
			fmt.Fprintf(all, "%s %x\n", name, sums[i])
		}
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

func sumOfFile(ctx context.Context, path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the user names the directory
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	sum := sha256.New()
	for {
		n, err := io.CopyN(sum, f, 64<<20)
		switch {
		case errors.Is(err, io.EOF):
			return sum.Sum(nil), nil
		case err != nil:
			return nil, fmt.Errorf("%s: after %d bytes: %w", path, n, err)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
