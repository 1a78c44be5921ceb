package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/qwen3"
	"temper/trainer/safetensors"
)

const (
	runFolder = "runs/bench"
	rawKey    = "raw"
	// bytesAParameter are those of a weight and its two moments.
	bytesAParameter = 12
	minCheckpoint   = 1 << 20
)

// CheckpointConfig of a measurement.
type CheckpointConfig struct {
	// Store is empty and stays so. One that moves bytes with its client alone
	// (RawPut, RawGet) gives the figures to compare with.
	Store blob.Store
	// Size of the state in bytes, met within the size of a row of the embedding.
	Size int64
	// Backend is the device that the state is copied from; "" is the CPU backend.
	Backend string
	Rounds  int
}

// CheckpointRound is what one checkpoint took.
type CheckpointRound struct {
	// Stall is how long the training waits: the copy of the state to the host.
	Stall Cost `json:"stall"`
	// Save is from the copy to a manifest and a head that name it.
	Save Cost `json:"save"`
	// Load is from the store to tensors whose every byte was checked.
	Load Cost `json:"load"`
	// RawPut and RawGet move the same bytes as one blob, zero where the store cannot.
	RawPut Cost `json:"raw_put,omitzero"`
	RawGet Cost `json:"raw_get,omitzero"`
}

// CheckpointReport has the rounds, their medians, and what follows from these.
type CheckpointReport struct {
	Store   string            `json:"store"`
	Model   qwen3.Config      `json:"model"`
	Bytes   int64             `json:"bytes"`
	Shards  int               `json:"shards"`
	Rounds  []CheckpointRound `json:"rounds"`
	Median  CheckpointRound   `json:"median"`
	SaveOf  float64           `json:"save_of_raw,omitempty"` // share of the raw throughput
	LoadOf  float64           `json:"load_of_raw,omitempty"`
	PeakRSS int64             `json:"peak_rss_bytes"`
}

// rawStore is a store that also moves bytes with its client library alone.
type rawStore interface {
	RawPut(ctx context.Context, key string, r io.Reader) error
	RawGet(ctx context.Context, key string, w io.WriterAt) error
}

// Checkpoint measures what saving and loading the state of a model cost. It
// holds up to four times the size in memory.
func Checkpoint(ctx context.Context, c CheckpointConfig) (CheckpointReport, error) {
	if c.Size < minCheckpoint || c.Rounds < 1 {
		return CheckpointReport{}, fmt.Errorf("%d bytes, %d rounds: want at least %d and 1", c.Size, c.Rounds, minCheckpoint)
	}
	b, err := newSaver(c)
	if err != nil {
		return CheckpointReport{}, err
	}
	defer b.trainer.Close()
	r := CheckpointReport{Store: c.Store.Locate(""), Model: b.model}
	for step := 1; step <= c.Rounds; step++ {
		round, err := b.round(ctx, step, &r)
		err = errors.Join(err, clean(context.WithoutCancel(ctx), c.Store))
		if err != nil {
			return CheckpointReport{}, fmt.Errorf("round %d: %w", step, err)
		}
		r.Rounds = append(r.Rounds, round)
	}
	r.medians()
	r.PeakRSS = peakRSS()
	return r, nil
}

// saver has a trainer with a full state.
type saver struct {
	store   blob.Store
	model   qwen3.Config
	trainer *trainer.Trainer
}

func newSaver(c CheckpointConfig) (*saver, error) {
	b := &saver{store: c.Store, model: modelOf(c.Size / bytesAParameter)}
	weights, err := qwen3.InitialTensors(b.model, 1)
	if err != nil {
		return nil, err
	}
	b.trainer, err = trainer.New(trainer.Config{
		Backend: c.Backend, Model: b.model, MicrobatchTokens: 1, Temperature: 1, Loss: config.Default().RL.Loss,
	})
	if err != nil {
		return nil, err
	}
	s := checkpoint.State{Counters: checkpoint.Counters{Updates: 1, TotalUpdates: 1}, Model: b.model,
		Weights: weights, FirstMoments: weights, SecondMoments: weights}
	if err := b.trainer.RestoreState(s); err != nil {
		b.trainer.Close()
		return nil, err
	}
	return b, nil
}

// modelOf has about that many parameters, a quarter of them in the embedding.
func modelOf(parameters int64) qwen3.Config {
	m := qwen3.Config{HeadDim: 128, MaxPositionEmbeddings: 512, RopeTheta: 1e6, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.02}
	for hidden := 4096; ; hidden /= 2 {
		m.HiddenSize, m.IntermediateSize, m.HeadDim = hidden, 3*hidden, min(128, hidden/2)
		m.NumAttentionHeads, m.NumKeyValueHeads = 2*hidden/m.HeadDim, hidden/m.HeadDim
		m.VocabSize, m.NumHiddenLayers = 1, 1
		one := int64(m.NumParameters())
		m.NumHiddenLayers = 2
		layer := int64(m.NumParameters()) - one
		if layers := parameters * 3 / 4 / layer; layers >= 4 || hidden == 32 {
			m.NumHiddenLayers = int(max(1, layers))
			m.VocabSize += int(max(0, parameters-int64(m.NumParameters()))) / hidden
			return m
		}
	}
}

