package sandboxbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
	kept "temper/sandbox/session"
	"temper/tools/bench/meter"
)

// DensityConfig says how MeasureDensity measures. Zero fields take the stated defaults.
type DensityConfig struct {
	Python   string
	Code     string // the first cell of each session: a function, a list, a print
	Profile  sandbox.Profile
	Kernels  int // that live at once; 500
	Callers  int // that make cells at a time; 1
	Branches int // of the first session, timed one by one; 100
	// Filled, when not nil, is called when all kernels live, and Measured when all is
	// measured: a node of several waits there for the others.
	Filled, Measured func(kernels int) error
}

// Density is what many idle kernels cost, and how long cells take beside them.
type Density struct {
	Kernels int `json:"kernels"`
	// Group is what the cgroup of all interpreters grew by, for each kernel: pages, page
	// tables, stacks, namespaces. 0 without a cgroup.
	Group int64 `json:"cgroup_bytes"`
	// Machine is how much less memory was available in all, with descriptors and buffers of
	// the owner, and with whatever else the machine did meanwhile.
	Machine int64 `json:"machine_bytes"`
	// Pages is the memory of the process itself, shared pages divided among those who share
	// them (PSS), and Private the part that nobody shares: medians of a sample.
	Pages   int64 `json:"pss_bytes"`
	Private int64 `json:"private_bytes"`
	Tables  int64 `json:"page_table_bytes"`
	// Owner is the growth of this process.
	Owner       int64   `json:"owner_bytes"`
	Goroutines  float64 `json:"owner_goroutines"`
	Descriptors float64 `json:"owner_descriptors"`

	First    Times `json:"first_cell"` // with the start of the kernel
	Next     Times `json:"next_cell"`  // in a kernel that was idle
	Branch   Times `json:"branch"`     // the first cell of a branch, its kernel included
	Replay   Times `json:"replay"`     // the same with the parent's history, and no parent
	Call     Times `json:"call"`       // a call without a session, for comparison
	Branched int64 `json:"branched"`   // kernels that were copied, not rebuilt
	Total    int64 `json:"for_ten_thousand_bytes"`
}

