// Package jail runs one Python program at a time in isolation: a warm
// interpreter (the zygote) forks a child for each call, and the child locks
// itself in before it runs a line of the program. The package owns the layers of
// that isolation and the life of one zygote; queues, restarts and retries belong
// to package pool. DESIGN.md says what each layer is for.
//
// Invariant: when Run returns, no process of the program is alive, or the
// zygote that held it is dead.
package jail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"temper/sandbox"
)

// ErrDied means that the zygote ended while it held the call.
var ErrDied = errors.New("sandbox interpreter died")

// DefaultPreload names the modules that every zygote imports before it forks.
func DefaultPreload() []string {
	return []string{
		"math", "random", "re", "json", "string", "itertools", "functools", "operator",
		"collections", "collections.abc", "heapq", "bisect", "datetime", "fractions",
		"time", "typing", "dataclasses", "base64", "traceback", "contextlib",
	}
}

// DefaultHeavy names the modules that only a heavy zygote imports. They make each fork
// slower, so programs that do not mention them run on a light zygote.
func DefaultHeavy() []string {
	return []string{"numpy", "numpy.random", "sympy", "scipy", "pandas", "networkx"}
}

// Config describes a jail. The zero value is a working configuration.
type Config struct {
	// Python is the interpreter, a name in PATH or a path; python3 when empty.
	Python string
	// Preload and Heavy replace DefaultPreload and DefaultHeavy when not nil.
	// Modules that are not installed are left out.
	Preload []string
	Heavy   []string
	// Require names the layers without which New fails; RequireAll means all of them.
	Require []string
	// Defaults fill the zero fields of a request's limits; Most bounds them.
	Defaults sandbox.Limits
	Most     sandbox.Limits
	// TmpBytes and TmpInodes bound the private /tmp; 32 MiB and 1024 when zero.
	TmpBytes  int64
	TmpInodes int
	// TotalMemory bounds all calls of the Jail together, in bytes, including their share
	// of the zygotes, where cgroups can be made. When zero it is three quarters of the
	// memory of the machine or of the owner's cgroup.
	TotalMemory int64
	// Children bounds the programs and kernels that exist at a time. The bound of
	// their processes and threads follows from it. 128 when zero.
	Children int
	// Subprocess allows the profile subprocess.
	Subprocess bool
	// Fresh, when not nil, makes each call start a new interpreter with these
	// arguments inside the same layers instead of using the warm one: a baseline
	// for benchmarks. Such calls have no Value, Fixture or Error.
	Fresh []string
	// Without names layers to leave out, for measuring the cost of a layer.
	// Never use it for untrusted programs.
	Without []string
	// Logger receives the standard error of the zygotes; nil discards it.
	Logger *slog.Logger

	modes []Mode        // modes to try, in order; all when nil
	slack time.Duration // smallest slack of a timeLimiter; sandbox.MinSlack when zero
}

