package storebench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/policy"
	"temper/tools/bench/meter"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/engine"
	"temper/trainer/qwen3"
	"temper/trainer/weights/hostmem"
	"temper/trainer/weights/safetensors"
	"temper/trainer/weights/sharedmem"
)

// The ways on which an engine gets a policy.
const (
	// WayFile is one file in the store, as small policies are stored.
	WayFile = "file"
	// WayStore is shards in the store, as an engine on another host reads them.
	WayStore = "shards"
	// WayHost is the segment that another process of the host maps. The bench maps it a
	// second time, as such a process does.
	WayHost = "host"
	// WayProcess is the segment that the trainer's own process has mapped.
	WayProcess = "process"
)

// PublishConfig of a measurement.
type PublishConfig struct {
	Store  blob.Store
	Folder string // of segments
	Size   int64  // bytes of the weights
	Rounds int
	// Changed is the share of the layers that an update changes: 1 for all weights.
	Changed float64
	Log     *slog.Logger
}

// Publication is what one policy took on one way.
type Publication struct {
	Way string `json:"way"`
	// Publish lasts from the end of an update until the policy is stored; Load until an
	// engine serves it; Token until that engine has sampled a token.
	Publish meter.Cost `json:"publish"`
	Load    meter.Cost `json:"load"`
	Token   meter.Cost `json:"token"`
	// Stored and Read are bytes that the store got and gave, Mapped those that were
	// mapped and not copied, Kept those that the engine had.
	Stored int64 `json:"stored_bytes"`
	Read   int64 `json:"read_bytes"`
	Mapped int64 `json:"mapped_bytes"`
	Kept   int64 `json:"kept_bytes"`
}

// Total is the time from the update to the first token.
func (p Publication) Total() meter.Cost {
	return meter.Cost{Wall: p.Publish.Wall + p.Load.Wall + p.Token.Wall, CPU: p.Publish.CPU + p.Load.CPU + p.Token.CPU}
}

// PublishReport has all rounds, and what plain copies of as many bytes cost.
type PublishReport struct {
	Model  qwen3.Config  `json:"model"`
	Bytes  int64         `json:"bytes"`
	Shards int           `json:"shards"`
	Rounds []Publication `json:"rounds"`
	// Copy is one copy in memory, RawPut and RawGet a file by plain calls, zero where the
	// store has none.
	Copy    []meter.Cost `json:"copy"`
	RawPut  []meter.Cost `json:"raw_put,omitempty"`
	RawGet  []meter.Cost `json:"raw_get,omitempty"`
	PeakRSS int64        `json:"peak_rss_bytes"`
}

// Publish measures how a policy gets from a trainer to the first token of an engine.
func Publish(ctx context.Context, c PublishConfig) (r PublishReport, err error) {
	if c.Size < minCheckpoint || c.Rounds < 1 || !(c.Changed > 0 && c.Changed <= 1) {
		return r, fmt.Errorf("%d bytes, %d rounds, %g changed: want at least %d, 1, and a share", c.Size, c.Rounds, c.Changed, minCheckpoint)
	}
	b := &publisher{PublishConfig: c, counted: &countedStore{Store: c.Store}, model: modelOf(c.Size / 4)}
	if err := b.open(); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	r.Model, r.Bytes = b.model, 4*int64(b.model.NumParameters())
	for range c.Rounds {
		for _, way := range []string{WayFile, WayStore, WayHost, WayProcess} {
			p, err := b.publish(ctx, way)
			if err != nil {
				return r, fmt.Errorf("%s: %w", way, err)
			}
			r.Rounds, r.Shards = append(r.Rounds, p), b.shards
		}
		if err := b.raw(ctx, &r); err != nil {
			return r, err
		}
	}
	r.PeakRSS = meter.PeakRSS()
	return r, nil
}

// publisher has a trainer and one engine for each way.
type publisher struct {
	PublishConfig
	counted *countedStore
	model   qwen3.Config
	trainer *trainer.Trainer
	weights []qwen3.Tensor
	ours    *sharedmem.Segments // the trainer's
	others  *sharedmem.Segments // of another process
	engines map[string]*reading
	version int64
	shards  int
}

// reading is an engine with its reader.
type reading struct {
	engine *engine.Engine
	reader *sharedmem.Reader
}

func (b *publisher) open() (err error) {
	if b.ours, err = sharedmem.Open(sharedmem.Config{Folder: b.Folder, Log: b.Log}); err != nil {
		return err
	}
	if b.others, err = sharedmem.Open(sharedmem.Config{Folder: b.Folder, Log: b.Log}); err != nil {
		return err
	}
	if b.weights, err = qwen3.InitialTensors(b.model, 1); err != nil {
		return err
	}
	b.trainer, err = trainer.New(trainer.Config{Model: b.model, MicrobatchTokens: 1, Temperature: 1, Loss: config.Default().RL.Loss})
	if err != nil {
		return err
	}
	if err := b.trainer.Import(b.weights); err != nil {
		return err
	}
	b.engines = map[string]*reading{}
	return nil
}

