package engine

import "slices"

// sequence is a context with its keys and values: of a running job, or of an idle session.
type sequence struct {
	session string
	job     *job // nil when idle
	blocks  []*block
	// cached is the number of leading tokens whose keys and values are present.
	cached int
	// tokens are the cached tokens of an idle sequence.
	tokens []int32
	// source is a block of another context that begins with the same sourced tokens as a block
	// of this one: they are copied when they are present.
	source   *block
	sourced  int
	sourceOf int    // index of the block that is filled from source
	used     uint64 // orders idle sequences by the time they became idle
}

// sequences gives blocks to jobs. Idle sessions keep their blocks while the device is busy
// without them.
//
// Invariant: a session has at most one sequence.
type sequences struct {
	pool      *pool
	slots     int         // most running sequences
	tight     bool        // that many sequences may need more blocks than there are
	running   []*sequence // by age of their jobs
	sessions  map[string]*sequence
	forgotten func(session string) // called with each session that lost all of its blocks
	clock     uint64
	evictions int64
	preempted int64
}

// evictBelow is the number of running jobs from which a new job waits instead of taking the
// blocks of idle sessions. Steps are well filled then, and the tool of an idle session
// probably answers sooner than its tokens could be fed again.
const evictBelow = 16

// newSequences divides blocks among at most slots running sequences of at most length tokens.
func newSequences(slots, blocks, tokens int) *sequences {
	return &sequences{pool: newPool(blocks), slots: slots, tight: blocks < slots*blocksOf(tokens), sessions: map[string]*sequence{}, forgotten: func(string) {}}
}

// blocksOf returns the number of blocks for n tokens.
func blocksOf(n int) int { return (n + blockTokens - 1) / blockTokens }

// own returns the idle sequence of a job's session, nil for none.
func (s *sequences) own(j *job) *sequence {
	if q := s.sessions[j.req.Session]; q != nil && q.job == nil {
		return q
	}
	return nil
}

// begin runs a job in the sequence of its session, or in a new one that shares blocks with
// equal contexts. It returns nil when the job must wait.
func (s *sequences) begin(j *job) *sequence {
	if len(s.running) >= s.slots {
		return nil
	}
	if q := s.own(j); q != nil {
		q.job = j
		s.keepCommonPast(q)
		if !s.reserve(q, blocksOf(len(j.context))-len(q.blocks)) {
			s.rest(q)
			return nil
		}
		s.run(q)
		return q
	}
	q := &sequence{job: j}
	s.share(q)
	need := blocksOf(len(j.context)) - len(q.blocks)
	if s.tight { // the running sequences will soon need more blocks
		need += (len(s.running) + 7) / 8
	}
	if s.pool.available() < need && len(s.running) >= evictBelow || !s.reserve(q, need) {
		s.dropBlocks(q, 0)
		return nil
	}
	if s.sessions[j.req.Session] == nil && j.req.Session != "" { // a second concurrent request of a session gets no session
		q.session = j.req.Session
		s.sessions[q.session] = q
	}
	s.run(q)
	return q
}

// run adds a sequence to the running ones. It gets blocks for its whole context.
func (s *sequences) run(q *sequence) {
	for i := len(q.blocks); i < blocksOf(len(q.job.context)); i++ {
		s.append(q)
	}
	i := len(s.running)
	s.running = append(s.running, q)
	for ; i > 0 && s.running[i-1].job.age > q.job.age; i-- {
		s.running[i-1], s.running[i] = q, s.running[i-1]
	}
}

// append gives a sequence one more block, for present or future tokens.
func (s *sequences) append(q *sequence) {
	parent, first := uint64(0), len(q.blocks)*blockTokens
	if len(q.blocks) > 0 {
		parent = q.blocks[len(q.blocks)-1].serial
	}
	b := s.pool.take(parent, q)
	s.pool.write(b, q.job.context[min(first, len(q.job.context)):])
	q.blocks = append(q.blocks, b)
}

