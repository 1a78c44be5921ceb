package sandboxbench

import (
	"context"
	"fmt"
	"time"

	"temper/tools/bench/loadgen"
	"temper/tools/bench/meter"
)

// Contender is one service of a contest.
type Contender struct {
	Name   string
	Target loadgen.Target
	CPU    loadgen.CPU
}

// Plan is what a contest runs: every program at every level, Rounds times, the
// contenders taking turns within each round. Zero fields take the stated defaults.
type Plan struct {
	Programs []loadgen.Program // trivial and sympy
	Levels   []int             // calls in flight: 100, 1,000, 5,000
	Rounds   int               // 3
	// MinCalls are made at least at each level; a level makes no fewer calls than
	// it has in flight. 400.
	MinCalls int
	// Budget bounds the expected time of one round of one contender. When the pace
	// at the level before puts a level above it, that level is skipped and its cell
	// says so. 10 minutes.
	Budget time.Duration
	// Timeout of a call; see loadgen.Load. An hour, so that the service's own limits decide.
	Timeout time.Duration
	// Settle is the longest wait for a contender to become quiet. 60 s.
	Settle time.Duration
	// Prefix begins the IDs of all calls.
	Prefix string
	// Done, when set, is called with each round when it ends.
	Done func(Round)
}

// Round is one contender's load of one round.
type Round struct {
	Program   string          `json:"program"`
	Level     int             `json:"level"`
	Contender string          `json:"contender"`
	Number    int             `json:"number"` // from 1
	Figures   loadgen.Figures `json:"figures"`
}

// Cell is what a contest found out about one contender at one level: medians of the
// rounds, field by field.
type Cell struct {
	Program   string        `json:"program"`
	Level     int           `json:"level"`
	Contender string        `json:"contender"`
	Calls     int           `json:"calls"` // in a round
	Rounds    int           `json:"rounds"`
	PerSecond float64       `json:"per_second"`
	Mean      time.Duration `json:"mean_ns"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns"`
	Lost      int           `json:"lost"`
	Wrong     int           `json:"wrong"`
	CPU       time.Duration `json:"cpu_ns"`
	// Skipped says why there are no figures.
	Skipped string `json:"skipped,omitempty"`
	Failure string `json:"failure,omitempty"`
	// RateRatio and CPURatio say how many times the first contender is better: calls
	// a second, and processor time for a call; 0 where one of both is unknown.
	RateRatio float64 `json:"rate_ratio,omitempty"`
	CPURatio  float64 `json:"cpu_ratio,omitempty"`
}

func (p Plan) withDefaults() Plan {
	if len(p.Programs) == 0 {
		p.Programs = []loadgen.Program{loadgen.Trivial(), loadgen.Sympy()}
	}
	if len(p.Levels) == 0 {
		p.Levels = []int{100, 1000, 5000}
	}
	if p.Rounds == 0 {
		p.Rounds = 3
	}
	if p.MinCalls == 0 {
		p.MinCalls = 400
	}
	if p.Budget == 0 {
		p.Budget = 10 * time.Minute
	}
	if p.Timeout == 0 {
		p.Timeout = time.Hour
	}
	if p.Settle == 0 {
		p.Settle = time.Minute
	}
	return p
}

// contest is a running plan. pace has the time of a call at the level before, for
// each contender in their order.
type contest struct {
	plan       Plan
	contenders []Contender
	pace       []time.Duration
	load       int // a number for the IDs
}

// Contend runs plan on the contenders, the first of which is the one that the
// ratios are about. Cells come by program, level and contender.
func Contend(ctx context.Context, contenders []Contender, plan Plan) ([]Cell, error) {
	c := &contest{plan: plan.withDefaults(), contenders: contenders}
	var cells []Cell
	for _, program := range c.plan.Programs {
		if err := c.warm(ctx, program); err != nil {
			return cells, err
		}
		for _, level := range c.plan.Levels {
			row, err := c.level(ctx, program, level)
			cells = append(cells, row...)
			if err != nil {
				return cells, err
			}
		}
	}
	return cells, nil
}

