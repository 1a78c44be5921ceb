package storebench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/tools/bench/meter"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/qwen3"
	"temper/trainer/weights/hostmem"
	"temper/trainer/weights/safetensors"
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
	// Cold drops files from the page cache before each load. On a virtual machine
	// whose host takes back free memory the times then say nothing about either
	// side, so it is not the default.
	Cold bool
}

// CheckpointRound is what one checkpoint took.
type CheckpointRound struct {
	// Stall is how long the training waits: the copy of the state to the host.
	Stall meter.Cost `json:"stall"`
	// Save lasts from the copy until a manifest and a head name it.
	Save meter.Cost `json:"save"`
	// Load lasts until all tensors are in memory and every byte was checked.
	Load meter.Cost `json:"load"`
	// RawPut and RawGet move the same bytes as one blob, zero where the store cannot.
	RawPut meter.Cost `json:"raw_put,omitzero"`
	RawGet meter.Cost `json:"raw_get,omitzero"`
}

// CheckpointReport has the rounds, their medians, and what follows from these.
type CheckpointReport struct {
	Store  string       `json:"store"`
	Model  qwen3.Config `json:"model"`
	Bytes  int64        `json:"bytes"`
	Shards int          `json:"shards"`
	// First is the wait for the first save, which also allocates its memory.
	First  meter.Cost        `json:"first_stall"`
	Rounds []CheckpointRound `json:"rounds"`
	Median CheckpointRound   `json:"median"`
	// SaveOf and LoadOf are shares of the raw throughput of the same round.
	SaveOf  Share `json:"save_of_raw,omitzero"`
	LoadOf  Share `json:"load_of_raw,omitzero"`
	PeakRSS int64 `json:"peak_rss_bytes"`
}

// Share is a ratio over the rounds.
type Share struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

// Checkpoint measures what saving and loading the state of a model cost. It
// holds up to five times the size in memory.
func Checkpoint(ctx context.Context, c CheckpointConfig) (CheckpointReport, error) {
	if c.Size < minCheckpoint || c.Rounds < 1 {
		return CheckpointReport{}, fmt.Errorf("%d bytes, %d rounds: want at least %d and 1", c.Size, c.Rounds, minCheckpoint)
	}
	b, err := newSaver(c)
	if err != nil {
		return CheckpointReport{}, err
	}
	defer b.trainer.Close()
	// Garbage is collected before each part and its memory is kept: a part that has
	// to allocate memory measures the kernel and, on a virtual machine, the host.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	r := CheckpointReport{Store: c.Store.Locate(""), Model: b.model}
	if r.First, err = timed(b.snapshot); err != nil {
		return CheckpointReport{}, err
	}
	for step := 1; step <= c.Rounds; step++ {
		round, err := b.round(ctx, step, &r)
		err = errors.Join(err, clean(context.WithoutCancel(ctx), c.Store, ""))
		if err != nil {
			return CheckpointReport{}, fmt.Errorf("round %d: %w", step, err)
		}
		r.Rounds = append(r.Rounds, round)
	}
	r.medians()
	r.PeakRSS = meter.PeakRSS()
	return r, nil
}

// saver has a trainer with a full state.
type saver struct {
	store   blob.Store
	raw     rawStore // nil where there is none
	cold    bool
	model   qwen3.Config
	trainer *trainer.Trainer
	state   checkpoint.State // the newest copy, and the room of the next one
	saved   blob.Ref
	into    memory // of the raw client's loads; touched before
}

