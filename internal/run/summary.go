package run

import (
	"time"

	"temper/internal/run/chain"
	"temper/internal/series"
)

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
	// NotPromised tells which bits of the step another run of it may have otherwise; empty
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

// StageSummary compares, on a stage's held-out problems, the policy before any RL with the
// one at the end of the stage and the one at the end of the run, which is called after. A
// value that was not measured, because the run was stopped before, is nil and absent from
// the JSON.
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
	// ForkOf and ForkStep are the run and step from which this one started; Restarted is
	// the run that replaces this one.
	ForkOf    string `json:"fork_of,omitempty"`
	ForkStep  int    `json:"fork_step,omitempty"`
	Restarted string `json:"restarted,omitempty"`

	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Proof is the head of the run's chain and the sum of this summary. It is the last
	// field.
	Proof *chain.End `json:"proof,omitempty"`
}
