package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"temper/internal/inference"
	"temper/internal/rl"
)

// job is a request in the engine. It stores the context of its caller, which waits in another
// goroutine.
type job struct {
	ctx   context.Context
	req   inference.Request
	age   uint64 // smaller is older
	route *route // of its session, in the router
	begun bool   // it has run at least once
	// context has the request's tokens and the sampled ones.
	context  []int32
	logprobs []float32
	kept     []inference.Kept
	top      [][]inference.TokenLogprob
	scale    float32
	greedy   float32
	done     chan answer // holds one
}

// answer ends a job.
type answer struct {
	gen inference.Generation
	err error
}

// counters are the figures of a shard for Stats.
type counters struct {
	generated, prefilled, shared, steps, evictions, preempted, rows atomic.Int64
	active, idle, held                                              atomic.Int64
	// queued counts the passes during which requests waited for a shard, and vacant the slots
	// without a request in those passes.
	queued, vacant atomic.Int64
	busy           busyRows
	ahead          atomic.Pointer[AheadStats]
}

// shard is one device and the goroutine that owns it.
type shard struct {
	dev       *device
	shapes    []shape // ascending, each gives the same bits
	steps     map[shape]*step
	sequences *sequences
	version   int64
	waiting   []*job // by age
	swap      *swap
	first     int // index of the running sequence that the next step serves first
	begun     int // blocks of the jobs begun since the last report

	router   *router
	number   int // of the shard in the router
	commands *commandQueue
	stats    *counters
}

// newShard prepares a shard, which works while serve runs.
func newShard(dev *device, shapes []shape, slots int) *shard {
	return &shard{
		dev: dev, shapes: shapes, steps: map[shape]*step{}, sequences: newSequences(slots, dev.blocks, dev.length), version: -1,
		commands: newCommandQueue(), stats: &counters{},
	}
}

// serve answers requests until the queue is closed.
func (s *shard) serve() {
	for {
		m := s.commands.drain()
		s.waiting = append(s.waiting, m.jobs...)
		for _, session := range m.releases {
			s.sequences.release(session)
		}
		if m.swap != nil {
			s.swap = m.swap
		}
		if m.quit {
			s.endAll(errClosed)
			return
		}
		s.dropCancelled()
		s.takeMore()
		s.admit()
		s.swapWeights()
		s.publishStats()
		if s.step(); len(s.sequences.running) == 0 && len(s.waiting) == 0 && s.swap == nil {
			if s.publishStats() > 0 {
				continue // a wakeup may stand for more requests than there was space for
			}
			<-s.commands.wakeup
			if s.dev.ahead != nil {
				s.commands.waitForBurst()
			}
		}
	}
}

// takeMore takes waiting requests of the router while there is space for them.
func (s *shard) takeMore() {
	for s.swap == nil {
		j := s.router.takeNext(s, s.room)
		if j == nil {
			return
		}
		s.waiting = append(s.waiting, j)
	}
}

// room reports whether a new request could begin at once.
func (s *shard) room(j *job) bool {
	need, under := blocksOf(len(j.context)), len(s.sequences.running)+len(s.waiting)
	for _, w := range s.waiting {
		need += blocksOf(len(w.context))
	}
	free, idle := s.sequences.pool.available(), 0
	if under < evictBelow {
		idle = s.sequences.idleBlocks()
	}
	return under == 0 || under < s.sequences.slots && free+idle >= need
}

// dropCancelled ends the jobs whose callers have given up.
func (s *shard) dropCancelled() {
	for _, q := range slices.Clone(s.sequences.running) {
		if j := q.job; j.ctx.Err() != nil {
			s.finish(q, cancelled(j.ctx, s.sampled(j)))
		}
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(j *job) bool {
		if j.ctx.Err() == nil {
			return false
		}
		s.answerJob(j, cancelled(j.ctx, s.sampled(j)))
		return true
	})
}

// sampled returns the generation of a job so far.
func (s *shard) sampled(j *job) inference.Generation {
	return inference.Generation{Tokens: j.context[len(j.req.Tokens):], Logprobs: j.logprobs, Kept: j.kept, Top: j.top, Version: s.version}
}

