package run

import (
	"cmp"
	"context"
	"slices"
	"time"

	"temper/internal/blob"
	"temper/internal/proc/failpoint"
	"temper/internal/run/artifact"
	"temper/internal/run/chain"
	"temper/internal/series"
)

// FinishInput closes a run.
type FinishInput struct {
	Run     Ref           `json:"run"`
	Started time.Time     `json:"started"`
	Ended   time.Time     `json:"ended"`
	SFT     SFTResult     `json:"sft"`
	Stages  []StageReport `json:"stages"`
	Policy  Policy        `json:"policy"`
	// Stopped is set when the run was asked to stop early.
	Stopped bool `json:"stopped,omitempty"`
	// Fork names the parent of the run, Restarted the run that replaces it.
	Fork      *ForkFrom `json:"fork,omitempty"`
	Restarted string    `json:"restarted,omitempty"`
}

// FinishResult points to the summary.
type FinishResult struct {
	SummaryPath string `json:"summary_path"`
}

// Finish writes the series, the last manifest and the summary of the run, which ends
// with the head of its chain. peakRSS is the largest memory of the service so far in
// bytes, 0 where it is not known.
func Finish(ctx context.Context, store blob.Store, in FinishInput, chain *Chain, peakRSS int64) (FinishResult, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	cfg, err := ReadConfig(ctx, store, in.Run)
	if err != nil {
		return FinishResult{}, err
	}
	plan, _, err := StoredPlan(ctx, store, in.Run.RunID)
	if err != nil {
		return FinishResult{}, err
	}
	records, err := Records(ctx, store, plan)
	if err != nil {
		return FinishResult{}, err
	}
	if _, err := PutLines(ctx, store, layout.Metrics(), records); err != nil {
		return FinishResult{}, err
	}
	summary := summarize(in, records)
	summary.Seed, summary.ConfigSHA256 = cfg.Seed, in.Run.Config.SHA256
	summary.PeakRSSBytes = peakRSS
	if !in.Policy.Ref.IsZero() {
		summary.PolicyPath = store.Locate(layout.Policy(in.Policy.Version).Dir())
	}
	failpoint.Hit("finish/before-closing")
	if summary.Proof, err = chain.seal(ctx, store, in.Run, lastStep(in, records), summary); err != nil {
		return FinishResult{}, err
	}
	failpoint.Hit("finish/before-summary")
	if summary, err = artifact.PutOnce(ctx, store, layout.Summary(), summary); err != nil {
		return FinishResult{}, err
	}
	err = noteInCatalog(ctx, store, in.Run.RunID, func(e *CatalogEntry) { e.AddSummary(summary) })
	return FinishResult{SummaryPath: store.Locate(layout.Summary())}, err
}

// lastStep is the last step that a run, or the run that it is a fork of, has made.
func lastStep(in FinishInput, records []StepRecord) int {
	switch {
	case len(records) > 0:
		return records[len(records)-1].Step
	case in.Fork != nil:
		return in.Fork.Step
	default:
		return 0
	}
}

func summarize(in FinishInput, records []StepRecord) Summary {
	wall := in.Ended.Sub(in.Started).Seconds()
	s := Summary{
		RunID: in.Run.RunID, WallSeconds: wall, Steps: len(records), PolicyVersion: in.Policy.Version,
		Stopped: in.Stopped, Started: in.Started, Ended: in.Ended, Stages: []StageSummary{},
	}
	if in.Fork != nil {
		s.ForkOf, s.ForkStep = in.Fork.RunID, in.Fork.Step
	}
	s.Restarted = in.Restarted
	split := TimeSplit{Train: in.SFT.TrainTime.Seconds()}
	for _, r := range records {
		split.Sample += r.Metrics[series.GenSeconds]
		split.Tool += r.Metrics[series.ToolSeconds]
		split.Train += r.Metrics[series.TrainSeconds]
	}
	for _, st := range in.Stages {
		s.Stages = append(s.Stages, stageSummary(st))
		for _, e := range evaluations(st) {
			gen, tool := splitWall(e.Wall, e.SampleTime, e.ToolTime)
			split.Sample += gen.Seconds()
			split.Tool += tool.Seconds()
		}
		split.Sample += st.Filter.Wall.Seconds()
	}
	split.Other = max(0, wall-split.Sample-split.Tool-split.Train)
	s.TimeSplit = split
	s.OrchestrationMSPerStep, s.OrchestrationShare = orchestration(records)
	return s
}

// orchestration is the median time of a step outside sampling, tools, training
// and saving, in milliseconds, and its share of the median step. A step lasts
// from its start to the start of the next one, so that starting and ending the
// child workflow and writing the record count; the last step of a stage has no
// next one and is left out.
func orchestration(records []StepRecord) (ms, share float64) {
	var steps, others []float64
	for i := 0; i+1 < len(records); i++ {
		r, next := records[i], records[i+1]
		if next.Stage != r.Stage || next.Step != r.Step+1 {
			continue
		}
		step := next.Started.Sub(r.Started).Seconds()
		other := step
		for _, part := range []string{
			series.GenSeconds, series.ToolSeconds, series.TrainSeconds, series.SaveSeconds,
		} {
			other -= r.Metrics[part]
		}
		steps, others = append(steps, step), append(others, max(0, other))
	}
	if m := median(steps); m > 0 {
		share = median(others) / m
	}
	return 1000 * median(others), share
}

// evaluations lists those that were made, each once: the last stage's end is the
// end of the run.
func evaluations(st StageReport) []Evaluation {
	made := []Evaluation{st.Before, st.After}
	if st.Final.PolicyVersion != st.After.PolicyVersion {
		made = append(made, st.Final)
	}
	return made
}

