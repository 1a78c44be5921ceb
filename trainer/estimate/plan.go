package estimate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"temper/trainer/device"
	"temper/trainer/model"
)

// Config is a step and its devices.
type Config struct {
	Model  model.Config
	Device Device
	// Mesh of the devices.
	Mesh device.Mesh
	// Rows of Length tokens in a device pass of one data replica.
	Rows, Length int
	// Passes is the number of concurrent passes on the CPU; 0 is 1. Several set Accumulate.
	Passes int
	// Remat recomputes each layer in the backward pass.
	Remat bool
	// Half computes in bfloat16 with float32 sums; master weights, gradients and
	// moments stay float32. It is ignored on the CPU.
	Half bool
	// LogitsChunk is the number of vocabulary entries whose scores exist at a
	// time; 0 means all.
	LogitsChunk int
	// Accumulate adds up the gradients of several passes before an update.
	Accumulate bool
	// Packed puts several sequences into a row.
	Packed bool
	// Reference keeps a reference policy beside the trained one (rl.loss.kl).
	Reference bool
	// SeveralUpdates keeps the state before a step of several minibatches.
	SeveralUpdates bool
	// Slots and Context of an engine on the same devices; no Slots, no engine.
	Slots, Context int
}

// Stage is a time at which an item is in memory.
type Stage string

// Stages of a step. Items of Always count in every other stage, and items of Pass in
// Layer and in Logits as well. The stage with the largest sum is the peak.
const (
	Always Stage = "always"
	Pass   Stage = "pass"   // forward and backward
	Layer  Stage = "layer"  // of a pass: backward through a layer
	Logits Stage = "logits" // of a pass: backward through the head and the loss
	Update Stage = "update" // the optimizer; on a GPU with the values for backward through the last layer
)

// Item is bytes on one device.
type Item struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	How   string `json:"how"` // the formula
	Stage Stage  `json:"stage"`
	Bytes int64  `json:"bytes"`
}

// Report is the memory of one device.
type Report struct {
	Items    []Item `json:"items"`
	PeakAt   Stage  `json:"peak_at"`
	Peak     int64  `json:"peak"`
	Memory   int64  `json:"memory"`
	Headroom int64  `json:"headroom"` // negative if the step does not fit
	Fits     bool   `json:"fits"`
}

// reserve is the share of a GPU's memory for the runtime, the buffers of collectives, and
// fragmentation.
const reserve = 0.08

// Estimate adds the bytes of one device. The error names all mistakes of the configuration.
func Estimate(c Config) (Report, error) {
	shards, err := device.Shardings(c.Model, c.Mesh)
	if err := errors.Join(err, c.checkNumbers()); err != nil {
		return Report{}, err
	}
	s := countParameters(c.Model, shards)
	var items []Item
	if c.Device.Fused {
		items = slices.Concat(c.fusedState(s), c.fusedActivations(), c.engine(s), []Item{
			{"runtime", "reserve", "8 % of the memory", Always, int64(reserve * float64(c.Device.Memory))},
		})
	} else {
		items = slices.Concat(c.plainState(s), c.sideBySide(c.plainActivations()), c.engine(s), []Item{
			{"runtime", "program", "measured", Always, programBytes},
			{"runtime", "rearranged factors of products", "measured", Always, packingBytes},
		})
	}
	return c.report(items), nil
}

// checkNumbers names all numbers outside their bounds.
func (c Config) checkNumbers() error {
	errs := []error{
		within("sequences", c.Rows, 1, 1<<20), within("tokens", c.Length, 1, c.Model.MaxPositionEmbeddings),
		within("logits chunk", c.LogitsChunk, 0, 1<<30), within("slots", c.Slots, 0, 1<<20), within("context", c.Context, 0, 1<<30),
	}
	if c.Slots > 0 && c.Context == 0 {
		errs = append(errs, errors.New("context: 0, want 1 or more with slots"))
	}
	return errors.Join(errs...)
}

// within reports a number outside its bounds. The largest keep all sums in 64 bits.
func within(key string, value, least, most int) error {
	if value < least || value > most {
		return fmt.Errorf("%s: %d, want %d to %d", key, value, least, most)
	}
	return nil
}

// Program returns the part of the peak that belongs to a compiled program: all but the
// runtime's.
func (r Report) Program() int64 {
	n := r.Peak
	for _, i := range r.Items {
		if i.Group == "runtime" {
			n -= i.Bytes
		}
	}
	return n
}