// Times are the wall times of cells. On a busy machine the 10th percentile is near what a
// free core gives.
type Times struct {
	P10 time.Duration `json:"p10_ns"`
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

func timesOf(all []time.Duration) Times {
	if len(all) == 0 {
		return Times{}
	}
	slices.Sort(all)
	return Times{P10: all[len(all)/10], P50: all[len(all)/2], P99: all[len(all)*99/100]}
}

func (c DensityConfig) withDefaults() DensityConfig {
	if c.Code == "" {
		c.Code = "def double(n): return n * 2\nxs = [double(i) for i in range(100)]\nprint(sum(xs))"
	}
	if c.Kernels == 0 {
		c.Kernels = 500
	}
	if c.Callers == 0 {
		c.Callers = 1
	}
	if c.Branches == 0 {
		c.Branches = 100
	}
	return c
}

// MeasureDensity starts kernels with one cell each, lets them wait, and says what one of
// them costs. It stops early, with an error, when the machine would have less than 2 GiB.
func MeasureDensity(ctx context.Context, cfg DensityConfig) (d Density, err error) {
	cfg = cfg.withDefaults()
	host, err := newSleepers(ctx, cfg)
	if err != nil {
		return Density{}, err
	}
	defer func() { err = errors.Join(err, host.close()) }() //nolint:contextcheck // it ends also what a cancelled measurement has started
	if _, err := host.cell(ctx, "warm", ""); err != nil {
		return Density{}, err
	}
	before := reading()
	first, err := host.fill(ctx)
	d.First = timesOf(first)
	if err != nil {
		return d, err
	}
	runtime.GC()
	d.Kernels = host.sessions.Stats().Kernels
	after := reading()
	n := int64(cfg.Kernels)
	d.Machine, d.Owner = (before.available-after.available)/n, (after.resident-before.resident)/n
	d.Goroutines = float64(after.goroutines-before.goroutines) / float64(n)
	d.Descriptors = float64(after.descriptors-before.descriptors) / float64(n)
	d.Group = (after.group - before.group) / n
	d.Total = 10_000 * (max(d.Group, d.Machine) + d.Owner)
	host.sample(&d)
	if cfg.Filled != nil {
		if err := cfg.Filled(d.Kernels); err != nil {
			return d, err
		}
	}
	if err := host.time(ctx, &d); err != nil {
		return d, err
	}
	d.Branched = host.sessions.Stats().Branches
	d.Kernels = host.sessions.Stats().Kernels
	if cfg.Measured != nil {
		return d, cfg.Measured(d.Kernels)
	}
	return d, nil
}

// sleepers is a node without its transport, whose kernels wait.
type sleepers struct {
	cfg      DensityConfig
	jail     *jail.Jail
	pool     *pool.Pool
	sessions *kept.Manager
}

func newSleepers(ctx context.Context, cfg DensityConfig) (*sleepers, error) {
	most := cfg.Kernels + 2*cfg.Branches + 8
	j, err := jail.New(ctx, jail.Config{Python: cfg.Python, Children: most + 64})
	if err != nil {
		return nil, err
	}
	p, err := pool.New(ctx, pool.Config{}, pool.FromJail(j))
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	m := kept.New(p, kept.OnPool(p), kept.Config{MaxKernels: most, Idle: time.Hour})
	return &sleepers{cfg, j, p, m}, nil
}

func (c *sleepers) close() error {
	ctx := context.Background()
	return errors.Join(c.sessions.Close(ctx), c.pool.Close(ctx), c.jail.Close())
}

// cell runs the cell of cfg in a session and returns how long that took.
func (c *sleepers) cell(ctx context.Context, name, parent string) (time.Duration, error) {
	begun := time.Now()
	res, err := c.sessions.Execute(ctx, sandbox.Request{Session: name, BranchOf: parent, Code: c.cfg.Code, Profile: c.cfg.Profile})
	took := time.Since(begun)
	if err == nil && res.Status != sandbox.StatusOK {
		err = fmt.Errorf("a cell ended with %s: %s%s", res.Status, res.Reason, res.Stderr)
	}
	return took, err
}

// reserve is what the machine keeps for others.
const reserve = 2 << 30

// fill starts the kernels and returns the times of their first cells.
func (c *sleepers) fill(ctx context.Context) ([]time.Duration, error) {
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	var callers sync.WaitGroup
	for caller := range c.cfg.Callers {
		callers.Go(func() {
			for i := caller; i < c.cfg.Kernels; i += c.cfg.Callers {
				took, err := c.cell(ctx, fmt.Sprint("s", i), "")
				if i%64 == 0 && meter.StatusBytes("/proc/meminfo", "MemAvailable") < reserve {
					err = errors.Join(err, fmt.Errorf("the machine has less than 2 GiB left after %d kernels", i))
				}
				mu.Lock()
				times, failed = append(times, took), errors.Join(failed, err)
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	callers.Wait()
	return times, failed
}

// time measures cells beside the idle kernels.
func (c *sleepers) time(ctx context.Context, d *Density) error {
	var call, next, branch, replay []time.Duration
	for i := range c.cfg.Branches {
		for _, way := range []struct {
			times        *[]time.Duration
			name, parent string
			history      []string
		}{
			{&call, "", "", nil},
			{&next, fmt.Sprint("s", i%c.cfg.Kernels), "", nil},
			{&branch, fmt.Sprint("branch", i), "warm", nil},
			{&replay, fmt.Sprint("replay", i), "", []string{c.cfg.Code}},
		} {
			begun := time.Now()
			res, err := c.sessions.Execute(ctx, sandbox.Request{
				Session: way.name, BranchOf: way.parent, History: way.history, Code: "1+1", Profile: c.cfg.Profile,
			})
			*way.times = append(*way.times, time.Since(begun))
			if err != nil || res.Value != "2" {
				return fmt.Errorf("cell of %s: %+v: %w", way.name, res, err)
			}
			if way.times == &branch || way.times == &replay {
				c.sessions.Drop("", way.name)
			}
		}
	}
	d.Call, d.Next, d.Branch, d.Replay = timesOf(call), timesOf(next), timesOf(branch), timesOf(replay)
	return nil
}

// counts is a reading of this process and of the machine.
type counts struct {
	available, resident     int64
	group                   int64
	goroutines, descriptors int
}

func reading() counts {
	own, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		own = nil // unknown, which shows as 0
	}
	return counts{
		available: meter.StatusBytes("/proc/meminfo", "MemAvailable"), resident: meter.StatusBytes("/proc/self/status", "VmRSS"),
		goroutines: runtime.NumGoroutine(), descriptors: len(own), group: groupMemory(),
	}
}

// groupMemory is what the kernel counts for the cgroup of the interpreters that this process
// has started; 0 where there is none.
func groupMemory() int64 {
	for _, child := range meter.Tree(meter.Processes(), os.Getpid())[1:] {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", child.PID))
		if err != nil {
			continue // it has ended
		}
		for _, line := range strings.Fields(string(text)) {
			if n := memoryOf(line); n > 0 {
				return n
			}
		}
	}
	return 0
}

// memoryOf reads what the kernel counts for a cgroup of ours, by its line in /proc/PID/cgroup.
func memoryOf(line string) int64 {
	parts := strings.SplitN(line, ":", 3)
	if len(parts) < 3 || !strings.Contains(parts[2], "temper-") {
		return 0
	}
	for _, path := range []string{"/sys/fs/cgroup/memory" + parts[2] + "/memory.usage_in_bytes", "/sys/fs/cgroup" + parts[2] + "/memory.current"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the other version
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			return n
		}
	}
	return 0
}

// sampled is how many kernels are read: the reading of one walks all its pages.
const sampled = 50

// sample reads the memory of some kernels.
func (c *sleepers) sample(d *Density) {
	var pages, private, tables []int
	for _, zygote := range meter.Tree(meter.Processes(), os.Getpid())[1:] {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", zygote.PID, zygote.PID))
		if err != nil {
			continue // a kernel, which has none, or has ended
		}
		for _, pid := range strings.Fields(string(text)) {
			if len(pages) == sampled {
				break
			}
			rollup := "/proc/" + pid + "/smaps_rollup"
			pages = append(pages, int(meter.StatusBytes(rollup, "Pss")))
			private = append(private, int(meter.StatusBytes(rollup, "Private_Dirty")+meter.StatusBytes(rollup, "Private_Clean")))
			tables = append(tables, int(meter.StatusBytes("/proc/"+pid+"/status", "VmPTE")))
		}
	}
	d.Pages, d.Private, d.Tables = int64(meter.Median(pages)), int64(meter.Median(private)), int64(meter.Median(tables))
}