// round saves and loads a state that no round before had.
func (b *saver) round(ctx context.Context, step int, r *CheckpointReport) (out CheckpointRound, err error) {
	var state checkpoint.State
	if out.Stall, err = timed(func() (err error) { state, err = b.trainer.Snapshot(checkpoint.State{}); return err }); err != nil {
		return out, err
	}
	r.Bytes = state.Size()
	kinds := [][]qwen3.Tensor{state.Weights, state.FirstMoments, state.SecondMoments}
	for kind, tensors := range kinds {
		for _, t := range tensors { // all shards differ, as those of a training do
			t.Data[0] = float32(step*len(kinds) + kind)
		}
	}
	lease, err := checkpoint.Acquire(ctx, b.store, runFolder+"/head.json", rand.Text(), func(context.Context) (int64, error) { return 0, nil })
	if err != nil {
		return out, err
	}
	var ref blob.Ref
	if out.Save, err = timed(func() (err error) {
		ref, err = checkpoint.SaveWith(ctx, b.store, runFolder+"/checkpoints", step, state, checkpoint.SaveOptions{Lease: lease})
		return err
	}); err != nil {
		return out, err
	}
	raw, isRaw := b.store.(rawStore)
	if isRaw {
		if out.RawPut, err = timed(func() error { return raw.RawPut(ctx, rawKey, readerOf(kinds)) }); err != nil {
			return out, err
		}
	}
	state, kinds = checkpoint.State{}, nil // gives the memory back before the load
	if r.Shards, err = b.forget(ctx); err != nil {
		return out, err
	}
	if out.Load, err = timed(func() error { _, _, err := checkpoint.Load(ctx, b.store, ref); return err }); err != nil || !isRaw {
		return out, err
	}
	out.RawGet, err = timed(func() error { return raw.RawGet(ctx, rawKey, make(memory, r.Bytes)) })
	return out, err
}

// timed measures a call on a heap without garbage.
func timed(call func() error) (Cost, error) {
	debug.FreeOSMemory()
	begin := now()
	err := call()
	return begin.since(1), err
}

// forget lets a store on files read from the disk, not from memory, and counts the shards.
func (b *saver) forget(ctx context.Context) (shards int, err error) {
	infos, err := b.store.List(ctx, "")
	f, _ := b.store.(interface{ Forget(key string) error })
	for _, info := range infos {
		if strings.HasSuffix(info.Key, ".safetensors") {
			shards++
		}
		if f == nil {
			continue
		}
		if gone := f.Forget(info.Key); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return shards, err
}

func clean(ctx context.Context, store blob.Store) error {
	infos, err := store.List(ctx, "")
	for _, info := range infos {
		err = errors.Join(err, store.Delete(ctx, info.Key))
	}
	return err
}

// medians fills in what follows from the rounds.
func (r *CheckpointReport) medians() {
	of := func(cost func(CheckpointRound) Cost) Cost {
		var all []Cost
		for _, round := range r.Rounds {
			all = append(all, cost(round))
		}
		return median(all)
	}
	r.Median = CheckpointRound{
		Stall:  of(func(r CheckpointRound) Cost { return r.Stall }),
		Save:   of(func(r CheckpointRound) Cost { return r.Save }),
		Load:   of(func(r CheckpointRound) Cost { return r.Load }),
		RawPut: of(func(r CheckpointRound) Cost { return r.RawPut }),
		RawGet: of(func(r CheckpointRound) Cost { return r.RawGet }),
	}
	r.SaveOf = r.Median.RawPut.Wall.Seconds() / r.Median.Save.Wall.Seconds()
	r.LoadOf = r.Median.RawGet.Wall.Seconds() / r.Median.Load.Wall.Seconds()
}

// readerOf reads the values of tensors where they are.
func readerOf(kinds [][]qwen3.Tensor) io.Reader {
	var parts []io.Reader
	for _, tensors := range kinds {
		for _, t := range tensors {
			parts = append(parts, bytes.NewReader(safetensors.F32Bytes(t.Data)))
		}
	}
	return io.MultiReader(parts...)
}

// memory is an io.WriterAt of a fixed length.
type memory []byte

// WriteAt implements io.WriterAt.
func (m memory) WriteAt(p []byte, at int64) (int, error) { return copy(m[at:], p), nil }
