package decodeloop

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"temper/trainer/device"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

// Config of a Device.
type Config struct {
	Model model.Config
	// Slots bounds the sequences of one decoding call.
	Slots int
	// Blocks is how many blocks the cache holds.
	Blocks int
	// MaxContext bounds the tokens of a sequence.
	MaxContext int
	// Ahead is how many tokens of each slot a call makes at most, 16 when 0.
	Ahead int
}

// Device is a policy on one device. It belongs to one goroutine.
type Device struct {
	cfg      model.Config
	backend  compute.Backend
	buckets  Buckets
	blocks   int
	weights  []weight
	values   []*tensors.Tensor // of the weights
	cache    *tensors.Tensor
	programs map[size]*graph.Graph
	counts   Counts
}

// Counts are of everything since the start.
type Counts struct {
	Programs  int           // compiled
	Compiling time.Duration // for that
	// Calls are of prefill, decode and copy programs.
	Calls int64
	// Up and Down count the transfers of calls, and their bytes. Weights are not among them.
	Up, Down           int64
	UpBytes, DownBytes int64
	Device             time.Duration // from the start of calls until their results were there
}

func (c *Counts) up(bytes int)   { c.Up, c.UpBytes = c.Up+1, c.UpBytes+int64(bytes) }
func (c *Counts) down(bytes int) { c.Down, c.DownBytes = c.Down+1, c.DownBytes+int64(bytes) }

// New makes a device with an empty cache and without weights.
func New(backend compute.Backend, c Config) (*Device, error) {
	if c.Ahead == 0 {
		c.Ahead = 16
	}
	d := &Device{
		cfg: c.Model, backend: backend, buckets: newBuckets(c), blocks: c.Blocks,
		weights: weightsOf(c.Model, blocksOf(c.MaxContext+c.Ahead)*BlockTokens+maxPrefill), programs: map[size]*graph.Graph{},
	}
	return d, d.Reset()
}

// Buckets are the sizes of the programs.
func (d *Device) Buckets() Buckets { return d.buckets }

// Counts are the figures of the device so far.
func (d *Device) Counts() Counts { return d.counts }

// Reset empties the cache.
func (d *Device) Reset() error {
	if d.cache != nil {
		device.Free(d.cache)
	}
	return guard(func() error {
		d.cache = tensors.FromShape(shapes.Make(dtypes.Float32, d.blocks+1, BlockTokens*numbers(d.cfg)))
		return d.keep(d.cache)
	})
}

// keep moves a tensor to the device.
func (d *Device) keep(t *tensors.Tensor) error {
	if err := t.MaterializeOnDevice(d.backend, false, 0); err != nil {
		return fmt.Errorf("move to the device: %w", err)
	}
	t.FinalizeLocal()
	return nil
}

// Load replaces the weights, one after another: the device never holds more than one of them
// twice. The cache keeps the keys and values of the old ones.
func (d *Device) Load(find tensor.Lookup) error {
	if err := d.cfg.CheckStored(find); err != nil {
		return err
	}
	if d.values == nil {
		d.values = make([]*tensors.Tensor, len(d.weights))
	}
	return guard(func() error {
		for i, w := range d.weights {
			if w.name == nameRope && d.values[i] != nil {
				continue // no policy changes it
			}
			if d.values[i] != nil {
				device.Free(d.values[i])
			}
			d.values[i] = tensors.FromFlatDataAndDimensions(w.make(find), w.dims...)
			if err := d.keep(d.values[i]); err != nil {
				return fmt.Errorf("weight %s: %w", w.name, err)
			}
		}
		return nil
	})
}

// Close gives the memory of the device back.
func (d *Device) Close() {
	device.Free(d.cache)
	for _, v := range d.values {
		if v != nil {
			device.Free(v)
		}
	}
	for _, g := range d.programs {
		g.Finalize()
	}
}

// Chunk is a part of a context that the cache does not hold yet.
type Chunk struct {
	Tokens   []int32 // at most Buckets.MaxChunk
	Position int     // of the first token
	Blocks   []int32 // of the sequence, up to the last token
}

// Prefill computes the keys and values of chunks of different sequences.
func (d *Device) Prefill(chunks []Chunk) error {
	for _, batch := range d.buckets.prefills(chunks) {
		s := batch.size
		ctl := make([]int32, s.rows*s.columns())
		for r := range s.rows {
			row := ctl[r*s.columns():][:s.columns()]
			tables := row[prefillColumns+s.chunk:]
			if r >= len(batch.chunks) {
				d.fillTables(tables, nil, 0, s)
				continue
			}
			c := batch.chunks[r]
			row[colFirst], row[colCount] = int32(c.Position), int32(len(c.Tokens)) //nolint:gosec // a context
			copy(row[prefillColumns:], c.Tokens)
			d.fillTables(tables, c.Blocks, c.Position, s)
		}
		if _, err := d.run(s, ctl); err != nil {
			return err
		}
	}
	return nil
}

// fillTables writes the blocks of a context, and those that tokens from a position on go
// to. Where a sequence has no block stands the block that is never read.
func (d *Device) fillTables(to []int32, blocks []int32, position int, s size) {
	context, targets := to[:s.length/BlockTokens], to[s.length/BlockTokens:]
	trash := int32(d.blocks) //nolint:gosec // fewer
	for i := range context {
		if context[i] = trash; i < len(blocks) {
			context[i] = blocks[i]
		}
	}
	for i := range targets {
		if at := position/BlockTokens + i; at < len(blocks) {
			targets[i] = blocks[at]
		} else {
			targets[i] = trash
		}
	}
}