// engineOf opens the engine of a way. There is one at a time, so that memory has room.
func (b *publisher) engineOf(way string) (*reading, error) {
	for other, e := range b.engines {
		if other != way {
			e.engine.Close()
			e.reader.Close()
			delete(b.engines, other)
		}
	}
	if e := b.engines[way]; e != nil {
		return e, nil
	}
	host := map[string]*sharedmem.Segments{WayHost: b.others, WayProcess: b.ours}[way]
	e := &reading{reader: &sharedmem.Reader{Store: b.counted, Segments: host, Keep: b.Changed < 1, Log: b.Log}}
	var err error
	e.engine, err = engine.New(engine.Config{
		Model: b.model, Slots: 1, Shards: 1, MaxContext: 64,
		OpenWeights: func(ctx context.Context, ref blob.Ref) (engine.Source, error) {
			w, err := e.reader.Open(ctx, ref)
			if err != nil {
				return nil, err
			}
			return w, nil
		},
	})
	b.engines[way] = e
	return e, err
}

// update changes the weights as a step of training does.
func (b *publisher) update() error {
	n := int(b.Changed * float64(len(b.weights)))
	for _, t := range b.weights[len(b.weights)-max(1, n):] {
		t.Data[0] += 1e-3
		t.Data[len(t.Data)-1] += 1e-3
	}
	return b.trainer.Import(b.weights)
}

// publish moves one policy on a way. With a share of changed weights, one before it is
// what the engine and the store have.
func (b *publisher) publish(ctx context.Context, way string) (Publication, error) {
	e, err := b.engineOf(way)
	if err != nil {
		return Publication{}, err
	}
	if b.Changed < 1 {
		if _, err := b.move(ctx, way, e); err != nil {
			return Publication{}, err
		}
	}
	return b.move(ctx, way, e)
}

func (b *publisher) move(ctx context.Context, way string, e *reading) (p Publication, err error) {
	if err := b.update(); err != nil {
		return p, err
	}
	p.Way = way
	b.version++
	form := checkpoint.Form{ShardFrom: 1}
	switch way {
	case WayFile:
		form.ShardFrom = 0
	case WayHost, WayProcess:
		form.Memory = b.ours.ForRun("bench")
	}
	stored, moved := b.counted.put.Load(), e.reader.Moved()
	var ref blob.Ref
	p.Publish, err = timed(func() (err error) {
		ref, err = b.trainer.Publish(ctx, b.counted, fmt.Sprintf("%s/policies/v%06d", runFolder, b.version), checkpoint.Policy{Form: form})
		return err
	})
	if err != nil {
		return p, err
	}
	if p.Load, err = timed(func() error { return e.engine.Load(ctx, ref, b.version) }); err != nil {
		return p, err
	}
	p.Token, err = timed(func() error {
		_, err := e.engine.Generate(ctx, policy.Request{Tokens: []int32{1}, MaxTokens: 1, Temperature: 1, Version: b.version})
		return err
	})
	now := e.reader.Moved()
	p.Stored, p.Read, p.Kept = b.counted.put.Load()-stored, now.Store-moved.Store, now.Kept-moved.Kept
	p.Mapped = now.Host + now.Process - moved.Host - moved.Process
	if shards, listErr := checkpoint.PolicyShards(ctx, b.Store, ref); listErr == nil && len(shards) > 0 {
		b.shards = len(shards)
	}
	return p, err
}

// raw copies as many bytes by plain means.
func (b *publisher) raw(ctx context.Context, r *PublishReport) error {
	for _, e := range b.engines {
		e.engine.Close()
		e.reader.Close()
	}
	clear(b.engines)
	b.ours.Close()
	runtime.GC()
	from, to := hostmem.Bytes(r.Bytes), hostmem.Bytes(r.Bytes)
	at := 0
	for _, t := range b.weights {
		at += copy(from[at:], safetensors.F32Bytes(t.Data))
	}
	clear(to)
	cost, err := timed(func() error { hostmem.CopyBytes(to, from); return nil })
	if err != nil {
		return err
	}
	r.Copy = append(r.Copy, cost)
	raw, ok := b.Store.(rawStore)
	if !ok {
		return nil
	}
	if cost, err = timed(func() error { return raw.RawPut(ctx, rawKey, bytes.NewReader(from)) }); err != nil {
		return err
	}
	r.RawPut = append(r.RawPut, cost)
	if cost, err = timed(func() error { return raw.RawGet(ctx, rawKey, memory(to)) }); err != nil {
		return err
	}
	r.RawGet = append(r.RawGet, cost)
	return nil
}

func (b *publisher) close(ctx context.Context) error {
	for _, e := range b.engines {
		e.engine.Close()
		e.reader.Close()
	}
	b.trainer.Close()
	b.ours.Close()
	b.others.Close()
	return clean(context.WithoutCancel(ctx), b.Store, "")
}

// countedStore counts the bytes that it is given.
type countedStore struct {
	blob.Store
	put atomic.Int64
}

// Put implements blob.Store.
func (s *countedStore) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	ref, err := s.Store.Put(ctx, key, r, cond)
	s.put.Add(ref.Size)
	return ref, err
}

// PutHashed implements blob.HashedPutter.
func (s *countedStore) PutHashed(ctx context.Context, want blob.Ref, r io.Reader) error {
	s.put.Add(want.Size)
	return blob.PutHashed(ctx, s.Store, want, r)
}