func newSaver(c CheckpointConfig) (*saver, error) {
	b := &saver{store: c.Store, cold: c.Cold, model: modelOf(c.Size / bytesAParameter)}
	b.raw, _ = c.Store.(rawStore)
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

// modelOf returns a model of about that many parameters, a quarter of them in the
// embedding.
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

// snapshot is what the training waits for.
func (b *saver) snapshot() (err error) {
	b.state, err = b.trainer.Snapshot(b.state)
	return err
}

func (b *saver) kinds() [][]qwen3.Tensor {
	return [][]qwen3.Tensor{b.state.Weights, b.state.FirstMoments, b.state.SecondMoments}
}

// round saves and loads a state that no earlier round had. The store and its client
// take turns at going first, because the second meets the machine in the state in
// which the first left it.
func (b *saver) round(ctx context.Context, step int, r *CheckpointReport) (out CheckpointRound, err error) {
	if out.Stall, err = timed(b.snapshot); err != nil {
		return out, err
	}
	r.Bytes = b.state.Size()
	for kind, tensors := range b.kinds() {
		for _, t := range tensors { // all shards differ, as those of a training do
			t.Data[0] = float32(step*len(b.kinds()) + kind)
		}
	}
	lease, err := checkpoint.Acquire(ctx, b.store, runFolder+"/head.json", rand.Text(), func(context.Context) (int64, error) { return 0, nil })
	if err != nil {
		return out, err
	}
	saves := []part{
		{&out.Save, func() (err error) {
			b.saved, err = checkpoint.SaveWith(ctx, b.store, runFolder+"/checkpoints", step, b.state, checkpoint.SaveOptions{Lease: lease})
			return err
		}},
		{&out.RawPut, func() error { return b.raw.RawPut(ctx, rawKey, readerOf(b.kinds())) }},
	}
	loads := []part{
		{&out.Load, func() error { _, _, err := checkpoint.Load(ctx, b.store, b.saved); return err }},
		{&out.RawGet, func() error { return b.raw.RawGet(ctx, rawKey, b.into) }},
	}
	if b.raw != nil && b.into == nil {
		b.into = hostmem.Bytes(r.Bytes)
		clear(b.into)
	}
	if err := b.turns(step, saves); err != nil {
		return out, err
	}
	if err := loads[0].call(); err != nil { // the heap then has the memory that a load takes, as the client has
		return out, err
	}
	if r.Shards, err = b.prepare(ctx); err != nil {
		return out, err
	}
	return out, b.turns(step, loads)
}

// part is one of the two sides of a comparison.
type part struct {
	cost *meter.Cost
	call func() error
}

// turns times our part and the raw one, and changes their order with each step.
func (b *saver) turns(step int, parts []part) error {
	if b.raw == nil {
		parts = parts[:1]
	} else if step%2 == 0 {
		slices.Reverse(parts)
	}
	for _, p := range parts {
		var err error
		if *p.cost, err = timed(p.call); err != nil {
			return err
		}
	}
	return nil
}

// timed measures a call on a heap without garbage.
func timed(call func() error) (meter.Cost, error) {
	runtime.GC()
	begin := meter.Now()
	err := call()
	return begin.Since(1), err
}

// prepare counts the shards and, for cold loads, drops files from the page cache.
func (b *saver) prepare(ctx context.Context) (shards int, err error) {
	infos, err := b.store.List(ctx, "")
	f, _ := b.store.(interface{ Forget(key string) error })
	for _, info := range infos {
		if strings.HasSuffix(info.Key, ".safetensors") {
			shards++
		}
		if f == nil || !b.cold {
			continue
		}
		if gone := f.Forget(info.Key); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return shards, err
}

// medians fills in what follows from the rounds.
func (r *CheckpointReport) medians() {
	of := func(cost func(CheckpointRound) meter.Cost) meter.Cost {
		var all []meter.Cost
		for _, round := range r.Rounds {
			all = append(all, cost(round))
		}
		return meter.MedianCost(all)
	}
	r.Median = CheckpointRound{
		Stall:  of(func(r CheckpointRound) meter.Cost { return r.Stall }),
		Save:   of(func(r CheckpointRound) meter.Cost { return r.Save }),
		Load:   of(func(r CheckpointRound) meter.Cost { return r.Load }),
		RawPut: of(func(r CheckpointRound) meter.Cost { return r.RawPut }),
		RawGet: of(func(r CheckpointRound) meter.Cost { return r.RawGet }),
	}
	r.SaveOf = shareOf(r.Rounds, func(r CheckpointRound) (ours, raw meter.Cost) { return r.Save, r.RawPut })
	r.LoadOf = shareOf(r.Rounds, func(r CheckpointRound) (ours, raw meter.Cost) { return r.Load, r.RawGet })
}

// shareOf compares two costs round by round, zero where there is no raw one.
func shareOf(rounds []CheckpointRound, costs func(CheckpointRound) (ours, raw meter.Cost)) Share {
	var all []float64
	for _, r := range rounds {
		ours, raw := costs(r)
		all = append(all, raw.Wall.Seconds()/ours.Wall.Seconds())
	}
	slices.Sort(all)
	return Share{Median: all[len(all)/2], Least: all[0], Most: all[len(all)-1]}
}

// readerOf reads the values of the tensors in place.
func readerOf(kinds [][]qwen3.Tensor) io.Reader {
	var parts []io.Reader
	for _, tensors := range kinds {
		for _, t := range tensors {
			parts = append(parts, bytes.NewReader(safetensors.F32Bytes(t.Data)))
		}
	}
	return io.MultiReader(parts...)
}
