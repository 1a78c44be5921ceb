package jail

import (
	"time"

	"temper/sandbox"
)

// LeastMemory is the least limit of memory, in bytes. What a program has beyond the
// interpreter is rounded up to pages and arenas: a limit below this one would hold
// nothing back, or keep a program from starting.
const LeastMemory = 4 << 20

// defaultLimits are those of calls that state none.
func defaultLimits() sandbox.Limits {
	return sandbox.Limits{Wall: 10 * time.Second, CPU: 5 * time.Second, Memory: 1 << 30, Output: 64 << 10}
}

// Most returns the largest limits that a call may state.
func Most() sandbox.Limits {
	return sandbox.Limits{Wall: 5 * time.Minute, CPU: 5 * time.Minute, Memory: 8 << 30, Output: 16 << 20}
}