// report finds the stage of the peak.
func (c Config) report(items []Item) Report {
	at := map[Stage]int64{}
	for _, i := range items {
		at[i.Stage] += i.Bytes
	}
	if c.Device.Fused { // gradients grow as activations go; the first layer is worked on when nearly all are there
		at[Update] += at[Layer]
	}
	at[Layer] += at[Pass]
	at[Logits] += at[Pass]
	r := Report{Items: items, Memory: c.Device.Memory}
	for _, stage := range []Stage{Layer, Logits, Update} {
		if r.PeakAt == "" || at[stage] > at[r.PeakAt] {
			r.PeakAt = stage
		}
	}
	r.Peak = at[Always] + at[r.PeakAt]
	if !c.Device.Fused { // its pools keep the buffers of both stages of a pass
		r.Peak = at[Always] + at[Layer] + at[Logits] - at[Pass]
	}
	r.Headroom = r.Memory - r.Peak
	r.Fits = r.Headroom >= 0
	return r
}

// parameters are numbers of weights: of the whole model, of one device's part, of the largest
// matrix of a layer, and of the table of embeddings.
type parameters struct{ all, stored, matrix, table int64 }

func countParameters(cfg model.Config, shards []device.Sharding) parameters {
	p := parameters{table: int64(cfg.VocabSize) * int64(cfg.HiddenSize)}
	size := func(dims []int) int64 {
		n := int64(1)
		for _, d := range dims {
			n *= int64(d)
		}
		return n
	}
	for _, s := range shards {
		p.all += size(s.Shape)
		p.stored += size(s.Shard)
	}
	p.matrix = int64(cfg.HiddenSize) * int64(max(cfg.IntermediateSize, cfg.NumAttentionHeads*cfg.HeadDim))
	return p
}

// width returns the size of a number in the forward pass, in bytes.
func (c Config) width() int64 {
	if c.Half && c.Device.Fused {
		return 2
	}
	return 4
}

// fusedState lists weights, gradients and moments under XLA.
func (c Config) fusedState(p parameters) []Item {
	m, w := int64(c.Mesh.Model), c.width()
	items := []Item{
		{"weights", "master, float32", "4 P / shards", Always, 4 * p.stored},
		{"optimizer", "AdamW moments, float32", "8 P / shards", Always, 8 * p.stored},
	}
	if c.Accumulate {
		items = append(items,
			Item{"gradients", "float32, the sum", "4 P / shards", Always, 4 * p.stored},
			Item{"gradients", "of the pass under way", "4 P / shards", Pass, 4 * p.stored})
	} else {
		items = append(items, Item{"gradients", "float32", "4 P / shards", Update, 4 * p.stored})
	}
	if w < 4 {
		items = append(items, Item{"weights", "bfloat16 copies", "2 P / shards", Pass, w * p.stored})
	}
	if c.Mesh.FSDP && c.Mesh.Data > 1 {
		items = append(items,
			Item{"weights", "two gathered matrices", "2 w D F / model", Layer, 2 * w * p.matrix / m},
			Item{"gradients", "one whole matrix", "4 D F / model", Layer, 4 * p.matrix / m},
		)
		head := Item{"gradients", "whole head; before it the gathered one", "4 V D / model", Logits, 4 * p.table / m}
		if c.LogitsChunk > 0 || c.inLoops() { // the pieces read the one while they add up the other
			head.Name = "whole head"
			items = append(items, Item{"weights", "gathered head", "w V D / model", Logits, w * p.table / m})
		}
		items = append(items, head)
	}
	if c.Reference {
		items = append(items, Item{"reference", "weights, float32", "4 P / shards", Always, 4 * p.stored})
	}
	if c.SeveralUpdates {
		items = append(items, Item{"undo", "state before a step of several updates", "12 P / shards", Always, 12 * p.stored})
	}
	return items
}

