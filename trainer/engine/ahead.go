package engine

import (
	"fmt"
	"strings"
	"time"

	"temper/internal/inference"
	backends "temper/trainer/device"
	"temper/trainer/xla/decodeloop"
)

// AheadStats are the counts of devices that make several tokens in one call; see
// decodeloop.Counts.
type AheadStats struct {
	decodeloop.Counts
	// Steps is the time of all steps, on host and device, without compilation.
	Steps time.Duration
}

func (a *AheadStats) add(b AheadStats) {
	a.Programs, a.Compiling, a.Calls = a.Programs+b.Programs, a.Compiling+b.Compiling, a.Calls+b.Calls
	a.Up, a.Down, a.UpBytes, a.DownBytes = a.Up+b.Up, a.Down+b.Down, a.UpBytes+b.UpBytes, a.DownBytes+b.DownBytes
	a.Device, a.Steps = a.Device+b.Device, a.Steps+b.Steps
}

// decodesAhead reports whether devices make several tokens of each request in one call.
func decodesAhead(cfg Config) bool {
	family, _, _ := strings.Cut(cfg.Backend, ":")
	return family == "xla" && !cfg.Graph
}

// newAheadDevice opens the backend of a shard whose device makes several tokens in one call.
func newAheadDevice(cfg Config) (*device, error) {
	backend, err := backends.Open(cfg.Backend)
	if err != nil {
		return nil, fmt.Errorf("open compute backend %q: %w", cfg.Backend, err)
	}
	d := &device{backend: backend, cfg: cfg.Model, kernels: cfg.Kernels, blocks: cfg.shardBlocks(), length: max(cfg.MaxContext, probeTokens)}
	d.ahead, err = decodeloop.New(backend, decodeloop.Config{
		Model: cfg.Model, Slots: cfg.shardSlots(), Blocks: d.blocks, MaxContext: d.length, Ahead: cfg.Ahead,
	})
	if err != nil {
		backend.Finalize()
		return nil, fmt.Errorf("prepare the device: %w", err)
	}
	return d, nil
}

// close releases an accelerator: the client of a plugin holds most of a GPU's memory, and the
// engine of the next run opens another client. Other backends hold nothing.
func (d *device) close() {
	if d.ahead != nil {
		d.ahead.Close()
		d.backend.Finalize()
	}
}

// movesOf converts copies to moves of whole blocks: the tokens behind the copied ones are
// overwritten before they are read.
func movesOf(copies []blockCopy) []decodeloop.Move {
	moves := make([]decodeloop.Move, len(copies))
	for i, c := range copies {
		moves[i] = decodeloop.Move{From: c.from, To: c.to}
	}
	return moves
}

// aheadStep is a step of a shard whose device makes several tokens in one call.
type aheadStep struct {
	*shard
	on *decodeloop.Device
}

// run feeds all but the last token of each context, and then makes the next tokens of every
// job whose context is fed. When the host ends a job at a token, it drops the tokens after it:
// their keys and values lie behind the known tokens of the blocks.
func (s aheadStep) run() {
	begin, compiling := time.Now(), s.on.Counts().Compiling
	if err := s.feedContexts(); err != nil {
		s.startOver(err)
		return
	}
	if err := s.decode(); err != nil {
		s.startOver(err)
		return
	}
	stats := AheadStats{Counts: s.on.Counts()}
	if old := s.stats.ahead.Load(); old != nil {
		stats.Steps = old.Steps
	}
	stats.Steps += time.Since(begin) - (stats.Compiling - compiling)
	s.stats.ahead.Store(&stats)
}

// caughtUp returns the running sequences that have to feed their next token themselves.
func (s aheadStep) caughtUp() ([]*sequence, error) {
	var ready []*sequence
	var copies []blockCopy
	for _, q := range s.sequences.running {
		before := q.cached
		var ok bool
		if copies, ok = s.sequences.catchUp(q, copies); ok {
			ready = append(ready, q)
		}
		s.stats.shared.Add(int64(q.cached - before))
	}
	return ready, s.dev.copyTokens(copies)
}

