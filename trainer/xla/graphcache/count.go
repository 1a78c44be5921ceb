package graphcache

import (
	"sync"
	"time"
)

// Counts is what the plugins of this process have been given to compile so far.
type Counts struct {
	// Programs are those that differ. A program that is compiled again, after the one before
	// was dropped, is no new one.
	Programs int
	// Compiled and Loaded are calls: those that the compiler answered, and those that an
	// entry of the store did.
	Compiled, Loaded int
	// Refused entries were compiled again.
	Refused int
	// Compiling and Loading are the sums of the times of these calls. Calls side by side
	// count each.
	Compiling, Loading time.Duration
}

// counter counts for all plugins of the process.
type counter struct {
	mu   sync.Mutex
	sum  Counts
	seen map[Key]bool
}

// counts is of the process, as the plugins are: go-xla loads each once.
var counts = counter{seen: map[Key]bool{}} //nolint:gochecknoglobals // see above

// Now returns the counts so far.
func Now() Counts {
	counts.mu.Lock()
	defer counts.mu.Unlock()
	return counts.sum
}

// Since returns what was counted after earlier. Programs stays what it is.
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