// cancelled answers a job whose caller's context has ended, with the tokens so far if the
// caller asks for them.
func cancelled(ctx context.Context, gen inference.Generation) answer {
	if !errors.Is(context.Cause(ctx), inference.ErrCut) {
		return answer{err: ctx.Err()}
	}
	gen.Finish = rl.FinishAbort
	return answer{gen: gen}
}

// admit begins waiting jobs in order. A job whose session has its blocks does not wait for
// earlier jobs. While a swap is pending, only preempted jobs begin: they end on the old
// weights.
func (s *shard) admit() {
	full := false
	s.waiting = slices.DeleteFunc(s.waiting, func(j *job) bool {
		if !j.begun && s.swap != nil {
			return false
		}
		if !j.begun && (s.version < 0 || (j.req.Version >= 0 && j.req.Version != s.version)) {
			s.answerJob(j, answer{err: fmt.Errorf("version %d requested, %d served: %w", j.req.Version, s.version, inference.ErrStaleVersion)})
			return true
		}
		if full && s.sequences.own(j) == nil {
			return false
		}
		q := s.sequences.begin(j)
		if q == nil {
			full = true
			return false
		}
		s.countBegun(j)
		return true
	})
}

// countBegun records that the router need not reserve blocks for a job any more.
func (s *shard) countBegun(j *job) {
	if !j.begun {
		j.begun = true
		s.begun += blocksOf(len(j.req.Tokens))
	}
}

// swapWeights replaces the weights when no job depends on the old ones.
func (s *shard) swapWeights() {
	if s.swap == nil || len(s.sequences.running) > 0 || slices.ContainsFunc(s.waiting, func(j *job) bool { return j.begun }) {
		return
	}
	err := s.dev.load(s.swap)
	s.sequences.invalidate()
	s.version = s.swap.version
	if err != nil {
		s.version = -1 // a part of the old weights may be gone
	}
	s.swap.done <- err
	s.swap = nil
}

// step feeds the next tokens of every job and gives the jobs their sampled tokens.
func (s *shard) step() {
	s.growAll()
	if s.dev.ahead != nil {
		aheadStep{s, s.dev.ahead}.run()
		return
	}
	feeds, fed := s.plan()
	if len(feeds) == 0 {
		return
	}
	tokens, longest, logits := 0, 0, false
	for i, f := range feeds {
		tokens, longest = tokens+len(f.tokens), max(longest, len(f.tokens))
		logits = logits || fed[i].job.req.Sampler != nil || fed[i].job.req.TopLogprobs > 0
	}
	st := s.buffers(smallestShape(s.shapes, tokens, longest))
	st.wantLogits = logits
	st.fill(feeds, s.dev.padding())
	if err := s.dev.execute(st); err != nil {
		s.startOver(err)
		return
	}
	s.stats.steps.Add(1)
	s.stats.busy.add(len(feeds))
	s.stats.rows.Add(int64(st.n))
	for i, q := range fed {
		q.advance(s.sequences.pool, feeds[i].tokens)
		if q.cached < len(q.job.context) {
			s.stats.prefilled.Add(int64(len(feeds[i].tokens)))
			continue
		}
		s.stats.prefilled.Add(int64(len(feeds[i].tokens) - 1))
		s.stats.generated.Add(1)
		s.take(q, st, feeds[i].last)
	}
}

// growAll gives every running job the blocks for its next tokens. Jobs that lose their blocks
// wait before the younger ones.
func (s *shard) growAll() {
	for _, j := range s.sequences.grow() {
		at, _ := slices.BinarySearchFunc(s.waiting, j.age, func(w *job, age uint64) int { return cmp.Compare(w.age, age) })
		s.waiting = slices.Insert(s.waiting, at, j)
	}
}

