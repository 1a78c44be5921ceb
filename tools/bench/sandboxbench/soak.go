package sandboxbench

import (
	"context"
	"fmt"
	"time"

	"temper/tools/bench/loadgen"
)

// SoakConfig describes a soak of a service that runs on this machine. Zero fields
// take the stated defaults; Target and PID have none.
type SoakConfig struct {
	Target      loadgen.Target
	PID         int // of the service
	CPU         loadgen.CPU
	Calls       int         // 200,000
	Concurrency int         // 64
	Mix         loadgen.Mix // soak, in the order that Seed draws
	Seed        uint64
	Prefix      string
	Timeout     time.Duration // of a call: 2 minutes
	// Note, when set, is called with each tenth when it ends. Before them it is
	// called with a tenth 0 without calls, which has the inventory that the others
	// are compared with.
	Note func(Tenth)
}

// Tenth is one tenth of a soak, with what the service held after it.
type Tenth struct {
	Number    int             `json:"number"` // from 1
	Figures   loadgen.Figures `json:"figures"`
	Inventory Inventory       `json:"inventory"`
}

// SoakReport is what a soak found.
type SoakReport struct {
	Before Inventory `json:"before"` // warm, before the first tenth
	Tenths []Tenth   `json:"tenths"`
	Failed int       `json:"failed"`
	// Leaks name what grew and did not shrink again.
	Leaks []string `json:"leaks,omitempty"`
	// Drift is the last tenth's calls a second divided by the first's, minus one.
	// CPUDrift is the same for the processor time of a call, which other work on
	// the machine hardly changes.
	Drift    float64 `json:"drift"`
	CPUDrift float64 `json:"cpu_drift"`
}

// MaxDrift is how much slower the last tenth may be than the first.
const MaxDrift = 0.05

// Steady is true when nothing leaked, no call failed and the pace held.
func (r SoakReport) Steady() bool {
	return len(r.Leaks) == 0 && r.Failed == 0 && r.Drift >= -MaxDrift
}

const tenths = 10

// Soak puts a long load on a service and looks for what it leaves behind.
func Soak(ctx context.Context, cfg SoakConfig) (SoakReport, error) {
	orInt(&cfg.Calls, 200000)
	orInt(&cfg.Concurrency, 64)
	if cfg.Timeout == 0 {
		cfg.Timeout = 2 * time.Minute
	}
	if cfg.Mix == nil {
		cfg.Mix = loadgen.SoakMix(cfg.Seed)
	}
	if cfg.Calls < tenths {
		return SoakReport{}, fmt.Errorf("soak of %d calls: want at least %d", cfg.Calls, tenths)
	}
	s := newSurveyor(cfg.PID)
	var report SoakReport
	each := cfg.Calls / tenths
	if _, err := s.putLoad(ctx, cfg, 0, min(each, loadgen.Cycle)); err != nil { // warm
		return report, err
	}
	var err error
	if report.Before, err = s.settled(ctx, Inventory{}); err != nil {
		return report, err
	}
	if cfg.Note != nil {
		cfg.Note(Tenth{Inventory: report.Before})
	}
	for number := 1; number <= tenths; number++ {
		t := Tenth{Number: number}
		if t.Figures, err = s.putLoad(ctx, cfg, number, each); err != nil {
			return report, err
		}
		if t.Inventory, err = s.settled(ctx, report.Before); err != nil {
			return report, err
		}
		report.Tenths = append(report.Tenths, t)
		report.Failed += t.Figures.Failed
		if cfg.Note != nil {
			cfg.Note(t)
		}
	}
	report.judge()
	return report, nil
}

func (s *surveyor) putLoad(ctx context.Context, cfg SoakConfig, number, calls int) (loadgen.Figures, error) {
	load := loadgen.Load{
		Concurrency: cfg.Concurrency, Calls: calls, Mix: cfg.Mix, Timeout: cfg.Timeout,
		Prefix: fmt.Sprintf("%s-%d", cfg.Prefix, number),
	}
	return loadgen.Measure(ctx, cfg.Target, load, cfg.CPU)
}

// settled takes inventories until one is no larger than before, or for 10 s: what
// is cleaned up a moment later is no leak.
func (s *surveyor) settled(ctx context.Context, before Inventory) (Inventory, error) {
	var inv Inventory
	for range 20 {
		var err error
		loadgen.Rest(ctx, 500*time.Millisecond)
		if inv, err = s.survey(); err != nil {
			return inv, err
		}
		if before != (Inventory{}) && len(growth(before, inv, false)) == 0 || ctx.Err() != nil {
			break
		}
		if before == (Inventory{}) {
			before = inv
		}
	}
	return inv, ctx.Err()
}

// settledAfter is the tenth from which memory is judged: a service may keep the
// answers of its idempotency window, some minutes of calls, and no more.
const settledAfter = 7

// judge fills in what follows from all tenths.
func (r *SoakReport) judge() {
	first, last := r.Tenths[0], r.Tenths[len(r.Tenths)-1]
	r.Leaks = append(growth(r.Before, last.Inventory, false), growth(r.Tenths[settledAfter-1].Inventory, last.Inventory, true)...)
	r.Drift = ratio(last.Figures.PerSecond, first.Figures.PerSecond) - 1
	r.CPUDrift = ratio(float64(last.Figures.CPU), float64(first.Figures.CPU)) - 1
}

// ratio is 1 where nothing was measured.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 1
	}
	return a / b
}
