package tokenizer

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"
)

// mergeTable maps pairs to ranks. It is a hash table with open addressing that is at
// most half full. Lower ranks merge first.
type mergeTable struct {
	slots []mergeSlot
	// ids holds the result of the merge of each rank.
	ids []int32
}

type mergeSlot struct {
	pair
	rank int32 // the rank plus one, 0 for an empty slot
}

// newMergeTable returns a table with room for n merges.
func newMergeTable(n int) mergeTable {
	size := 16
	for size < 2*n+2 {
		size *= 2
	}
	return mergeTable{slots: make([]mergeSlot, size), ids: make([]int32, 0, n)}
}

// hashFactor spreads pairs over the table: 2^64 divided by the golden ratio.
const hashFactor = 0x9e3779b97f4a7c15

// find returns the slot of p, or the empty one where it belongs.
func (m *mergeTable) find(p pair) *mergeSlot {
	h := (uint64(uint32(p.left))<<32 | uint64(uint32(p.right))) * hashFactor
	mask := uint64(len(m.slots) - 1)
	for i := (h ^ h>>32) & mask; ; i = (i + 1) & mask {
		s := &m.slots[i]
		if s.rank == 0 || s.pair == p {
			return s
		}
	}
}

// rank returns the rank of a pair, noMerge if it has none.
func (m *mergeTable) rank(left, right int32) int32 {
	if s := m.find(pair{left, right}); s.rank != 0 {
		return s.rank - 1
	}
	return noMerge
}

// product returns the token that the merge of a rank makes.
func (m *mergeTable) product(rank int32) int32 { return m.ids[rank] }

// add gives p the next rank. p must have none yet.
func (m *mergeTable) add(p pair, id int32) {
	if 2*len(m.ids)+2 > len(m.slots) {
		bigger := mergeTable{slots: make([]mergeSlot, 2*len(m.slots))}
		for _, s := range m.slots {
			if s.rank != 0 {
				*bigger.find(s.pair) = s
			}
		}
		m.slots = bigger.slots
	}
	m.ids = append(m.ids, id)
	*m.find(p) = mergeSlot{p, int32(len(m.ids))}
}

const (
	// numCached bounds the pieces that are remembered, and maxCached their bytes.
	numCached = 1 << 14
	maxCached = 32
)

// cache remembers the ids of pieces. Each piece has one slot, which holds the last
// piece put there. It needs no lock because an entry never changes.
type cache struct {
	seed    maphash.Seed
	entries []atomic.Pointer[entry]
}

type entry struct {
	piece string
	ids   []int32
}

func newCache() *cache {
	return &cache{seed: maphash.MakeSeed(), entries: make([]atomic.Pointer[entry], numCached)}
}

func newEntry(piece string, ids []int32) *entry {
	return &entry{strings.Clone(piece), slices.Clone(ids)}
}

func (c *cache) slot(piece string) *atomic.Pointer[entry] {
	return &c.entries[maphash.String(c.seed, piece)%numCached]
}
