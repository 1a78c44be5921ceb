package enginebench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"temper/tools/bench/meter"
)

// Row is what a contender reached in a case: medians of the rounds.
type Row struct {
	Case
	Parameters         int     `json:"parameters"`
	Contender          string  `json:"contender"`
	TokensPerSecond    float64 `json:"tokens_per_s"`
	TokensPerCPUSecond float64 `json:"tokens_per_cpu_s,omitempty"`
	FirstTokenMS       float64 `json:"first_token_ms,omitempty"`
	CPUSeconds         float64 `json:"cpu_s,omitempty"` // of a round
	PeakRSS            int64   `json:"peak_rss,omitempty"`
	Digest             string  `json:"digest,omitempty"`
	HostShare          float64 `json:"host_share,omitempty"` // see Round
	Transfers          float64 `json:"transfers_per_token,omitempty"`
	Programs           int     `json:"programs,omitempty"`
	// Ratio is our rate over this contender's, by CPU time, or by wall time where the
	// contender's CPU time is unknown: the median of the rounds' ratios.
	Ratio float64 `json:"ratio,omitempty"`
}

// Measure runs the plan and reports each row as it is known. In each case the
// contenders take turns.
func Measure(ctx context.Context, p Plan, report func(Row)) error {
	for _, c := range p.Cases {
		if err := measureCase(ctx, p, c, report); err != nil {
			return fmt.Errorf("batch %d at a context of %d: %w", c.Batch, c.Context, err)
		}
	}
	return nil
}

func measureCase(ctx context.Context, p Plan, c Case, report func(Row)) (err error) {
	ours, err := openTemper(ctx, p, c)
	if err != nil {
		return err
	}
	defer ours.e.Close()
	contenders := append([]Opponent{ours}, p.Opponents...)
	if p.LlamaPython != "" {
		l, err := startLlamaCPP(ctx, p.LlamaPython, p, c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.close()) }()
		contenders = append(contenders, l)
	}
	rounds := make([][]Round, len(contenders))
	prompts := c.prompts(p.Model.VocabSize, p.Seed)
	for i := range p.Rounds + 1 { // the first round warms up
		for k, o := range contenders {
			r, err := o.Decode(ctx, prompts, c.NewTokens)
			if err != nil {
				return fmt.Errorf("%s: %w", o.Name(), err)
			}
			if i > 0 {
				rounds[k] = append(rounds[k], r)
			}
		}
	}
	for k, o := range contenders {
		row, err := rowOf(c, o.Name(), rounds[k])
		if err != nil {
			return err
		}
		row.Parameters = p.Model.NumParameters()
		if k > 0 {
			row.Ratio = ratio(rounds[0], rounds[k])
		}
		report(row)
	}
	return nil
}

// rowOf condenses rounds. Different digests of one load mean that the engine breaks its
// promise.
func rowOf(c Case, name string, rounds []Round) (Row, error) {
	median := func(f func(Round) float64) float64 { return meter.Median(meter.Pick(rounds, f)) }
	digests := slices.Compact(meter.Pick(rounds, func(r Round) string { return r.Digest }))
	if len(digests) > 1 {
		return Row{}, fmt.Errorf("%s sampled otherwise in another round: digests %v", name, digests)
	}
	peak := int64(0)
	for _, r := range rounds {
		peak = max(peak, r.PeakRSS)
	}
	return Row{
		Case: c, PeakRSS: peak, Contender: name, Digest: digests[0],
		TokensPerSecond:    median(Round.perSecond),
		TokensPerCPUSecond: median(Round.perCPUSecond),
		FirstTokenMS:       median(func(r Round) float64 { return 1e3 * r.FirstToken.Seconds() }),
		CPUSeconds:         median(func(r Round) float64 { return r.CPU.Seconds() }),
		HostShare:          median(func(r Round) float64 { return r.HostShare }),
		Transfers:          median(func(r Round) float64 { return r.Transfers }),
		Programs:           rounds[len(rounds)-1].Programs,
	}, nil
}

func (r Round) perSecond() float64    { return meter.Rate(float64(r.Tokens), r.Wall) }
func (r Round) perCPUSecond() float64 { return meter.Rate(float64(r.Tokens), r.CPU) }

// ratio is the median of our rate over theirs, round by round.
func ratio(ours, theirs []Round) float64 {
	var out []float64
	for i := range ours {
		if theirs[i].CPU > 0 {
			out = append(out, ours[i].perCPUSecond()/theirs[i].perCPUSecond())
		} else {
			out = append(out, ours[i].perSecond()/theirs[i].perSecond())
		}
	}
	return meter.Median(out)
}
