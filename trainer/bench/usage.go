package bench

import (
	"slices"
	"syscall"
	"time"
)

// usage is what the process has used so far.
type usage struct {
	wall time.Time
	cpu  time.Duration
}

// now reads the clocks. Processor time is that of all threads, the collector's too.
func now() usage {
	u := usage{wall: time.Now()}
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err == nil { // fails for a bad address only
		u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return u
}

// peakRSS is the largest resident memory of the process so far in bytes.
func peakRSS() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return r.Maxrss << 10 // Linux counts in KiB
}

// Cost is what a piece of work takes.
type Cost struct {
	Wall time.Duration `json:"wall_ns"`
	CPU  time.Duration `json:"cpu_ns"`
}

// since is the cost of each of n equal pieces since u.
func (u usage) since(n int) Cost {
	v := now()
	return Cost{Wall: v.wall.Sub(u.wall) / time.Duration(n), CPU: (v.cpu - u.cpu) / time.Duration(n)}
}

// median of the wall times and, apart from them, of the processor times: on a
// shared machine the two need not have the same middle.
func median(costs []Cost) Cost {
	walls, cpus := make([]time.Duration, len(costs)), make([]time.Duration, len(costs))
	for i, c := range costs {
		walls[i], cpus[i] = c.Wall, c.CPU
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	return Cost{Wall: walls[len(walls)/2], CPU: cpus[len(cpus)/2]}
}

// rate is n per duration, 0 for no time.
func rate(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}
