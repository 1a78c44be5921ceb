package graphcache

import (
	"sync"
	"time"
)

// Counts are the compilations of the plugins of this process.
type Counts struct {
	// Programs counts different programs. A program that is compiled again counts once.
	Programs int
	// Compiled and Loaded count the calls that the compiler answered, and those that the store
	// answered.
	Compiled, Loaded int
	// Refused counts entries that were compiled again.
	Refused int
	// Compiling and Loading are the total times of compiling and loading; concurrent calls
	// add up.
	Compiling, Loading time.Duration
}

// counter counts for all plugins of the process.
type counter struct {
	mu   sync.Mutex
	sum  Counts
	seen map[Key]bool
}

// counts is global, as the plugins are: go-xla loads each once.
var counts = counter{seen: map[Key]bool{}} //nolint:gochecknoglobals // see above

// Now returns the counts since the start.
func Now() Counts {
	counts.mu.Lock()
	defer counts.mu.Unlock()
	return counts.sum
}

// Since returns the counts after earlier. Programs stays the total.
func (c Counts) Since(earlier Counts) Counts {
	c.Compiled -= earlier.Compiled
	c.Loaded -= earlier.Loaded
	c.Refused -= earlier.Refused
	c.Compiling -= earlier.Compiling
	c.Loading -= earlier.Loading
	return c
}

func (c *counter) add(k Key, change func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen[k] {
		c.seen[k] = true
		c.sum.Programs++
	}
	change(&c.sum)
}
