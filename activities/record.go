package activities

import (
	"context"
	"maps"
	"time"

	"go.temporal.io/sdk/activity"

	"temper/internal/artifact"
	"temper/internal/failpoint"
	"temper/trainer"
)

// LogStep writes the record of a step.
func (c *Control) LogStep(ctx context.Context, in LogStepInput) error {
	key := artifact.Layout{RunID: in.Run.RunID}.StepLog(in.Step)
	failpoint.Hit("record/before-step")
	_, err := artifact.PutOnce(ctx, c.Store, key, recordOf(in))
	return toTemporal(err)
}

// LogEvent writes one entry of the run's event log, once: its time is part of its
// key, and differs when the task of a dead worker is repeated.
func (c *Control) LogEvent(ctx context.Context, in LogEventInput) error {
	if activity.IsActivity(ctx) {
		info := activity.GetInfo(ctx)
		in.ID = info.WorkflowType.Name + "/" + info.ActivityID
	}
	return toTemporal(c.logEvent(ctx, in))
}

func (c *Control) logEvent(ctx context.Context, in LogEventInput) error {
	layout := artifact.Layout{RunID: in.Run.RunID}
	key := layout.Event(in.Time.UnixNano(), in.Kind, in.Text)
	if in.ID != "" {
		if there, err := c.hasEvent(ctx, layout, key, in.ID); there || err != nil {
			return err
		}
	}
	_, err := artifact.PutOnce(ctx, c.Store, key, in)
	return err
}

// hasEvent reports whether the entry with an id is there, under the key of any time.
func (c *Control) hasEvent(ctx context.Context, layout artifact.Layout, key, id string) (bool, error) {
	infos, err := c.Store.List(ctx, layout.Events()+"/")
	if err != nil {
		return false, err
	}
	for _, info := range infos {
		if !artifact.SameEvent(info.Key, key) {
			continue
		}
		e, ok, err := artifact.Lookup[LogEventInput](ctx, c.Store, info.Key)
		if err != nil || ok && e.ID == id {
			return true, err
		}
	}
	return false, nil
}

func recordOf(in LogStepInput) artifact.StepRecord {
	step := in.Ended.Sub(in.Started)
	gen, tool := splitWall(in.Sample.Wall, in.Sample.SampleTime, in.Sample.ToolTime)
	other := step - in.Sample.Wall - in.Train.TrainTime - in.Train.SaveTime
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
		"perf/total_num_tokens":                     float64(in.Sample.Tokens),
		"perf/sample_tokens_per_s":                  perSecond(in.Sample.Tokens, in.Sample.Wall),
		"perf/train_tokens_per_s":                   perSecond(in.Train.Metrics.Tokens, in.Train.TrainTime),
		"training/policy_version":                   float64(in.Train.Policy.Version),
	}
	maps.Copy(m, trainer.Series(in.Train.Metrics))
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

// SFTRecord is the stored outcome of a stretch of supervised updates.
type SFTRecord struct {
	To     int            `json:"to"`
	Total  int            `json:"total"`
	Result TrainSFTResult `json:"result"`
	// Saved is true when a checkpoint was asked for.
	Saved bool `json:"saved,omitempty"`
}
