package engine

import "temper/trainer/model/graphs"

// blockTokens is the number of tokens in a block.
const blockTokens = graphs.BlockTokens

// block holds the keys and values of up to blockTokens consecutive tokens of a context.
type block struct {
	id   int32
	refs int // number of sequences that hold it
	// serial identifies the context from its start to the end of this block, and parent the
	// context before it; 0 is the start.
	serial, parent uint64
	tokens         [blockTokens]int32
	written        int // number of tokens that its owner has fed or is about to feed
	filled         int // number of tokens whose keys and values are present
	// owner is the running sequence that computes the rest, nil for none.
	owner *sequence
	named bool // the pool finds the block by its content

	older, newer *block // in the list of unheld blocks
}

// content is the key under which the pool finds a full block. Blocks of equal content follow
// equal contexts, since a parent's serial belongs to one content. Keys are compared token by
// token, so no collision of hashes can mix contexts.
type content struct {
	parent uint64
	tokens [blockTokens]int32
}

// pool allocates the blocks of a device. An unheld block keeps its content until another
// sequence needs the block, the least recently held one first.
//
// Invariant: a block is either held, or kept for its content, or free.
type pool struct {
	blocks []block
	free   []*block
	kept   struct {
		oldest, newest *block
		n              int
	}
	full map[content]*block
	// begun maps each serial to the first block that was begun after it, whose content may be
	// incomplete.
	begun   map[uint64]*block
	serials uint64
}

// newPool makes n free blocks.
func newPool(n int) *pool {
	p := &pool{blocks: make([]block, n)}
	for i := range p.blocks {
		p.blocks[i].id = int32(i)
	}
	p.clear()
	return p
}

// clear forgets all content. No sequence may hold a block.
func (p *pool) clear() {
	p.full, p.begun = map[content]*block{}, map[uint64]*block{}
	p.free, p.kept.oldest, p.kept.newest, p.kept.n = p.free[:0], nil, nil, 0
	for i := len(p.blocks) - 1; i >= 0; i-- { // so that the first block is taken first
		p.blocks[i] = block{id: int32(i)}
		p.free = append(p.free, &p.blocks[i])
	}
}

// available returns the number of blocks that take can allocate.
func (p *pool) available() int { return len(p.free) + p.kept.n }

// held returns the number of blocks that sequences hold.
func (p *pool) held() int { return len(p.blocks) - p.available() }

// take allocates a block for the tokens after parent; available must not be 0.
func (p *pool) take(parent uint64, owner *sequence) *block {
	var b *block
	if n := len(p.free); n > 0 {
		b, p.free = p.free[n-1], p.free[:n-1]
	} else {
		b = p.kept.oldest
		p.unkeep(b)
		p.forget(b)
	}
	p.serials++
	*b = block{id: b.id, refs: 1, serial: p.serials, parent: parent, owner: owner}
	if p.begun[parent] == nil {
		p.begun[parent] = b
	}
	return b
}

// hold adds a holder to a block.
func (p *pool) hold(b *block) {
	if b.refs == 0 {
		p.unkeep(b)
	}
	b.refs++
}

// drop removes a holder from a block.
func (p *pool) drop(b *block) {
	if b.refs--; b.refs > 0 {
		return
	}
	b.owner = nil
	if b.filled < blockTokens {
		p.unname(b)
	}
	if !b.named && (p.begun[b.parent] != b || b.filled == 0) {
		p.forget(b)
		p.free = append(p.free, b)
		return
	}
	b.older, b.newer = p.kept.newest, nil
	if b.older != nil {
		b.older.newer = b
	} else {
		p.kept.oldest = b
	}
	p.kept.newest = b
	p.kept.n++
}

// unkeep removes a block from the list of unheld blocks.
func (p *pool) unkeep(b *block) {
	if b.older != nil {
		b.older.newer = b.newer
	} else {
		p.kept.oldest = b.newer
	}
	if b.newer != nil {
		b.newer.older = b.older
	} else {
		p.kept.newest = b.older
	}
	b.older, b.newer = nil, nil
	p.kept.n--
}

// known returns the number of tokens of a block on which other sequences may rely.
func (b *block) known() int {
	if b.owner == nil {
		return b.filled
	}
	return b.written
}

// write records the next tokens of a block. When all are known, the pool finds the block by
// them: other sequences with the same context wait until it is filled.
func (p *pool) write(b *block, next []int32) {
	b.written += copy(b.tokens[b.written:], next)
	if b.written < blockTokens {
		return
	}
	if key := (content{b.parent, b.tokens}); p.full[key] == nil {
		p.full[key], b.named = b, true
	}
}

func (p *pool) unname(b *block) {
	if b.named {
		delete(p.full, content{b.parent, b.tokens})
		b.named = false
	}
}

// forget removes the content of a block from the pool's index.
func (p *pool) forget(b *block) {
	p.unname(b)
	if p.begun[b.parent] == b {
		delete(p.begun, b.parent)
	}
}

// rewind keeps the first n tokens of a block with one holder, which continues it differently.
func (p *pool) rewind(b *block, n int) {
	p.unname(b)
	p.serials++
	b.serial, b.written, b.filled = p.serials, n, n
}
