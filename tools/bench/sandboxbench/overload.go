package sandboxbench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"temper/sandbox"
	"temper/tools/bench/loadgen"
)

// OverloadConfig describes what is asked of a service that has less than that. Zero
// fields take the stated defaults; Target has none.
type OverloadConfig struct {
	Target  loadgen.Target
	CPU     loadgen.CPU   // of the service
	Levels  []int         // callers for each core: 1, 2, 8, 32
	Work    time.Duration // processor time of an honest program: 300 ms
	Hostile int           // of 100 programs, how many compute with 40 threads for a second: 0
	Calls   int           // of a level and a round, and no fewer than its callers: 64
	Rounds  int           // of all levels, in turns: 2
	Prefix  string
	// Note, when set, is called with each level of each round.
	Note func(round int, l OverloadLevel)
}

// OverloadLevel is what a service did with so many callers, all rounds together.
type OverloadLevel struct {
	Load    int             `json:"load"`    // callers for each core
	Callers int             `json:"callers"` //
	Figures loadgen.Figures `json:"figures"` // of the last round, but for the next
	Good    int             `json:"good"`
	Failed  int             `json:"failed"`
	Kinds   map[string]int  `json:"kinds"` // failed calls by kind, such as time_limit
	// Each is the elapsed time of a good call, and CPU its processor time: medians of
	// the rounds. The ratios compare calls a second, and calls a second of processor
	// time, with the first level; other work on the machine hardly changes the latter.
	Each      time.Duration `json:"each_ns"`
	CPU       time.Duration `json:"cpu_ns"`
	RateRatio float64       `json:"rate_ratio"`
	CPURatio  float64       `json:"cpu_ratio"`

	each, cpu []time.Duration
}

// MaxOverloadLoss is how much goodput a service may lose to overload.
const MaxOverloadLoss = 0.10

// Holds reports whether no call failed and the goodput a second of processor time is
// that of the first level, or nearly.
func (l OverloadLevel) Holds() bool { return l.Failed == 0 && l.CPURatio >= 1-MaxOverloadLoss }

// burner computes for d and nothing else.
func burner(d time.Duration) loadgen.Program {
	return loadgen.Program{
		Name: "burner", Want: "done",
		Code: fmt.Sprintf("import time\ne = time.process_time() + %f\nwhile time.process_time() < e: pass\nprint('done')", d.Seconds()),
	}
}

// crowd computes with many threads at a time.
func crowd() loadgen.Program {
	return loadgen.Program{
		Name: "crowd", AnyEnd: true, Limits: sandbox.Limits{CPU: time.Second},
		Code: "import hashlib, threading\ndef work():\n    while True: hashlib.pbkdf2_hmac('sha256', b'x', b'y', 100000)\nfor _ in range(40): threading.Thread(target=work).start()",
	}
}

// Overload asks a service for more and more at a time, in turns, and says what it still
// gets done.
func Overload(ctx context.Context, cfg OverloadConfig) ([]OverloadLevel, error) {
	if len(cfg.Levels) == 0 {
		cfg.Levels = []int{1, 2, 8, 32}
	}
	if cfg.Work == 0 {
		cfg.Work = 300 * time.Millisecond
	}
	orInt(&cfg.Calls, 64)
	orInt(&cfg.Rounds, 2)
	honest, hostile := burner(cfg.Work), crowd()
	mix := func(i int) loadgen.Program {
		if i*cfg.Hostile/100 != (i+1)*cfg.Hostile/100 { // spread evenly
			return hostile
		}
		return honest
	}
	levels := make([]OverloadLevel, len(cfg.Levels))
	for round := range cfg.Rounds {
		for i, load := range cfg.Levels {
			l := &levels[i]
			l.Load, l.Callers = load, load*runtime.GOMAXPROCS(0)
			figures, err := loadgen.Measure(ctx, cfg.Target, loadgen.Load{
				Concurrency: l.Callers, Calls: max(cfg.Calls, l.Callers), Mix: mix, Prefix: fmt.Sprintf("%s-%d-%d", cfg.Prefix, round, load),
			}, cfg.CPU)
			if err != nil {
				return nil, err
			}
			l.add(figures)
			if cfg.Note != nil {
				cfg.Note(round+1, *l)
			}
		}
	}
	for i := range levels {
		levels[i].compare(levels[0])
	}
	return levels, nil
}

// add takes a round in.
func (l *OverloadLevel) add(f loadgen.Figures) {
	l.Figures = f
	good := f.Calls - f.Failed
	l.Good += good
	l.Failed += f.Failed
	if l.Kinds == nil {
		l.Kinds = make(map[string]int)
	}
	for kind, n := range f.Kinds {
		l.Kinds[kind] += n
	}
	l.each = append(l.each, f.Elapsed/time.Duration(max(1, good)))
	l.cpu = append(l.cpu, f.CPU)
	l.Each, l.CPU = middle(l.each), middle(l.cpu)
}

func (l *OverloadLevel) compare(first OverloadLevel) {
	l.RateRatio = ratio(float64(first.Each), float64(l.Each))
	l.CPURatio = ratio(float64(first.CPU), float64(l.CPU))
}

// middle is the median, the smaller of two.
func middle(values []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/2]
}
