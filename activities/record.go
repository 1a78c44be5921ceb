package activities

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
)

// LogStep writes the record of a step.
func (c *Control) LogStep(ctx context.Context, in LogStepInput) error {
	key := artifact.Layout{RunID: in.Run.RunID}.StepLog(in.Step)
	_, err := artifact.PutOnce(ctx, c.Store, key, recordOf(in))
	return toTemporal(err)
}

// LogEvent writes one entry of the run's event log.
func (c *Control) LogEvent(ctx context.Context, in LogEventInput) error {
	key := artifact.Layout{RunID: in.Run.RunID}.Event(in.Time.UnixNano(), in.Kind)
	_, err := artifact.PutOnce(ctx, c.Store, key, in)
	return toTemporal(err)
}

func recordOf(in LogStepInput) artifact.StepRecord {
	step := in.Ended.Sub(in.Started)
	gen, tool := splitWall(in.Sample.Wall, in.Sample.SampleTime, in.Sample.ToolTime)
	other := step - in.Sample.Wall - in.Train.TrainTime
	m := map[string]float64{
		artifact.MetricReward:        in.Rollouts.RewardMean,
		artifact.MetricToolErrors:    in.Rollouts.ToolErrorRate,
		artifact.MetricCorrectErrors: in.Rollouts.CorrectErrorRate,
		artifact.MetricKeptErrors:    in.Rollouts.KeptErrorRate,
		artifact.MetricResponse:      in.Rollouts.MeanResponseTokens,
		artifact.MetricTurns:         in.Rollouts.MeanTurns,
		artifact.MetricGroups:        float64(in.Rollouts.Groups),
		artifact.MetricGroupsDropped: float64(in.Rollouts.GroupsAllCorrect + in.Rollouts.GroupsAllWrong),
		artifact.MetricEntropy:       in.Train.Metrics.Entropy,
		artifact.MetricGradNorm:      in.Train.Metrics.GradNorm,
		artifact.MetricThroughput:    perSecond(in.Sample.Tokens+in.Train.Metrics.Tokens, step),
		artifact.MetricStepSeconds:   step.Seconds(),
		artifact.MetricGenSeconds:    gen.Seconds(),
		artifact.MetricToolSeconds:   tool.Seconds(),
		artifact.MetricTrainSeconds:  in.Train.TrainTime.Seconds(),
		artifact.MetricSaveSeconds:   in.Train.SaveTime.Seconds(),
		artifact.MetricOtherSeconds:  max(0, other).Seconds(),

		"tool_call_counts/mean":                     in.Rollouts.MeanCalls,
		"response_length/clip_ratio":                in.Rollouts.ClipRatio,
		"response/aborted_ratio":                    ratio(in.Rollouts.InfraErrors, in.Rollouts.Trajectories),
		"roc/p_err_mean":                            in.Rollouts.PErrMean,
		"roc/p_format_mean":                         in.Rollouts.PFormatMean,
		"reject_equal_reward/solve_equal_all_zeros": float64(in.Rollouts.GroupsAllWrong),
		"reject_equal_reward/solve_equal_all_ones":  float64(in.Rollouts.GroupsAllCorrect),
		"down_sampling/before_sampling_trace_num":   float64(in.Rollouts.Trajectories),
		"down_sampling/after_sampling_trace_num":    float64(in.Rollouts.Kept),
		"actor/pg_loss":                             in.Train.Metrics.Loss,
		"actor/lr":                                  in.Train.Metrics.LR,
		"actor/ppo_kl":                              in.Train.Metrics.PPOKL,
		"actor/pg_clipfrac":                         in.Train.Metrics.ClipHigh,
		"actor/pg_clipfrac_lower":                   in.Train.Metrics.ClipLow,
		"training/rollout_actor_logprob_diff_mean":  in.Train.Metrics.MismatchKL,
		"perf/total_num_tokens":                     float64(in.Sample.Tokens),
		"perf/sample_tokens_per_s":                  perSecond(in.Sample.Tokens, in.Sample.Wall),
		"perf/train_tokens_per_s":                   perSecond(in.Train.Metrics.Tokens, in.Train.TrainTime),
		"training/policy_version":                   float64(in.Train.Policy.Version),
	}
	return artifact.StepRecord{
		Step: in.Step, Stage: in.Stage, StageName: in.StageName, NumSteps: in.NumSteps,
		Started: in.Started, Ended: in.Ended, Metrics: m,
	}
}

