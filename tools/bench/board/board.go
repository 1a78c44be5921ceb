// Package board compares ways to run a Python program that somebody else wrote: this
// service, other services that are installed, and a plain interpreter. It owns the
// list of ways, how each is started and what is measured; how a load is made belongs
// to loadgen.
//
// Invariant: every way runs the same programs with the same interpreter, in turns
// within one run, and a way that is not installed is named with what is missing.
package board

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

// Config says what a board measures. Zero fields take the stated defaults; Binary
// and Python have none.
type Config struct {
	Places
	Ways        []string      // by name; all
	Programs    []string      // by name; all
	Rounds      int           // 3
	Slice       time.Duration // of a way in a round, for each program: 3 s
	Concurrency int           // calls in flight of the full load: two for each core
	Idle        int           // what waits idle while memory is read: 32
	// Note, when set, is called with what happens.
	Note func(text string)
}

// Places are where the ways are installed.
type Places struct {
	Binary          string // with the role sandbox
	Python          string // that runs the programs
	GoJudge         string // go-judge, on the path
	CodeJudge       string // folder of a checkout
	CodeJudgePython string // that has what the checkout requires; Python
}

// Report is a board.
type Report struct {
	CPU         string   `json:"cpu"` // its model
	Cores       int      `json:"cores"`
	Load        string   `json:"load"`   // averages when the board ended
	Python      string   `json:"python"` // its version
	Concurrency int      `json:"concurrency"`
	Ways        []Way    `json:"ways"`
	Rows        []Row    `json:"rows"` // by program, then way
	Probes      []string `json:"probes"`
}

// Way is one way to run a program.
type Way struct {
	Name    string `json:"name"`
	Missing string `json:"missing,omitempty"` // what is not installed, and how to get it
	Layers  string `json:"layers"`            // what isolates a call
	// Held are the probes that did not get through; see Probes.
	Held []string `json:"held"`
	// Idle is the memory of one thing that waits for a call, Unit names the thing.
	Idle int64  `json:"idle_bytes"`
	Unit string `json:"unit"`
}

// Row is what one way needs for one program: medians of the rounds.
type Row struct {
	Program string `json:"program"`
	Way     string `json:"way"`
	Calls   int    `json:"calls"` // of all rounds
	Failed  int    `json:"failed"`
	Failure string `json:"failure,omitempty"`
	// CPU is the processor time of a call, of all processes of the way. PerCore is
	// its inverse, the calls a second that a core can do: other work on the machine
	// hardly changes it. PerSecond is what was seen, with the client beside it.
	CPU       time.Duration `json:"cpu_ns"`
	PerCore   float64       `json:"per_second_core"`
	PerSecond float64       `json:"per_second"`
	// P50 and P99 are latencies of one call at a time.
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
}

func (c Config) withDefaults() Config {
	positive := func(v *int, fallback int) {
		if *v <= 0 {
			*v = fallback
		}
	}
	positive(&c.Rounds, 3)
	positive(&c.Concurrency, 2*runtime.NumCPU())
	positive(&c.Idle, 32)
	if c.Slice <= 0 {
		c.Slice = 3 * time.Second
	}
	if c.CodeJudgePython == "" {
		c.CodeJudgePython = c.Python
	}
	if c.GoJudge == "" {
		c.GoJudge = "go-judge"
	}
	if c.Note == nil {
		c.Note = func(string) {}
	}
	return c
}

// entry is a way that runs.
type entry struct {
	way     *Way
	running *running
}

// Measure makes a board.
func Measure(ctx context.Context, cfg Config) (_ Report, err error) {
	cfg = cfg.withDefaults()
	chosen, programs, err := cfg.choose()
	if err != nil {
		return Report{}, err
	}
	version, err := pythonVersion(ctx, cfg.Python)
	if err != nil {
		return Report{}, err
	}
	report := Report{Cores: runtime.NumCPU(), CPU: cpuModel(), Python: version, Concurrency: cfg.Concurrency, Ways: make([]Way, len(chosen))}
	var entries []entry
	defer func() {
		for _, e := range entries {
			err = errors.Join(err, e.running.stop())
		}
	}()
	for i, k := range chosen {
		w := &report.Ways[i]
		w.Name = k.name
		w.Missing = k.missing(cfg)
		if w.Missing != "" {
			cfg.Note(k.name + " is left out: " + w.Missing)
			continue
		}
		cfg.Note("start " + k.name)
		r, err := k.start(ctx, cfg)
		if err != nil {
			return report, fmt.Errorf("%s: %w", k.name, err)
		}
		entries = append(entries, entry{w, r})
		w.Layers, w.Unit = r.layers, r.unit
	}
	for _, e := range entries {
		cfg.Note("probes and idle memory of " + e.way.Name)
		if err := e.inspect(ctx, cfg); err != nil {
			return report, fmt.Errorf("%s: %w", e.way.Name, err)
		}
	}
	for _, p := range probes("", 0, "") {
		report.Probes = append(report.Probes, p.name)
	}
	for _, p := range programs {
		rows, err := compare(ctx, cfg, entries, p)
		if err != nil {
			return report, err
		}
		report.Rows = append(report.Rows, rows...)
	}
	report.Load = loadAverages()
	return report, nil
}

