package meter

import (
	"syscall"
	"time"
)

// Usage is what this process has used so far.
type Usage struct {
	wall time.Time
	cpu  time.Duration
}

// Now reads the clocks.
func Now() Usage { return Usage{wall: time.Now(), cpu: OwnCPU()} }

// OwnCPU is the processor time of this process so far: of all its threads, the
// garbage collector's among them.
func OwnCPU() time.Duration { return cpuOf(usage(syscall.RUSAGE_SELF)) }

// ChildrenCPU is the processor time of the children that this process has waited
// for, with those that they have waited for.
func ChildrenCPU() time.Duration { return cpuOf(usage(syscall.RUSAGE_CHILDREN)) }

func cpuOf(r syscall.Rusage) time.Duration {
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func usage(who int) (r syscall.Rusage) {
	_ = syscall.Getrusage(who, &r) // cannot fail for a valid address
	return r
}

// PeakRSS is the largest resident memory of the process so far in bytes.
func PeakRSS() int64 { return usage(syscall.RUSAGE_SELF).Maxrss << 10 } // Linux counts in KiB

// Cost is what a piece of work takes.
type Cost struct {
	Wall time.Duration `json:"wall_ns"`
	CPU  time.Duration `json:"cpu_ns"`
}

// Since is the cost of each of n equal pieces of work since u.
func (u Usage) Since(n int) Cost {
	v := Now()
	return Cost{Wall: v.wall.Sub(u.wall) / time.Duration(n), CPU: (v.cpu - u.cpu) / time.Duration(n)}
}

// MedianCost has the median wall time and the median processor time. On a shared
// machine the two may come from different pieces of work.
func MedianCost(costs []Cost) Cost {
	return Cost{
		Wall: Median(Pick(costs, func(c Cost) time.Duration { return c.Wall })),
		CPU:  Median(Pick(costs, func(c Cost) time.Duration { return c.CPU })),
	}
}

// Rate is n per second of d, 0 for no time.
func Rate(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}