// plan chooses the tokens of the next step: one of each job, then as many more of the contexts
// as fit. If there are more jobs than rows in a step, jobs take turns. A job waits while
// another one feeds its next tokens.
func (s *shard) plan() (feeds []feed, fed []*sequence) {
	running := s.sequences.running
	largest := s.shapes[len(s.shapes)-1]
	free, copies := largest.n, []blockCopy(nil)
	for i := range running {
		at := (s.first + i) % len(running)
		if free == 0 {
			s.first = at
			break
		}
		q := running[at]
		before := q.cached
		var ready bool
		if copies, ready = s.sequences.catchUp(q, copies); ready {
			free--
			fed = append(fed, q)
		}
		s.stats.shared.Add(int64(q.cached - before))
	}
	if err := s.dev.copyTokens(copies); err != nil {
		s.startOver(err)
		return nil, nil
	}
	for _, q := range fed {
		j, at := q.job, q.cached
		n := q.claim(min(len(j.context)-at, largest.chunk, free+1))
		free -= n - 1
		blocks := make([]int32, blocksOf(at+n))
		for i := range blocks {
			blocks[i] = q.blocks[i].id
		}
		feeds = append(feeds, feed{
			blocks: blocks, tokens: j.context[at : at+n], position: at,
			uniform: rl.Uniform(j.req.Seed, len(j.context)), scale: j.scale, greedy: j.greedy,
		})
	}
	return feeds, fed
}

// buffers returns the step of a shape.
func (s *shard) buffers(sh shape) *step {
	st, ok := s.steps[sh]
	if !ok {
		st = s.dev.newStep(sh)
		s.steps[sh] = st
	}
	return st
}

// take appends the sampled token to the job of a sequence, and ends a complete job.
func (s *shard) take(q *sequence, st *step, at int) {
	j := q.job
	token, logprob := st.sampled[at], st.logprobs[at]
	if by := j.req.Sampler; by != nil || j.req.TopLogprobs > 0 {
		width := len(st.logits) / st.n
		logits := st.logits[at*width:][:s.dev.cfg.VocabSize]
		if by == nil {
			by = &inference.Sampler{}
		}
		d := truncate(logits, j.scale, *by)
		if j.req.Sampler != nil {
			token, logprob = d.draw(rl.Uniform(j.req.Seed, len(j.context)), j.greedy > 0)
			j.kept = append(j.kept, d.kept(by.KeepIDs))
		}
		if n := j.req.TopLogprobs; n > 0 {
			j.top = append(j.top, d.likeliest(n, token, logprob))
		}
	}
	j.context, j.logprobs = append(j.context, token), append(j.logprobs, logprob)
	gen := s.sampled(j)
	switch {
	case slices.Contains(j.req.Stop, token):
		gen.Finish = rl.FinishStop
	case len(gen.Tokens) >= j.req.MaxTokens:
		gen.Finish = rl.FinishLength
	default:
		return
	}
	s.finish(q, answer{gen: gen})
}

// finish ends the job of a sequence.
func (s *shard) finish(q *sequence, a answer) {
	s.answerJob(q.job, a)
	s.sequences.finish(q)
}

// answerJob ends a job.
func (s *shard) answerJob(j *job, a answer) {
	s.countBegun(j)
	s.router.end(j, s.number)
	j.done <- a
}

// startOver fails the running jobs after an error of the device and empties the caches.
func (s *shard) startOver(err error) {
	for _, q := range slices.Clone(s.sequences.running) {
		s.finish(q, answer{err: err})
	}
	s.sequences.invalidate()
	s.dev.reset()
}

// endAll answers every job and a pending swap with err.
func (s *shard) endAll(err error) {
	for _, q := range slices.Clone(s.sequences.running) {
		s.finish(q, answer{err: err})
	}
	if s.swap != nil {
		s.swap.done <- err
	}
	for _, j := range s.waiting {
		s.answerJob(j, answer{err: err})
	}
}

// publishStats copies the figures of the sequences for Stats and the router, and returns the
// number of waiting requests.
func (s *shard) publishStats() (queued int) {
	q := s.sequences
	running := len(q.running)
	idle := len(q.sessions)
	for _, r := range q.running {
		if r.session != "" {
			idle--
		}
	}
	s.stats.active.Store(int64(running))
	s.stats.idle.Store(int64(idle))
	s.stats.evictions.Store(q.evictions)
	s.stats.preempted.Store(q.preempted)
	s.stats.held.Store(int64(q.pool.held()))
	if queued = s.router.report(s.number, q.pool.available(), q.idleBlocks(), s.begun); queued > 0 {
		s.stats.queued.Add(1)
		s.stats.vacant.Add(int64(q.slots - running))
	}
	s.begun = 0
	return queued
}

// errClosed answers requests to a closed engine.
var errClosed = errors.New("policy engine is closed")
