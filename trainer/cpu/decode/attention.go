//go:build goexperiment.simd && amd64

package decode

// Cache holds keys and values of the layers in blocks. Which sequence has which blocks is
// the caller's to know.
//
// A block holds keys by dimension, [K, E, BlockTokens], so that 16 scores are computed
// side by side, and values by token, [BlockTokens, K, E].
type Cache struct {
	keys, values [][]float32 // by layer
	block        int         // numbers in a block
}

// newCache makes an empty cache.
func newCache(layers, blocks, token int) *Cache {
	c := &Cache{block: BlockTokens * token}
	for range layers {
		c.keys, c.values = append(c.keys, make([]float32, blocks*c.block)), append(c.values, make([]float32, blocks*c.block))
	}
	return c
}

// write stores the key and value of a token.
func (c *Cache) write(layer int, t *Token, key, value []float32) {
	at, slot := int(t.Blocks[t.Position/BlockTokens])*c.block, t.Position%BlockTokens
	keys := c.keys[layer][at : at+c.block]
	for i, k := range key {
		keys[i*BlockTokens+slot] = k
	}
	copy(c.values[layer][at+slot*len(value):], value)
}

// Copy copies the first n tokens of a block to another one.
func (c *Cache) Copy(from, to, n int) {
	from, to = from*c.block, to*c.block
	for l := range c.keys {
		copy(c.values[l][to:], c.values[l][from:][:n*c.block/BlockTokens])
		for i := 0; i < c.block; i += BlockTokens {
			copy(c.keys[l][to+i:], c.keys[l][from+i:][:n])
		}
	}
}

// head is the answer of one head to a query: it reads keys and values of one kv head.
type head struct {
	query   []float32 // [E]
	kv      int       // offset of the kv head in a token's keys: its index times E
	weights []float32 // of the context's tokens, filled up to a block
}