// inspect fills in what a way holds, and what it needs while nothing happens.
func (e entry) inspect(ctx context.Context, cfg Config) (err error) {
	if e.way.Held, err = probe(ctx, cfg, e.running.target); err != nil {
		return err
	}
	e.way.Idle, err = e.running.idle(ctx, cfg.Idle)
	return err
}

// compare runs one program on all ways in turns.
func compare(ctx context.Context, cfg Config, entries []entry, p loadgen.Program) ([]Row, error) {
	rows := make([]Row, len(entries))
	one, full := make([][]loadgen.Figures, len(entries)), make([][]loadgen.Figures, len(entries))
	pace := make([]time.Duration, len(entries))
	for i, e := range entries {
		f, err := e.load(ctx, p, cfg.Concurrency, 4*cfg.Concurrency)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.way.Name, err)
		}
		pace[i] = max(f.Elapsed/time.Duration(f.Calls), time.Microsecond)
	}
	for round := range cfg.Rounds {
		for i, e := range entries {
			calls := min(max(int(cfg.Slice/pace[i]), 2*cfg.Concurrency), 5000)
			f, err := e.load(ctx, p, cfg.Concurrency, calls)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.way.Name, err)
			}
			full[i] = append(full[i], f)
			pace[i] = max(f.Elapsed/time.Duration(calls), time.Microsecond) // the first calls were slower
			if f, err = e.load(ctx, p, 1, max(calls/4, 4)); err != nil {
				return nil, fmt.Errorf("%s: %w", e.way.Name, err)
			}
			one[i] = append(one[i], f)
			cfg.Note(fmt.Sprintf("%s, round %d, %s: %d calls, %v CPU a call, %d failed", p.Name, round+1, e.way.Name, calls, full[i][round].CPU, full[i][round].Failed))
		}
	}
	for i, e := range entries {
		rows[i] = summary(full[i], one[i])
		rows[i].Program, rows[i].Way = p.Name, e.way.Name
	}
	return rows, nil
}

// load puts a closed loop on a way. The processor time is read a moment later, when
// what a call leaves to be done is done.
func (e entry) load(ctx context.Context, p loadgen.Program, concurrency, calls int) (loadgen.Figures, error) {
	before, err := e.running.cpu.Used()
	if err != nil {
		return loadgen.Figures{}, err
	}
	f, err := loadgen.Run(ctx, e.running.target, loadgen.Load{
		Concurrency: concurrency, Calls: calls, Mix: loadgen.Only(p), Timeout: 2 * time.Minute,
		Prefix: fmt.Sprintf("board-%d", time.Now().UnixNano()),
	})
	if err != nil {
		return f, err
	}
	loadgen.Rest(ctx, 200*time.Millisecond)
	after, err := e.running.cpu.Used()
	if good := f.Calls - f.Failed; err == nil && good > 0 {
		f.CPU = (after - before) / time.Duration(good)
	}
	return f, err
}

// summary takes medians over rounds.
func summary(full, one []loadgen.Figures) Row {
	var r Row
	r.CPU = meter.Median(meter.Pick(full, func(f loadgen.Figures) time.Duration { return f.CPU }))
	r.PerSecond = meter.Median(meter.Pick(full, func(f loadgen.Figures) float64 { return f.PerSecond }))
	r.P50 = meter.Median(meter.Pick(one, func(f loadgen.Figures) time.Duration { return f.P50 }))
	r.P99 = meter.Median(meter.Pick(one, func(f loadgen.Figures) time.Duration { return f.P99 }))
	r.PerCore = meter.Rate(1, r.CPU)
	for _, f := range append(full[:len(full):len(full)], one...) {
		r.Calls, r.Failed = r.Calls+f.Calls, r.Failed+f.Failed
		if r.Failure == "" {
			r.Failure = f.Failure
		}
	}
	return r
}
