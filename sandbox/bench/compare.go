package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
)

// Config says what Compare runs. Zero fields take the stated defaults.
type Config struct {
	Python      string
	Code        string // print(1+1)
	Calls       int    // with warm interpreters; 2000
	FreshCalls  int    // with fresh ones; a tenth of Calls
	Concurrency int    // the number of cores
}

// Comparison holds the figures of both ways on one machine, taken in one run.
type Comparison struct {
	Report jail.Report `json:"report"`
	Warm   Figures     `json:"warm"`
	Fresh  Figures     `json:"fresh"`
	// Speedup is the ratio of calls per second; CPUSpeedup that of calls per
	// second of processor time, which holds on a busy machine too.
	Speedup    float64 `json:"speedup"`
	CPUSpeedup float64 `json:"cpu_speedup"`
}

// Compare measures warm interpreters against the start of a new interpreter for
// each call inside the same isolation layers.
func Compare(ctx context.Context, cfg Config) (Comparison, error) {
	if cfg.Code == "" {
		cfg.Code = "print(1+1)"
	}
	if cfg.Calls == 0 {
		cfg.Calls = 2000
	}
	if cfg.FreshCalls == 0 {
		cfg.FreshCalls = max(1, cfg.Calls/10)
	}
	if cfg.Concurrency == 0 {
		cfg.Concurrency = runtime.NumCPU()
	}
	var out Comparison
	var err error
	load := Load{Concurrency: cfg.Concurrency, Calls: cfg.FreshCalls, Request: sandbox.Request{Code: cfg.Code}}
	fresh := jail.Config{Python: cfg.Python, FreshInterpreter: true, Preload: []string{}}
	if out.Fresh, _, err = measure(ctx, fresh, load); err != nil {
		return out, fmt.Errorf("fresh interpreters: %w", err)
	}
	load.Calls = cfg.Calls
	if out.Warm, out.Report, err = measure(ctx, jail.Config{Python: cfg.Python}, load); err != nil {
		return out, fmt.Errorf("warm interpreters: %w", err)
	}
	if out.Fresh.PerSecond > 0 {
		out.Speedup = out.Warm.PerSecond / out.Fresh.PerSecond
	}
	if out.Warm.CPU > 0 {
		out.CPUSpeedup = float64(out.Fresh.CPU) / float64(out.Warm.CPU)
	}
	return out, nil
}

// measure puts load on a pool of its own.
func measure(ctx context.Context, cfg jail.Config, load Load) (_ Figures, _ jail.Report, err error) {
	j, err := jail.New(ctx, cfg)
	if err != nil {
		return Figures{}, jail.Report{}, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	meter := &meter{}
	p, err := pool.New(ctx, pool.Config{Queue: load.Concurrency}, meter.wrap(j))
	if err != nil {
		return Figures{}, jail.Report{}, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	warmup := load
	warmup.Calls = min(load.Calls, 4*load.Concurrency)
	if _, err := Run(ctx, p, warmup); err != nil {
		return Figures{}, jail.Report{}, err
	}
	before := meter.cpu()
	figures, err := Run(ctx, p, load)
	if err != nil {
		return Figures{}, jail.Report{}, err
	}
	figures.CPU = (meter.cpu() - before) / time.Duration(load.Calls)
	return figures, j.Report(), nil
}

// meter sums the processor time of this process and of the zygotes it saw start.
type meter struct {
	mu      sync.Mutex
	zygotes []*jail.Interpreter
}

func (m *meter) wrap(j *jail.Jail) pool.Start {
	return func(ctx context.Context) (pool.Interpreter, error) {
		z, err := j.Start(ctx)
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		m.zygotes = append(m.zygotes, z)
		m.mu.Unlock()
		return z, nil
	}
}

func (m *meter) cpu() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := ownCPU()
	for _, z := range m.zygotes {
		sum += z.CPU()
	}
	return sum
}
