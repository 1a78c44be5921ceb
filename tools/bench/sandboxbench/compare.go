package sandboxbench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"temper/sandbox/jail"
	"temper/sandbox/pool"
	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

// Config says what Compare runs. Zero fields take the stated defaults.
type Config struct {
	Python      string
	Code        string // print(1+1)
	Calls       int    // with warm interpreters; 2000
	FreshCalls  int    // with fresh ones; a tenth of Calls
	Concurrency int    // the number of cores
}

// Comparison holds the figures of all ways on one machine, taken in one run.
type Comparison struct {
	Report jail.Report     `json:"report"`
	Warm   loadgen.Figures `json:"warm"`
	// Fresh starts python3 -I for each call, which can import what is installed,
	// as the warm interpreter can. FreshBare starts python3 -I -S, which cannot.
	Fresh     Baseline `json:"fresh"`
	FreshBare Baseline `json:"fresh_bare"`
}

// Baseline is a way to compare with, and how much better the warm way is.
type Baseline struct {
	loadgen.Figures
	// Speedup is the ratio of calls per second; CPURatio that of processor time
	// for a call, which holds on a busy machine too.
	Speedup  float64 `json:"speedup"`
	CPURatio float64 `json:"cpu_ratio"`
}

// Compare measures warm interpreters against the start of a new interpreter for
// each call inside the same isolation layers.
func Compare(ctx context.Context, cfg Config) (Comparison, error) {
	cfg = cfg.withDefaults()
	var out Comparison
	var err error
	load := loadgen.Load{Concurrency: cfg.Concurrency, Calls: cfg.Calls, Mix: loadgen.Only(loadgen.Program{Code: cfg.Code})}
	if out.Warm, out.Report, err = measure(ctx, jail.Config{Python: cfg.Python}, load); err != nil {
		return out, fmt.Errorf("warm interpreters: %w", err)
	}
	load.Calls = cfg.FreshCalls
	for _, b := range []struct {
		args []string
		into *Baseline
	}{{[]string{"-I"}, &out.Fresh}, {[]string{"-I", "-S"}, &out.FreshBare}} {
		fresh := jail.Config{Python: cfg.Python, Fresh: b.args, Preload: []string{}}
		if b.into.Figures, _, err = measure(ctx, fresh, load); err != nil {
			return out, fmt.Errorf("fresh interpreters: %w", err)
		}
		if b.into.PerSecond > 0 {
			b.into.Speedup = out.Warm.PerSecond / b.into.PerSecond
		}
		if out.Warm.CPU > 0 {
			b.into.CPURatio = float64(b.into.CPU) / float64(out.Warm.CPU)
		}
	}
	return out, nil
}

func (c Config) withDefaults() Config {
	if c.Code == "" {
		c.Code = "print(1+1)"
	}
	if c.Calls == 0 {
		c.Calls = 2000
	}
	if c.FreshCalls == 0 {
		c.FreshCalls = max(1, c.Calls/10)
	}
	if c.Concurrency == 0 {
		c.Concurrency = runtime.NumCPU()
	}
	return c
}

// measure puts load on a pool of its own.
func measure(ctx context.Context, cfg jail.Config, load loadgen.Load) (_ loadgen.Figures, _ jail.Report, err error) {
	j, err := jail.New(ctx, cfg)
	if err != nil {
		return loadgen.Figures{}, jail.Report{}, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	spent := &spending{}
	p, err := pool.New(ctx, pool.Config{Queue: load.Concurrency}, spent.watch(j))
	if err != nil {
		return loadgen.Figures{}, jail.Report{}, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	warmup := load
	warmup.Calls = min(load.Calls, 4*load.Concurrency)
	if _, err := loadgen.Run(ctx, loadgen.FromExecutor(p), warmup); err != nil {
		return loadgen.Figures{}, jail.Report{}, err
	}
	before := spent.cpu()
	figures, err := loadgen.Run(ctx, loadgen.FromExecutor(p), load)
	if err != nil {
		return loadgen.Figures{}, jail.Report{}, err
	}
	figures.CPU = (spent.cpu() - before) / time.Duration(load.Calls)
	return figures, j.Report(), nil
}

// spending sums the processor time of this process and of the interpreters that it
// watches.
type spending struct {
	mu           sync.Mutex
	interpreters []*jail.Interpreter
}

func (s *spending) watch(j *jail.Jail) pool.Start {
	return func(ctx context.Context) (pool.Interpreter, error) {
		z, err := j.Start(ctx)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.interpreters = append(s.interpreters, z)
		s.mu.Unlock()
		return z, nil
	}
}

func (s *spending) cpu() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := meter.OwnCPU()
	for _, z := range s.interpreters {
		sum += z.CPU()
	}
	return sum
}