// warm lets each contender do what it does only the first time, and takes a first
// measure of its pace.
func (c *contest) warm(ctx context.Context, program loadgen.Program) error {
	c.pace = make([]time.Duration, len(c.contenders))
	for i := range c.contenders {
		load := loadgen.Load{Concurrency: 2, Calls: 16, Mix: loadgen.Only(program), Timeout: c.plan.Timeout, Prefix: c.prefix()}
		f, err := loadgen.Run(ctx, c.contenders[i].Target, load)
		if err != nil {
			return err
		}
		if f.Failed > 0 {
			return fmt.Errorf("%s: %d of %d calls of program %s at ease failed, first %s", c.contenders[i].Name, f.Failed, f.Calls, program.Name, f.Failure)
		}
		c.pace[i] = f.Elapsed / time.Duration(f.Calls)
	}
	return nil
}

func (c *contest) prefix() string {
	c.load++
	return fmt.Sprintf("%s-%d", c.plan.Prefix, c.load)
}

func (c *contest) level(ctx context.Context, program loadgen.Program, level int) ([]Cell, error) {
	calls := max(level, c.plan.MinCalls)
	rounds := make([][]loadgen.Figures, len(c.contenders))
	skipped := make([]string, len(c.contenders))
	for i := range c.contenders {
		if expected := c.pace[i] * time.Duration(calls); expected > c.plan.Budget {
			skipped[i] = fmt.Sprintf("about %v a round", expected.Round(time.Minute))
		}
	}
	for number := 1; number <= c.plan.Rounds; number++ {
		for i, contender := range c.contenders {
			if skipped[i] != "" {
				continue
			}
			load := loadgen.Load{Concurrency: level, Calls: calls, Mix: loadgen.Only(program), Timeout: c.plan.Timeout, Prefix: c.prefix()}
			f, err := loadgen.Measure(ctx, contender.Target, load, contender.CPU)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", contender.Name, err)
			}
			rounds[i] = append(rounds[i], f)
			c.pace[i] = f.Elapsed / time.Duration(calls)
			if c.plan.Done != nil {
				c.plan.Done(Round{program.Name, level, contender.Name, number, f})
			}
			if err := loadgen.Quiet(ctx, contender.CPU, c.settle(contender)); err != nil {
				return nil, fmt.Errorf("%s: %w", contender.Name, err)
			}
		}
	}
	cells := make([]Cell, len(c.contenders))
	for i, contender := range c.contenders {
		cells[i] = summary(rounds[i])
		cells[i].Program, cells[i].Level, cells[i].Contender = program.Name, level, contender.Name
		cells[i].Calls, cells[i].Skipped = calls, skipped[i]
		cells[i].compare(cells[0])
	}
	return cells, nil
}

// settle bounds the wait for quiet. It is short where the processor time is
// unknown.
func (c *contest) settle(of Contender) time.Duration {
	if of.CPU.Known() {
		return c.plan.Settle
	}
	return min(c.plan.Settle, 2*time.Second)
}

// summary takes medians over rounds.
func summary(rounds []loadgen.Figures) Cell {
	c := Cell{Rounds: len(rounds)}
	c.PerSecond = meter.Median(meter.Pick(rounds, func(f loadgen.Figures) float64 { return f.PerSecond }))
	c.Mean = meter.Median(meter.Pick(rounds, func(f loadgen.Figures) time.Duration { return f.Mean }))
	c.P50 = meter.Median(meter.Pick(rounds, func(f loadgen.Figures) time.Duration { return f.P50 }))
	c.P99 = meter.Median(meter.Pick(rounds, func(f loadgen.Figures) time.Duration { return f.P99 }))
	c.CPU = meter.Median(meter.Pick(rounds, func(f loadgen.Figures) time.Duration { return f.CPU }))
	c.Lost = meter.Median(meter.Pick(rounds, func(f loadgen.Figures) int { return f.Lost }))
	c.Wrong = meter.Median(meter.Pick(rounds, func(f loadgen.Figures) int { return f.Wrong }))
	for _, f := range rounds {
		if c.Failure == "" {
			c.Failure = f.Failure
		}
	}
	return c
}

// compare fills the ratios against the first contender.
func (c *Cell) compare(first Cell) {
	if c.PerSecond > 0 && first.PerSecond > 0 {
		c.RateRatio = first.PerSecond / c.PerSecond
	}
	if c.CPU > 0 && first.CPU > 0 {
		c.CPURatio = float64(c.CPU) / float64(first.CPU)
	}
}