// splitWall divides wall time of concurrent rollouts by what they waited for.
func splitWall(wall, sample, tool time.Duration) (gen, tools time.Duration) {
	if sample+tool <= 0 {
		return wall, 0
	}
	tools = time.Duration(float64(wall) * float64(tool) / float64(sample+tool))
	return wall - tools, tools
}

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

func ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// FinishRun writes the series and the summary of the run.
func (c *Control) FinishRun(ctx context.Context, in FinishRunInput) (FinishRunResult, error) {
	layout := artifact.Layout{RunID: in.Run.RunID}
	records, err := artifact.StepRecords(ctx, c.Store, layout)
	if err != nil {
		return FinishRunResult{}, toTemporal(err)
	}
	if err := c.writeSeries(ctx, layout, records); err != nil {
		return FinishRunResult{}, toTemporal(err)
	}
	cfg, err := readConfig(ctx, c.Store, in.Run)
	if err != nil {
		return FinishRunResult{}, toTemporal(err)
	}
	summary := summarize(in, records)
	summary.Seed = cfg.Seed
	if summary.ConfigSHA256, err = cfg.Hash(); err != nil {
		return FinishRunResult{}, err
	}
	if c.PeakRSS != nil {
		summary.PeakRSSBytes = c.PeakRSS()
	}
	summary.PolicyPath = c.Store.Locate(layout.Policy(in.Policy.Version))
	if _, err := artifact.PutOnce(ctx, c.Store, layout.Summary(), summary); err != nil {
		return FinishRunResult{}, toTemporal(err)
	}
	return FinishRunResult{SummaryPath: c.Store.Locate(layout.Summary())}, nil
}

func (c *Control) writeSeries(ctx context.Context, layout artifact.Layout, records []artifact.StepRecord) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("encode step %d: %w", r.Step, err)
		}
	}
	_, err := blob.PutBytes(ctx, c.Store, layout.Metrics(), buf.Bytes(), blob.Always)
	return err
}

func summarize(in FinishRunInput, records []artifact.StepRecord) artifact.Summary {
	wall := in.Ended.Sub(in.Started).Seconds()
	s := artifact.Summary{
		RunID: in.Run.RunID, WallSeconds: wall, Steps: len(records), PolicyVersion: in.Policy.Version,
		Stopped: in.Stopped, Started: in.Started, Ended: in.Ended, Stages: []artifact.StageSummary{},
	}
	split := artifact.TimeSplit{Train: in.SFT.TrainTime.Seconds()}
	var steps, others []float64
	for _, r := range records {
		split.Sample += r.Metrics[artifact.MetricGenSeconds]
		split.Tool += r.Metrics[artifact.MetricToolSeconds]
		split.Train += r.Metrics[artifact.MetricTrainSeconds]
		steps = append(steps, r.Metrics[artifact.MetricStepSeconds])
		others = append(others, r.Metrics[artifact.MetricOtherSeconds])
	}
	for _, st := range in.Stages {
		s.Stages = append(s.Stages, stageSummary(st))
		for _, e := range []EvalResult{st.Before, st.After} {
			gen, tool := splitWall(e.Wall, e.SampleTime, e.ToolTime)
			split.Sample += gen.Seconds()
			split.Tool += tool.Seconds()
		}
		split.Sample += st.Filter.Wall.Seconds()
	}
	split.Other = max(0, wall-split.Sample-split.Tool-split.Train)
	s.TimeSplit = split
	s.OrchestrationMSPerStep = 1000 * median(others)
	if m := median(steps); m > 0 {
		s.OrchestrationShare = median(others) / m
	}
	return s
}

func stageSummary(st StageReport) artifact.StageSummary {
	return artifact.StageSummary{
		Name: st.Plan.Name, Steps: st.Plan.Steps,
		AccuracyBefore: st.Before.Accuracy, AccuracyAfter: st.After.Accuracy,
		ToolErrorRateBefore: st.Before.ToolErrorRate, ToolErrorRateAfter: st.After.ToolErrorRate,
		MeanTokens: st.After.MeanTokens, MeanTurns: st.After.MeanTurns,
		MeanTokensBefore: st.Before.MeanTokens, MeanTurnsBefore: st.Before.MeanTurns,
		ProblemsFiltered: st.Filter.Removed, ProblemsTotal: st.Filter.Problems,
	}
}

func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(xs), cmp.Compare[float64])
	return sorted[len(sorted)/2]
}

// SFTRecord is the stored outcome of a stretch of supervised updates.
type SFTRecord struct {
	To     int            `json:"to"`
	Total  int            `json:"total"`
	Result TrainSFTResult `json:"result"`
}
