package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"temper/internal/policy"
	"temper/internal/rl"
	"temper/trainer/tensor"
)

// job is a request in a shard. It carries the context of its caller because the
// caller waits in another goroutine.
type job struct {
	ctx context.Context
	req policy.Request
	// context is the request's tokens and what was sampled since.
	context  []int32
	logprobs []float32
	scale    float32
	greedy   float32
	done     chan answer // holds one
}

// answer ends a job.
type answer struct {
	gen policy.Generation
	err error
}

// swap asks a shard to change its weights once its jobs have finished.
type swap struct {
	weights []tensor.Named
	version int64
	done    chan error // holds one
}

// counters are the figures of a shard for Stats.
type counters struct {
	generated, prefilled, steps, evictions, rows atomic.Int64
	active, idle, queued, cached                 atomic.Int64
}

// shard is one device and the goroutine that owns it.
type shard struct {
	dev     *device
	shapes  []shape // ascending, each gives the same bits
	steps   map[shape]*step
	slots   *slots
	version int64
	waiting []*job
	swap    *swap
	first   int // the slot that is served first, where there are more jobs than rows in a step

	jobs     chan *job
	releases chan string
	swaps    chan *swap
	quit     chan struct{}
	stats    *counters
}

// newShard prepares a shard, which works while serve runs.
func newShard(dev *device, shapes []shape, queue int) *shard {
	return &shard{
		dev: dev, shapes: shapes, steps: map[shape]*step{}, slots: newSlots(dev.rows - 1), version: -1,
		jobs: make(chan *job, queue), releases: make(chan string, 256), swaps: make(chan *swap), quit: make(chan struct{}),
		stats: &counters{},
	}
}

// serve answers requests until quit is closed.
func (s *shard) serve() {
	for {
		if !s.receive() {
			s.endAll(errClosed)
			return
		}
		s.dropCancelled()
		s.admit()
		s.swapWeights()
		s.step()
		s.publishStats()
	}
}

// receive takes everything that is waiting in the channels. A shard with nothing to
// do blocks until something arrives. The result is false when the shard must end.
func (s *shard) receive() bool {
	active, _ := s.slots.count()
	idle := active == 0 && len(s.waiting) == 0 && s.swap == nil
	for {
		if idle {
			select {
			case j := <-s.jobs:
				s.waiting = append(s.waiting, j)
			case session := <-s.releases:
				s.slots.release(session)
			case s.swap = <-s.swaps:
			case <-s.quit:
				return false
			}
			idle = false
			continue
		}
		select {
		case j := <-s.jobs:
			s.waiting = append(s.waiting, j)
		case session := <-s.releases:
			s.slots.release(session)
		case sw := <-s.swapsIfFree():
			s.swap = sw
		case <-s.quit:
			return false
		default:
			return true
		}
	}
}

// swapsIfFree is the channel of swaps while none is pending.
func (s *shard) swapsIfFree() chan *swap {
	if s.swap != nil {
		return nil
	}
	return s.swaps
}

