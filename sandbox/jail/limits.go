package jail

import (
	"time"

	"temper/sandbox"
)

// LeastMemory is the smallest memory limit, in bytes. The kernel rounds the memory of a
// program to pages and arenas, so a smaller limit would have no effect or keep the program
// from starting.
const LeastMemory = 4 << 20

// defaultLimits returns the limits of calls that state none.
func defaultLimits() sandbox.Limits {
	return sandbox.Limits{Wall: 10 * time.Second, CPU: 5 * time.Second, Memory: 1 << 30, Output: 64 << 10}
}

// Most returns the largest limits that a call may state.
func Most() sandbox.Limits {
	return sandbox.Limits{Wall: 5 * time.Minute, CPU: 5 * time.Minute, Memory: 8 << 30, Output: 16 << 20}
}