// keepCommonPast keeps the part of an idle sequence with which its new job's context begins.
// The last token of the context is always fed again, since its logits are needed.
func (s *sequences) keepCommonPast(q *sequence) {
	context := q.job.context
	n, limit := 0, min(q.cached, len(context)-1)
	for n < limit && q.tokens[n] == context[n] {
		n++
	}
	if last := n / blockTokens; last < len(q.blocks) && n%blockTokens > 0 {
		if b := q.blocks[last]; b.refs > 1 { // other sequences read this block, or wait for it
			n = last * blockTokens
		} else {
			s.pool.rewind(b, n%blockTokens)
			s.pool.write(b, context[n:])
			b.owner = q
		}
	}
	q.cached = n
	s.dropBlocks(q, blocksOf(n))
}

// share gives a new sequence the blocks of the beginning of its context, full or being filled
// by other sequences. The first block that was begun after them may begin with the right
// tokens.
func (s *sequences) share(q *sequence) {
	context, parent := q.job.context, uint64(0)
	limit := len(context) - 1 // the last token is always fed
	for at := 0; at+blockTokens <= limit; at += blockTokens {
		b := s.pool.full[content{parent, [blockTokens]int32(context[at:])}]
		if b == nil {
			break
		}
		s.pool.hold(b)
		q.blocks, parent = append(q.blocks, b), b.serial
	}
	b, at, n := s.pool.begun[parent], len(q.blocks)*blockTokens, 0
	if b == nil || blocksOf(len(context)) == len(s.pool.blocks) {
		return // a context that fills the device also needs the block of the copy's source
	}
	for known := b.known(); n < known && at+n < limit && b.tokens[n] == context[at+n]; {
		n++
	}
	if n > 0 {
		s.pool.hold(b)
		q.source, q.sourced, q.sourceOf = b, n, len(q.blocks)
	}
}

// reserve makes n blocks available, if necessary by taking the blocks of the sessions that
// have been idle longest. q keeps its blocks.
func (s *sequences) reserve(q *sequence, n int) bool {
	for s.pool.available() < n {
		oldest := s.oldestIdle(q)
		if oldest == nil {
			return false
		}
		s.evictions++
		s.forget(oldest)
	}
	return true
}

// oldestIdle returns the sequence that has been idle longest, except q.
func (s *sequences) oldestIdle(q *sequence) (oldest *sequence) {
	for _, idle := range s.sessions {
		if idle.job == nil && idle != q && (oldest == nil || idle.used < oldest.used) {
			oldest = idle
		}
	}
	return oldest
}

// forget drops an idle sequence.
func (s *sequences) forget(q *sequence) {
	s.dropBlocks(q, 0)
	delete(s.sessions, q.session)
	s.forgotten(q.session)
}

// grow gives every running job blocks for its whole context. When there are too few, the
// youngest job gives up its blocks and is returned: it starts again from its tokens.
func (s *sequences) grow() (preempted []*job) {
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		for q.job != nil && len(q.blocks) < blocksOf(len(q.job.context)) {
			if s.reserve(q, 1) {
				s.append(q)
				continue
			}
			preempted = append(preempted, s.preempt(s.running[len(s.running)-1]))
		}
	}
	return preempted
}

// preempt takes all blocks from a running sequence.
func (s *sequences) preempt(q *sequence) *job {
	j := q.job
	s.preempted++
	s.stop(q)
	s.dropBlocks(q, 0)
	if q.session != "" {
		delete(s.sessions, q.session)
	}
	return j
}

// finish makes a sequence idle. It stays with its session.
func (s *sequences) finish(q *sequence) {
	q.tokens = append(q.tokens[:0], q.job.context[:q.cached]...)
	s.stop(q)
	if q.session == "" {
		s.dropBlocks(q, 0)
		return
	}
	s.dropBlocks(q, blocksOf(q.cached))
	s.clock++
	q.used = s.clock
}

