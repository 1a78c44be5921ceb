package sandboxbench

import (
	"context"
	"fmt"
	"time"

	"temper/tools/bench/loadgen"
	"temper/tools/bench/queueing"
)

// CheckConfig describes a check of the model against a service on this machine.
// Zero fields take the stated defaults; Target has none.
type CheckConfig struct {
	Target loadgen.Target
	CPU    loadgen.CPU
	Mix    loadgen.Mix
	Cores  int // that the service and this client share
	Slots  int // of the service, 0 for no bound
	// Populations of closed loops: 8, 32, 128, each for Calls calls: 2,000.
	Populations []int
	Calls       int
	// Loads of open streams by the share of what the cores can do: 0.5, 0.7, 0.85,
	// each for Duration: 20 s.
	Loads    []float64
	Duration time.Duration
	Seed     uint64
	Prefix   string
}

// Check is one load, and what the model predicted before it ran.
type Check struct {
	Load      string        `json:"load"`
	Predicted time.Duration `json:"predicted_ns"`
	Measured  time.Duration `json:"measured_ns"`
	Error     float64       `json:"error"` // of the prediction, relative to the measured mean
	Failed    int           `json:"failed"`
}

// CheckReport is a calibrated station and its checks.
type CheckReport struct {
	Station queueing.Station `json:"station"`
	Service loadgen.Figures  `json:"calibration"`
	Checks  []Check          `json:"checks"`
}

func (c CheckConfig) withDefaults() CheckConfig {
	if len(c.Populations) == 0 {
		c.Populations = []int{8, 32, 128}
	}
	orInt(&c.Calls, 2000)
	if len(c.Loads) == 0 {
		c.Loads = []float64{.5, .7, .85}
	}
	if c.Duration == 0 {
		c.Duration = 20 * time.Second
	}
	return c
}

// CheckModel measures the demand of a call with a load of its own, predicts other
// loads from it, and then runs them.
func CheckModel(ctx context.Context, cfg CheckConfig) (CheckReport, error) {
	cfg = cfg.withDefaults()
	report, err := calibrate(ctx, cfg)
	if err != nil {
		return report, err
	}
	for _, n := range cfg.Populations {
		p, err := report.Station.Closed(n)
		if err != nil {
			return report, err
		}
		load := loadgen.Load{Concurrency: n, Calls: max(cfg.Calls, 4*n)}
		if err := report.checkLoad(ctx, cfg, fmt.Sprintf("closed, %d callers", n), load, p); err != nil {
			return report, err
		}
	}
	for _, share := range cfg.Loads {
		rate := share * float64(cfg.Cores) / report.Station.Demand()
		p, err := report.Station.Open(rate)
		if err != nil {
			return report, err
		}
		load := loadgen.Load{Rate: rate, Duration: cfg.Duration, Seed: cfg.Seed}
		name := fmt.Sprintf("open, %.0f a second (%.0f %%)", rate, 100*share)
		if err := report.checkLoad(ctx, cfg, name, load, p); err != nil {
			return report, err
		}
	}
	return report, nil
}

// calibrate takes the demand from a busy run and the idle time from one
// caller alone. What the client uses is demand, too: it runs on the same cores.
func calibrate(ctx context.Context, cfg CheckConfig) (CheckReport, error) {
	var report CheckReport
	load := loadgen.Load{Concurrency: 4 * cfg.Cores, Calls: cfg.Calls, Mix: cfg.Mix, Prefix: cfg.Prefix + "-warm"}
	if _, err := loadgen.Run(ctx, cfg.Target, load); err != nil {
		return report, err
	}
	load.Concurrency, load.Prefix = 16*cfg.Cores, cfg.Prefix+"-full"
	full, err := loadgen.Measure(ctx, cfg.Target, load, cfg.CPU)
	if err != nil {
		return report, err
	}
	load.Concurrency, load.Calls, load.Prefix = 1, max(1, cfg.Calls/10), cfg.Prefix+"-one"
	alone, err := loadgen.Run(ctx, cfg.Target, load)
	if err != nil {
		return report, err
	}
	if full.Failed+alone.Failed > 0 {
		return report, fmt.Errorf("calibration: %d calls failed, first %s%s", full.Failed+alone.Failed, full.Failure, alone.Failure)
	}
	// The processor time does not depend on how fast the run was, so a prediction
	// made from it can turn out wrong. Where it is not measured, the pace of the
	// run takes its place.
	demand := full.CPU + full.ClientCPU
	if !cfg.CPU.Known() {
		demand = time.Duration(float64(cfg.Cores) / full.PerSecond * float64(time.Second))
	}
	report.Service = full
	report.Station = queueing.Station{
		Cores: cfg.Cores, Slots: cfg.Slots, Overhead: demand,
		Idle: max(0, alone.Mean-demand), Variation: full.ServiceVariation,
	}
	return report, nil
}

func (r *CheckReport) checkLoad(ctx context.Context, cfg CheckConfig, name string, load loadgen.Load, p queueing.Prediction) error {
	load.Mix, load.Prefix = cfg.Mix, fmt.Sprintf("%s-%d", cfg.Prefix, len(r.Checks))
	f, err := loadgen.Run(ctx, cfg.Target, load)
	if err != nil {
		return err
	}
	check := Check{Load: name, Predicted: p.Response, Measured: f.Mean, Failed: f.Failed}
	if f.Mean > 0 {
		check.Error = float64(p.Response)/float64(f.Mean) - 1
	}
	r.Checks = append(r.Checks, check)
	return nil
}
