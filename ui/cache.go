package ui

import "sync"

// cacheBytes bounds the cache of steps that have ended.
const cacheBytes = 128 << 20

// cache holds values that never change, the most recently used ones. Sizes are estimates.
type cache struct {
	mu    sync.Mutex
	most  int
	used  int
	clock int
	items map[string]*cached
}

type cached struct {
	value any
	size  int
	last  int
}

func newCache(most int) *cache { return &cache{most: most, items: map[string]*cached{}} }

func (c *cache) get(key string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, ok := c.items[key]
	if !ok {
		return nil, false
	}
	c.clock++
	item.last = c.clock
	return item.value, true
}

func (c *cache) put(key string, value any, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.items[key]; ok {
		c.used -= old.size
	}
	if size > c.most {
		delete(c.items, key)
		return
	}
	c.clock++
	c.items[key] = &cached{value, size, c.clock}
	c.used += size
	for c.used > c.most {
		oldest := ""
		for k, item := range c.items {
			if oldest == "" || item.last < c.items[oldest].last {
				oldest = k
			}
		}
		c.used -= c.items[oldest].size
		delete(c.items, oldest)
	}
}