// fusedActivations lists the values that a fused graph keeps for the backward pass, and the
// further values that the backward pass of one layer needs.
func (c Config) fusedActivations() []Item {
	cfg, w, m := c.Model, c.width(), int64(c.Mesh.Model)
	n := int64(c.Rows) * int64(c.Length)
	scores := Item{"workspace", "scores over the vocabulary and their gradient", "8 N V / model", Logits, 8 * n * int64(cfg.VocabSize) / m}
	switch {
	case c.inLoops():
	case w < 4:
		scores.How, scores.Bytes = "(4 + w) N V / model", (4+w)*n*int64(cfg.VocabSize)/m
	default: // in place
		scores.Name, scores.How, scores.Bytes = "scores over the vocabulary, then their gradient", "4 N V / model", 4*n*int64(cfg.VocabSize)/m
	}
	if chunk := int64(c.LogitsChunk); chunk > 0 && chunk < int64(cfg.VocabSize)/m {
		scores.How, scores.Bytes = "(12 + w) N chunk", (12+w)*n*chunk
	}
	if c.inLoops() {
		return append(c.loopActivations(), scores)
	}
	l, d, f := int64(cfg.NumHiddenLayers), int64(cfg.HiddenSize), int64(cfg.IntermediateSize)
	q, kv := int64(cfg.NumAttentionHeads*cfg.HeadDim), int64(cfg.NumKeyValueHeads*cfg.HeadDim)
	ht := int64(cfg.NumAttentionHeads) * int64(c.Length)
	probs := Item{"", "attention probabilities", "4 N H T / model", "", 4 * n * ht / m}
	if w < 4 { // in the type of the values besides
		probs.How, probs.Bytes = "(4 + w) N H T / model", (4+w)*n*ht/m
	}
	saved := []Item{ // of one layer
		{"", "residual stream and norms", "6 w N D", "", 6 * w * n * d},
		{"", "queries, keys, values, answer", "w N (4 q + 4 kv) / model", "", w * n * (4*q + 4*kv) / m},
		{"", "feed-forward", "3 w N F / model", "", 3 * w * n * f / m},
		probs,
	}
	scratch := []Item{
		{"workspace", "gradients of the residual stream", "2 w N D", Layer, 2 * w * n * d},
		{"workspace", "gradients of queries, keys, values", "w N (2 q + 2 kv) / model", Layer, w * n * (2*q + 2*kv) / m},
		{"workspace", "gradients of the feed-forward", "3 w N F / model", Layer, 3 * w * n * f / m},
		{"workspace", "gradients of scores", "8 N H T / model", Layer, 8 * n * ht / m},
	}
	return slices.Concat(c.savedItems(saved, Item{"activations", "inputs of layers", "w L N D", Pass, w * l * n * d}), []Item{scores}, scratch)
}

// savedItems turns the saved values of one layer into items: for all layers, or, with Remat,
// the inputs of all layers and the rest for one layer at a time.
func (c Config) savedItems(saved []Item, inputs Item) []Item {
	items := []Item{}
	for _, s := range saved {
		s.Group, s.Stage, s.Name = "activations", Pass, s.Name+", all layers"
		if c.Remat {
			s.Group, s.Stage, s.Name = "workspace", Layer, s.Name[:len(s.Name)-len(", all layers")]+", one layer"
		} else {
			s.Bytes *= int64(c.Model.NumHiddenLayers)
			s.How = "L " + s.How
		}
		items = append(items, s)
	}
	if c.Remat {
		items = append(items, inputs)
	}
	return items
}

// engine returns the items of the rollout engine on the same device: whole weights and caches.
func (c Config) engine(p parameters) []Item {
	if c.Slots == 0 {
		return nil
	}
	w := c.width()
	return []Item{
		{"rollout", "weights of the engine", "w P", Always, w * p.all},
		{"rollout", fmt.Sprintf("caches of %d slots of %d tokens", c.Slots, c.Context), "2 w L kv context slots", Always, int64(c.Slots) * int64(c.Context) * CacheBytes(c.Model, int(w))},
	}
}

// CacheBytes returns the size of the keys and values of one token, for a size of a number.
func CacheBytes(cfg model.Config, width int) int64 {
	return 2 * int64(width) * int64(cfg.NumHiddenLayers) * int64(cfg.NumKeyValueHeads*cfg.HeadDim)
}

// Choose tries every mesh of n devices. It returns the one with the smallest model axis, and so
// with the least traffic, that leaves a tenth of the memory free. If there is none, it returns
// the mesh with the lowest peak.
func Choose(c Config, n int) (device.Mesh, error) {
	type option struct {
		mesh device.Mesh
		peak int64
	}
	var options []option
	var errs []error
	for network := 1; network <= n; network++ {
		if n%network != 0 {
			continue
		}
		c.Mesh = device.Mesh{Data: n / network, Model: network, FSDP: n/network > 1}
		r, err := Estimate(c)
		if err != nil {
			errs = append(errs, fmt.Errorf("%v: %w", c.Mesh, err))
			continue
		}
		if r.Headroom >= c.Device.Memory/10 {
			return c.Mesh, nil
		}
		options = append(options, option{c.Mesh, r.Peak})
	}
	if len(options) == 0 {
		return device.Mesh{}, errors.Join(errs...)
	}
	return slices.MinFunc(options, func(a, b option) int { return cmp.Compare(a.peak, b.peak) }).mesh, nil
}
