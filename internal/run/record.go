package run

import (
	"context"
	"maps"
	"time"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/failpoint"
	"temper/internal/series"
	"temper/trainer"
)

// StepInput is everything a step has to say.
type StepInput struct {
	Run       Ref          `json:"run"`
	Stage     int          `json:"stage"`
	StageName string       `json:"stage_name"`
	Step      int          `json:"step"`
	NumSteps  int          `json:"num_steps"`
	Sample    Sampled      `json:"sample"`
	Rollouts  StepRollouts `json:"rollouts"`
	Train     Trained      `json:"train"`
	Started   time.Time    `json:"started"`
	Ended     time.Time    `json:"ended"`
}

// LogStep writes the record of a step, once.
func LogStep(ctx context.Context, store blob.Store, in StepInput) error {
	failpoint.Hit("record/before-step")
	_, err := artifact.PutOnce(ctx, store, artifact.Layout{RunID: in.Run.RunID}.StepLog(in.Step), recordOf(in))
	return err
}

// LogEvent writes one entry of the run's event log, once where it has an ID: its
// time is part of its key, and differs when the task of a dead worker is repeated.
func LogEvent(ctx context.Context, store blob.Store, in Event) error {
	layout := artifact.Layout{RunID: in.Run.RunID}
	key := layout.Event(in.Time.UnixNano(), in.Kind, in.Text)
	if in.ID != "" {
		if there, err := hasEvent(ctx, store, layout, key, in.ID); there || err != nil {
			return err
		}
	}
	_, err := artifact.PutOnce(ctx, store, key, in)
	return err
}

// hasEvent reports whether the entry with an id is there, under the key of any time.
func hasEvent(ctx context.Context, store blob.Store, layout artifact.Layout, key, id string) (bool, error) {
	infos, err := store.List(ctx, layout.Events()+"/")
	if err != nil {
		return false, err
	}
	for _, info := range infos {
		if !artifact.SameEvent(info.Key, key) {
			continue
		}
		e, ok, err := artifact.Lookup[Event](ctx, store, info.Key)
		if err != nil || ok && e.ID == id {
			return true, err
		}
	}
	return false, nil
}

func recordOf(in StepInput) artifact.StepRecord {
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
		artifact.MetricThroughput:    series.PerSecond(in.Sample.Tokens+in.Train.Metrics.Tokens, step),
		artifact.MetricStepSeconds:   step.Seconds(),
		artifact.MetricGenSeconds:    gen.Seconds(),
		artifact.MetricToolSeconds:   tool.Seconds(),
		artifact.MetricTrainSeconds:  in.Train.TrainTime.Seconds(),
		artifact.MetricSaveSeconds:   in.Train.SaveTime.Seconds(),
		artifact.MetricOtherSeconds:  max(0, other).Seconds(),

		"tool_call_counts/mean":                     in.Rollouts.MeanCalls,
		"response_length/clip_ratio":                in.Rollouts.ClipRatio,
		"response/aborted_ratio":                    series.Ratio(in.Rollouts.InfraErrors, in.Rollouts.Trajectories),
		"roc/p_err_mean":                            in.Rollouts.PErrMean,
		"roc/p_format_mean":                         in.Rollouts.PFormatMean,
		"reject_equal_reward/solve_equal_all_zeros": float64(in.Rollouts.GroupsAllWrong),
		"reject_equal_reward/solve_equal_all_ones":  float64(in.Rollouts.GroupsAllCorrect),
		"down_sampling/before_sampling_trace_num":   float64(in.Rollouts.Trajectories),
		"down_sampling/after_sampling_trace_num":    float64(in.Rollouts.Kept),
		"perf/total_num_tokens":                     float64(in.Sample.Tokens),
		"perf/sample_tokens_per_s":                  series.PerSecond(in.Sample.Tokens, in.Sample.Wall),
		"perf/train_tokens_per_s":                   series.PerSecond(in.Train.Metrics.Tokens, in.Train.TrainTime),
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