// dropCancelled ends the jobs whose callers have gone.
func (s *shard) dropCancelled() {
	for _, sl := range s.slots.all {
		if sl.job != nil && sl.job.ctx.Err() != nil {
			s.finish(sl, cancelled(sl.job.ctx, s.sampled(sl.job)))
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

// sampled is what a job has so far.
func (s *shard) sampled(j *job) policy.Generation {
	return policy.Generation{Tokens: j.context[len(j.req.Tokens):], Logprobs: j.logprobs, Version: s.version}
}

// cancelled answers a job whose caller's context has ended: with what was sampled when
// the caller asks for that.
func cancelled(ctx context.Context, gen policy.Generation) answer {
	if !errors.Is(context.Cause(ctx), policy.ErrCut) {
		return answer{err: ctx.Err()}
	}
	gen.Finish = rl.FinishAbort
	return answer{gen: gen}
}

// admit gives rows to waiting jobs in their order. A job whose session has a row
// does not wait for the jobs before it. While a swap is pending no job is admitted.
func (s *shard) admit() {
	if s.swap != nil {
		return
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(j *job) bool {
		if s.version < 0 || (j.req.Version >= 0 && j.req.Version != s.version) {
			s.answerJob(j, answer{err: fmt.Errorf("version %d requested, %d served: %w", j.req.Version, s.version, policy.ErrStaleVersion)})
			return true
		}
		return s.slots.assignRow(j) != nil
	})
}

// swapWeights changes the weights when no job runs on the old ones any more.
func (s *shard) swapWeights() {
	if active, _ := s.slots.count(); s.swap == nil || active > 0 {
		return
	}
	err := s.dev.load(s.swap.weights)
	s.slots.invalidate()
	s.version = s.swap.version
	if err != nil {
		s.version = -1 // part of the old weights may be gone
	}
	s.swap.done <- err
	s.swap = nil
}

// step feeds the next tokens of every job and hands out what was sampled.
func (s *shard) step() {
	feeds, fed := s.plan()
	if len(feeds) == 0 {
		return
	}
	tokens, longest := 0, 0
	for _, f := range feeds {
		tokens, longest = tokens+len(f.tokens), max(longest, len(f.tokens))
	}
	st := s.buffers(smallestShape(s.shapes, tokens, longest))
	st.fill(feeds, s.dev.rows, s.dev.length)
	if err := s.dev.execute(st); err != nil {
		s.startOver(err)
		return
	}
	s.stats.steps.Add(1)
	s.stats.rows.Add(int64(st.n))
	for i, sl := range fed {
		sl.cached = append(sl.cached, feeds[i].tokens...)
		if len(sl.cached) < len(sl.job.context) {
			s.stats.prefilled.Add(int64(len(feeds[i].tokens)))
			continue
		}
		s.stats.prefilled.Add(int64(len(feeds[i].tokens) - 1))
		s.stats.generated.Add(1)
		s.appendSampled(sl, st.sampled[feeds[i].last], st.logprobs[feeds[i].last])
	}
}

// plan chooses what the next step feeds: one token of each job, then as many more of
// the contexts as fit. Where there are more jobs than rows in a step, jobs take turns.
func (s *shard) plan() (feeds []feed, fed []*slot) {
	largest := s.shapes[len(s.shapes)-1]
	free := largest.n
	for i := range s.slots.all {
		sl := s.slots.all[(s.first+i)%len(s.slots.all)]
		if sl.job == nil {
			continue
		}
		if free == 0 {
			s.first = (s.first + i) % len(s.slots.all)
			break
		}
		free--
		fed = append(fed, sl)
	}
	for _, sl := range fed {
		j, at := sl.job, len(sl.cached)
		n := min(len(j.context)-at, largest.chunk, free+1)
		free -= n - 1
		feeds = append(feeds, feed{
			row: sl.row, tokens: j.context[at : at+n], position: at,
			uniform: rl.Uniform(j.req.Seed, len(j.context)), scale: j.scale, greedy: j.greedy,
		})
	}
	return feeds, fed
}

// buffers returns the step of a shape.
func (s *shard) buffers(sh shape) *step {
	st, ok := s.steps[sh]
	if !ok {
		st = newStep(sh.n, sh.chunk, s.dev.rows)
		s.steps[sh] = st
	}
	return st
}

// appendSampled appends a token to the job of a slot, and ends a job that is complete.
func (s *shard) appendSampled(sl *slot, token int32, logprob float32) {
	j := sl.job
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
	s.finish(sl, answer{gen: gen})
}

// finish ends the job of a slot.
func (s *shard) finish(sl *slot, a answer) {
	s.answerJob(sl.job, a)
	s.slots.finish(sl)
}

// answerJob ends a job.
func (s *shard) answerJob(j *job, a answer) {
	s.stats.queued.Add(-1)
	j.done <- a
}

// startOver fails the running jobs after an error of the device and empties the
// caches.
func (s *shard) startOver(err error) {
	for _, sl := range s.slots.all {
		if sl.job != nil {
			s.finish(sl, answer{err: err})
		}
	}
	s.slots.invalidate()
	s.dev.reset()
}

// endAll answers every job and a pending swap with err.
func (s *shard) endAll(err error) {
	for _, sl := range s.slots.all {
		if sl.job != nil {
			s.finish(sl, answer{err: err})
		}
	}
	if s.swap != nil {
		s.swap.done <- err
	}
	for {
		select {
		case j := <-s.jobs:
			s.waiting = append(s.waiting, j)
			continue
		default:
		}
		break
	}
	for _, j := range s.waiting {
		s.answerJob(j, answer{err: err})
	}
}

// publishStats copies the slot table's figures for Stats.
func (s *shard) publishStats() {
	active, idle := s.slots.count()
	s.stats.active.Store(int64(active))
	s.stats.idle.Store(int64(idle))
	s.stats.evictions.Store(s.slots.evictions)
	cached := 0
	for _, sl := range s.slots.all {
		if sl.job != nil || sl.session != "" {
			cached += len(sl.cached)
		}
	}
	s.stats.cached.Store(int64(cached))
}

// errClosed answers requests to a closed engine.
var errClosed = errors.New("policy engine is closed")