// feedContexts prefills one chunk of every context that lacks more than its last token.
func (s aheadStep) feedContexts() error {
	ready, err := s.caughtUp()
	if err != nil {
		return err
	}
	var chunks []decodeloop.Chunk
	var fed []*sequence
	for _, q := range ready {
		context := q.job.context
		if q.cached >= len(context)-1 {
			continue
		}
		n := q.claim(min(len(context)-1-q.cached, s.on.Buckets().MaxChunk()))
		chunks = append(chunks, decodeloop.Chunk{Tokens: context[q.cached : q.cached+n], Position: q.cached, Blocks: idsOf(q.blocks)})
		fed = append(fed, q)
	}
	if len(chunks) == 0 {
		return nil
	}
	if err := s.on.Prefill(chunks); err != nil {
		return err
	}
	s.stats.steps.Add(1)
	s.stats.busy.add(len(fed))
	for i, q := range fed {
		q.advance(s.sequences.pool, chunks[i].Tokens)
		s.stats.prefilled.Add(int64(len(chunks[i].Tokens)))
		s.stats.rows.Add(int64(len(chunks[i].Tokens)))
	}
	return nil
}

// decode makes the next tokens of the jobs whose contexts are fed. A job that is sampled on
// the host gets one token, from its logits.
func (s aheadStep) decode() error {
	ready, err := s.caughtUp()
	if err != nil {
		return err
	}
	var onDevice, onHost []*sequence
	for _, q := range ready {
		switch {
		case q.cached < len(q.job.context)-1: // more chunks to come
		case sampledOnHost(q.job.req):
			onHost = append(onHost, q)
		default:
			onDevice = append(onDevice, q)
		}
	}
	if err := s.decodeBatch(onDevice, s.on.Decode); err != nil {
		return err
	}
	return s.decodeBatch(onHost, s.on.DecodeLogits)
}

// sampledOnHost reports whether a request needs logits.
func sampledOnHost(req inference.Request) bool { return req.Sampler != nil || req.TopLogprobs > 0 }

// decodeBatch continues sequences by one call, and gives the jobs their tokens.
func (s aheadStep) decodeBatch(batch []*sequence, decode func([]decodeloop.Slot) ([]decodeloop.Tokens, error)) error {
	if len(batch) == 0 {
		return nil
	}
	slots := make([]decodeloop.Slot, len(batch))
	for i, q := range batch {
		slots[i] = s.slotOf(q)
	}
	made, err := decode(slots)
	if err != nil {
		return err
	}
	s.stats.steps.Add(1)
	s.stats.busy.add(len(batch))
	longest := 0
	for i, q := range batch {
		longest = max(longest, len(made[i].Tokens))
		s.handOut(q, made[i])
	}
	s.stats.rows.Add(int64(longest * s.on.Buckets().Slots))
	return nil
}

// slotOf returns the slot in which the device continues a sequence: to the limit of its
// request, or of the free blocks.
func (s aheadStep) slotOf(q *sequence) decodeloop.Slot {
	j := q.job
	want := min(s.on.Buckets().Ahead, j.req.MaxTokens-len(j.logprobs))
	if sampledOnHost(j.req) {
		want = 1
	}
	for len(q.blocks)*blockTokens < q.cached+want && s.sequences.pool.available() > 0 {
		s.sequences.append(q)
	}
	return decodeloop.Slot{
		Token: j.context[q.cached], Position: q.cached, Blocks: idsOf(q.blocks), Seed: j.req.Seed, Scale: j.scale, Greedy: j.greedy > 0,
		Stop: j.req.Stop, Limit: min(want, len(q.blocks)*blockTokens-q.cached),
	}
}

// handOut gives the job of a sequence its tokens, up to its end.
func (s aheadStep) handOut(q *sequence, made decodeloop.Tokens) {
	st := &step{n: len(made.Tokens), sampled: made.Tokens, logprobs: made.Logprobs, logits: made.Logits}
	for t := range made.Tokens {
		q.advance(s.sequences.pool, q.job.context[q.cached:q.cached+1])
		s.stats.generated.Add(1)
		if s.take(q, st, t); q.job == nil {
			return
		}
	}
}

func idsOf(blocks []*block) []int32 {
	ids := make([]int32, len(blocks))
	for i, b := range blocks {
		ids[i] = b.id
	}
	return ids
}