func (c Config) withDefaults() Config {
	if c.Preload == nil {
		c.Preload = DefaultPreload()
	}
	if c.Heavy == nil {
		c.Heavy = DefaultHeavy()
	}
	c.Defaults = fill(c.Defaults, defaultLimits())
	c.Most = fill(c.Most, Most())
	if c.modes == nil {
		c.modes = []Mode{ModeRoot, ModeUser, ModePlain}
	}
	if c.slack == 0 {
		c.slack = sandbox.MinSlack
	}
	if c.TmpBytes == 0 {
		c.TmpBytes = 32 << 20
	}
	if c.TmpInodes == 0 {
		c.TmpInodes = 1024
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func fill(l, defaults sandbox.Limits) sandbox.Limits {
	if l.Wall == 0 {
		l.Wall = defaults.Wall
	}
	if l.CPU == 0 {
		l.CPU = defaults.CPU
	}
	if l.Memory == 0 {
		l.Memory = defaults.Memory
	}
	if l.Output == 0 {
		l.Output = defaults.Output
	}
	return l
}

// Jail knows the interpreter and the layers of this machine and starts zygotes.
// It is safe for concurrent use.
type Jail struct {
	cfg     Config
	py      python
	tree    tree
	mode    Mode
	reason  string    // why no stronger mode works
	filters [3]string // system call filters: with namespaces, without, and for programs that start processes
	code    code
	report  Report
	uids    *uids
	group   *cgroup // nil if none can be made

	preambles preambles

	mu    sync.Mutex
	spare *zygote // started by New to detect the layers; Start returns it first
}

// New finds the interpreter, starts a first zygote to detect which layers hold, and fails
// if a required layer does not. The caller closes the Jail.
func New(ctx context.Context, cfg Config) (*Jail, error) {
	cfg = cfg.withDefaults()
	py, err := findPython(ctx, cfg.Python, cfg.Heavy)
	if err != nil {
		return nil, err
	}
	code, err := machineCode()
	if err != nil {
		return nil, err
	}
	j := &Jail{cfg: cfg, py: py, code: code, uids: claimUIDs(rangeDir)}
	for i, p := range []policy{{inside: true}, {}, {inside: true, spawn: true}} {
		p.exec = cfg.Fresh != nil
		j.filters[i], err = filterHex(p)
		if err != nil {
			return nil, err
		}
	}
	makeRoomFor(cfg.Children)
	group := j.setUpCgroup()
	if err := j.learn(ctx); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	j.report.Layers = append(j.report.Layers, group)
	if err := j.report.require(cfg.Require); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// learn starts the first zygote with the strongest mode that works.
func (j *Jail) learn(ctx context.Context) error {
	var failures []error
	for _, try := range j.tries() {
		j.mode, j.tree = try.mode, try.tree
		if len(failures) > 0 {
			j.reason = failures[len(failures)-1].Error()
		}
		z, err := j.start(ctx, j.cfg.Preload, false)
		if err == nil {
			j.spare = z
			j.report = Report{
				Mode: j.mode, Python: j.py.Executable, Version: z.hello.Version,
				Layers: z.hello.Layers, Missing: z.hello.Missing, Heavy: j.py.Available,
				LeftOut: j.py.LeftOut, NumShown: j.tree.unmasked,
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failures = append(failures, err)
	}
	return fmt.Errorf("start a sandbox interpreter: %w", errors.Join(failures...))
}

// try is one way to start a zygote.
type try struct {
	mode Mode
	tree tree
}

// tries lists the ways to start a zygote, the best first. An interpreter that cannot be
// shown at another path is shown at its real path, which is better than a weaker mode.
func (j *Jail) tries() []try {
	var list []try
	masks := findMasks(j.py)
	moved, own := rootTree(j.py, masks, true), rootTree(j.py, masks, false)
	for _, mode := range j.cfg.modes {
		if mode != ModePlain && moved.moving() {
			list = append(list, try{mode, moved})
		}
		list = append(list, try{mode, own})
	}
	return list
}

// Report returns the layers and whether each holds.
func (j *Jail) Report() Report { return j.report }

// Defaults returns the limits of a request that states none.
func (j *Jail) Defaults() sandbox.Limits { return j.cfg.Defaults }

// Start returns an interpreter that is ready to run calls. The caller closes it.
func (j *Jail) Start(ctx context.Context) (*Interpreter, error) {
	j.mu.Lock()
	z := j.spare
	j.spare = nil
	j.mu.Unlock()
	if z != nil && !z.alive() {
		z.close()
		z = nil
	}
	if z == nil {
		var err error
		if z, err = j.start(ctx, j.cfg.Preload, false); err != nil {
			return nil, err
		}
	}
	return &Interpreter{
		jail: j, light: z,
		heavy:   lazyZygote{preload: slices.Concat(j.cfg.Preload, j.py.Available)},
		spawner: lazyZygote{preload: j.cfg.Preload, spawn: true},
	}, nil
}

// Close ends the zygote that Start did not hand out, kills the remaining processes of the
// cgroup and removes it.
func (j *Jail) Close() error {
	j.mu.Lock()
	z := j.spare
	j.spare = nil
	j.mu.Unlock()
	if z != nil {
		z.close()
	}
	err := j.uids.release()
	if j.group != nil {
		err = errors.Join(err, j.group.close())
	}
	return err
}