// Slot is a sequence that is to be continued.
type Slot struct {
	Token    int32 // the last of the context; the cache holds all before it
	Position int   // of Token
	Blocks   []int32
	Seed     uint64
	Scale    float32 // 1 / temperature
	Greedy   bool
	Stop     []int32 // the first Stops of them are seen by the device
	Limit    int     // of tokens to make, at most Buckets.Ahead; there must be blocks for as many from Position on
}

// Tokens is the output of a slot, up to and with the first token at which the device stops it.
type Tokens struct {
	Tokens   []int32
	Logprobs []float32
	Logits   []float32 // of the first token, where they were asked for
}

// Decode continues slots, each by as many tokens as its limit says or fewer.
func (d *Device) Decode(slots []Slot) ([]Tokens, error) { return d.decode(slots, decode) }

// DecodeLogits makes one token of each slot, and returns its logits with it.
func (d *Device) DecodeLogits(slots []Slot) ([]Tokens, error) { return d.decode(slots, decodeLogits) }

func (d *Device) decode(slots []Slot, as kind) ([]Tokens, error) {
	if len(slots) > d.buckets.Slots {
		return nil, errors.New("more sequences than slots")
	}
	s := d.buckets.decode(slots)
	if s.kind = as; as == decodeLogits {
		s.chunk = 1
	}
	ctl := make([]int32, s.rows*s.columns())
	for r := range s.rows {
		row := ctl[r*s.columns():][:s.columns()]
		if r < len(slots) {
			d.fillSlot(row, slots[r], s)
			continue
		}
		d.fillTables(row[decodeColumns:], nil, 0, s)
		row[colScale] = int32(math.Float32bits(1))
	}
	out, err := d.run(s, ctl)
	if err != nil {
		return nil, err
	}
	return d.read(out, s, slots)
}

func (d *Device) fillSlot(row []int32, slot Slot, s size) {
	row[colToken], row[colPosition] = slot.Token, int32(slot.Position)                                  //nolint:gosec // a context
	row[colSeedLow], row[colSeedHigh] = int32(uint32(slot.Seed)), int32(slot.Seed>>32)                  //nolint:gosec // halves
	row[colScale], row[colLimit] = int32(math.Float32bits(slot.Scale)), int32(min(slot.Limit, s.chunk)) //nolint:gosec // bits
	if slot.Greedy {
		row[colGreedy] = 1
	}
	for i := range Stops {
		if row[colStop+i] = -1; i < len(slot.Stop) {
			row[colStop+i] = slot.Stop[i]
		}
	}
	d.fillTables(row[decodeColumns:], slot.Blocks, slot.Position, s)
}

// read reads the outputs of slots from the device.
func (d *Device) read(out []*tensors.Tensor, s size, slots []Slot) ([]Tokens, error) {
	yields := make([]Tokens, len(slots))
	err := guard(func() error {
		begin := time.Now()
		tensors.MustConstFlatData(out[0], func(flat []int32) { // waits for the device
			d.counts.Device += time.Since(begin)
			d.counts.down(4 * len(flat))
			for i, slot := range slots {
				for t := range min(slot.Limit, s.chunk) {
					token := flat[t*s.rows+i]
					yields[i].Tokens = append(yields[i].Tokens, token)
					yields[i].Logprobs = append(yields[i].Logprobs, math.Float32frombits(uint32(flat[(s.chunk+t)*s.rows+i]))) //nolint:gosec // bits
					if slices.Contains(slot.Stop[:min(Stops, len(slot.Stop))], token) {
						break
					}
				}
			}
		})
		if s.kind == decodeLogits {
			tensors.MustConstFlatData(out[1], func(flat []float32) {
				d.counts.down(4 * len(flat))
				vocab := len(flat) / s.rows
				for i := range slots {
					yields[i].Logits = slices.Clone(flat[i*vocab : (i+1)*vocab])
				}
			})
		}
		for _, t := range out {
			t.MustFinalizeAll()
		}
		return nil
	})
	return yields, err
}

// Move asks for a copy of a block in another one.
type Move struct{ From, To int32 }

// Copy copies blocks, as if one after another.
func (d *Device) Copy(moves []Move) error {
	for len(moves) > 0 {
		n := independent(moves)
		batch := moves[:n]
		moves = moves[n:]
		s := size{kind: copying, rows: copyRows}
		ctl := make([]int32, s.rows*s.columns())
		for i := range s.rows {
			ctl[2*i], ctl[2*i+1] = int32(d.blocks), int32(d.blocks) //nolint:gosec // fewer
			if i < len(batch) {
				ctl[2*i], ctl[2*i+1] = batch[i].From, batch[i].To
			}
		}
		if _, err := d.run(s, ctl); err != nil {
			return err
		}
	}
	return nil
}

// independent is how many moves one call makes: it reads all blocks before it writes one.
func independent(moves []Move) int {
	written := map[int32]bool{}
	for i, m := range moves {
		if i == copyRows || written[m.From] {
			return i
		}
		written[m.To] = true
	}
	return len(moves)
}