// stageSummary leaves out what was not measured: a run that was stopped early
// says nothing about the stages it did not reach.
func stageSummary(st StageReport) StageSummary {
	out := StageSummary{
		Name: st.Plan.Name, Steps: st.Plan.Steps,
		ProblemsFiltered: st.Filter.Removed, ProblemsTotal: st.Filter.Problems, FilterRule: st.Filter.Rule,
	}
	if b := st.Before; b.Label != "" {
		out.AccuracyBefore, out.ToolErrorRateBefore = &b.Accuracy, &b.ToolErrorRate
		out.MeanTokensBefore, out.MeanTurnsBefore = &b.MeanTokens, &b.MeanTurns
	}
	if e := st.After; e.Label != "" {
		out.AccuracyStageEnd, out.ToolErrorRateStageEnd = &e.Accuracy, &e.ToolErrorRate
	}
	if a := st.Final; a.Label != "" {
		out.AccuracyAfter, out.ToolErrorRateAfter = &a.Accuracy, &a.ToolErrorRate
		out.MeanTokens, out.MeanTurns = &a.MeanTokens, &a.MeanTurns
	}
	return out
}

func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(xs), cmp.Compare[float64])
	return sorted[len(sorted)/2]
}

// StepRecord is everything a person watches of one step.
type StepRecord struct {
	Step      int       `json:"step"`
	Stage     int       `json:"stage"`
	StageName string    `json:"stage_name"`
	NumSteps  int       `json:"num_steps"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	// SampledBy is the version of the policy that sampled the step, where that is older
	// than the one that the step before published.
	SampledBy *int64 `json:"sampled_by,omitempty"`
	// Spans are the versions that sampled its trajectories one after another, where several
	// did. SampledBy is the first of them.
	Spans []VersionSpan `json:"spans,omitempty"`
	// Metrics are the series of the step; package series describes them.
	Metrics series.Values `json:"metrics"`
	// NotPromised says which bits of the step another run of it may have otherwise; empty
	// when all are promised.
	NotPromised string `json:"not_promised,omitempty"`
	// Busy has a part for each worker that sampled.
	Busy []series.Busy `json:"busy,omitempty"`
}

// VersionSpan is a stretch of the trajectories of a step: up to so many response tokens, or
// to the end for 0, that one version sampled.
type VersionSpan struct {
	Until   int   `json:"until,omitempty"`
	Version int64 `json:"version"`
}

// TimeSplit is wall seconds by what the run was doing.
type TimeSplit struct {
	Sample float64 `json:"sample"`
	Tool   float64 `json:"tool"`
	Train  float64 `json:"train"`
	Other  float64 `json:"other"`
}

// StageSummary compares, on a stage's held-out problems, the policy before any
// RL with the one at the end of the stage and the one at the end of the run,
// which is called after. What was not measured, because the run was stopped
// before, is nil and absent from the JSON.
type StageSummary struct {
	Name                string   `json:"name"`
	Steps               int      `json:"steps"`
	AccuracyBefore      *float64 `json:"accuracy_before,omitempty"`
	AccuracyAfter       *float64 `json:"accuracy_after,omitempty"`
	ToolErrorRateBefore *float64 `json:"tool_error_rate_before,omitempty"`
	ToolErrorRateAfter  *float64 `json:"tool_error_rate_after,omitempty"`
	MeanTokens          *float64 `json:"mean_tokens,omitempty"`
	MeanTurns           *float64 `json:"mean_turns,omitempty"`
	MeanTokensBefore    *float64 `json:"mean_tokens_before,omitempty"`
	MeanTurnsBefore     *float64 `json:"mean_turns_before,omitempty"`
	// At the end of the stage.
	AccuracyStageEnd      *float64 `json:"accuracy_stage_end,omitempty"`
	ToolErrorRateStageEnd *float64 `json:"tool_error_rate_stage_end,omitempty"`

	ProblemsFiltered int `json:"problems_filtered"`
	ProblemsTotal    int `json:"problems_total"`
	// FilterRule is the range of pass rates of problems that stay; "" where only those go
	// that every rollout solved.
	FilterRule string `json:"filter_rule,omitempty"`
}

// Summary is the outcome of a run.
type Summary struct {
	RunID        string         `json:"run_id"`
	Seed         uint64         `json:"seed"`
	ConfigSHA256 string         `json:"config_sha256"`
	WallSeconds  float64        `json:"wall_seconds"`
	PeakRSSBytes int64          `json:"peak_rss_bytes"`
	Steps        int            `json:"steps"`
	Stages       []StageSummary `json:"stages"`
	TimeSplit    TimeSplit      `json:"time_split"`
	// OrchestrationMSPerStep is the median time from one step's start to the next
	// outside sampling, tools, training and checkpoints; OrchestrationShare is its
	// share of the median step.
	OrchestrationMSPerStep float64 `json:"orchestration_ms_per_step"`
	OrchestrationShare     float64 `json:"orchestration_share"`
	PolicyVersion          int64   `json:"policy_version"`
	PolicyPath             string  `json:"policy_path"`
	Stopped                bool    `json:"stopped,omitempty"`
	// ForkOf and ForkStep are the run and step that this one went on from;
	// Restarted is the run that goes on instead of this one.
	ForkOf    string `json:"fork_of,omitempty"`
	ForkStep  int    `json:"fork_step,omitempty"`
	Restarted string `json:"restarted,omitempty"`

	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Proof is the head of the run's chain and the sum of this summary. It is the last
	// field.
	Proof *chain.End `json:"proof,omitempty"`
}