// stop removes a sequence from the running ones.
func (s *sequences) stop(q *sequence) {
	i := slices.Index(s.running, q)
	s.running = slices.Delete(s.running, i, i+1)
	s.dropSource(q)
	s.rest(q)
}

// rest detaches a sequence from its job.
func (s *sequences) rest(q *sequence) {
	for _, b := range q.blocks {
		if b.owner == q {
			b.owner = nil
		}
	}
	q.job, q.tokens = nil, q.tokens[:min(q.cached, len(q.tokens))]
}

// dropBlocks drops all blocks but the first n, last ones first, so that those are reused
// first.
func (s *sequences) dropBlocks(q *sequence, n int) {
	s.dropSource(q)
	for i := len(q.blocks) - 1; i >= n; i-- {
		if q.blocks[i].owner == q {
			q.blocks[i].owner = nil
		}
		s.pool.drop(q.blocks[i])
	}
	q.blocks = q.blocks[:min(n, len(q.blocks))]
	q.cached = min(q.cached, n*blockTokens)
}

func (s *sequences) dropSource(q *sequence) {
	if q.source != nil {
		s.pool.drop(q.source)
		q.source, q.sourced = nil, 0
	}
}

// release forgets a session. A running generation keeps its blocks until it ends.
func (s *sequences) release(session string) {
	q := s.sessions[session]
	if q == nil {
		return
	}
	delete(s.sessions, session)
	q.session = ""
	if q.job == nil {
		s.dropBlocks(q, 0)
	}
}

// invalidate forgets all sessions and all content. No job may be running.
func (s *sequences) invalidate() {
	for _, q := range s.sessions {
		s.forget(q)
	}
	s.pool.clear()
}

// idleBlocks returns the number of blocks that idle sequences hold.
func (s *sequences) idleBlocks() int {
	n := 0
	for _, q := range s.sessions {
		if q.job == nil {
			n += len(q.blocks)
		}
	}
	return min(n, s.pool.held())
}

// catchUp moves a running sequence past the tokens that other sequences have fed, and reports
// whether it has to feed its next token itself. It adds the copies to make before the next pass.
func (s *sequences) catchUp(q *sequence, copies []blockCopy) ([]blockCopy, bool) {
	for {
		b, at := q.blocks[q.cached/blockTokens], q.cached%blockTokens
		switch {
		case b.filled > at:
			q.cached += b.filled - at
		case b.owner == q && (q.source == nil || q.sourceOf != q.cached/blockTokens):
			return copies, true
		case b.owner == q:
			from := q.source
			if from.filled < q.sourced && from.owner != nil {
				return copies, false
			}
			n := min(from.filled, q.sourced)
			if n > 0 {
				copies = append(copies, blockCopy{from.id, b.id, n})
			}
			b.filled = n
			s.dropSource(q) // the block keeps its content until the copies are made
		case b.owner != nil:
			return copies, false
		default: // its owner has ended
			b.owner = q
		}
	}
}

// claim makes a sequence the owner of the blocks of its next n tokens, or of fewer where other
// sequences own them, and returns the number of tokens that it may feed.
func (q *sequence) claim(n int) int {
	for i := q.cached/blockTokens + 1; i*blockTokens < q.cached+n; i++ {
		b := q.blocks[i]
		if b.owner != nil && b.owner != q || b.filled > 0 || q.source != nil && q.sourceOf == i {
			return i*blockTokens - q.cached
		}
		b.owner = q
	}
	return n
}

// advance records that the keys and values of a sequence's next tokens are present.
func (q *sequence) advance(p *pool, tokens []int32) {
	for _, token := range tokens {
		b := q.blocks[q.cached/blockTokens]
		if b.filled == b.written {
			p.write(b, []int32{token})
		}
		b.filled++
		q.cached++
		if b.filled == blockTokens {
			b.owner = nil
		}
	}
}
