package series

import (
	"maps"
	"slices"
)

// Direction says which way a number is better.
type Direction string

// Directions of a series.
const (
	Higher  Direction = "higher"
	Lower   Direction = "lower"
	Neither Direction = ""
)

// Units of series.
const (
	Share     = "share" // of 1
	Seconds   = "s"
	Tokens    = "tokens"
	PerS      = "tokens/s"
	Nats      = "nats"
	Number    = "" // a count or a number without unit
	rewardOne = "reward"
)

// Metric describes a series.
type Metric struct {
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Better  Direction `json:"better"`
	Meaning string    `json:"meaning"`
}

// ToolErrorRate is the name of the share of tool calls that failed, where a number
// has no area before it.
const ToolErrorRate = "tool_error_rate"

// Names of the series that other code reads back. The others are in the table alone.
const (
	Reward        = "critic/rewards/mean"
	ToolErrors    = "rollout/" + ToolErrorRate
	CorrectErrors = "roc/correct_" + ToolErrorRate
	KeptErrors    = "roc/kept_correct_" + ToolErrorRate
	Staleness     = "rollout/staleness"
	StalenessMax  = "rollout/staleness_max"
	PartialRatio  = "rollout/partial_ratio"
	Response      = "response_length/mean"
	Turns         = "num_turns/mean"
	Entropy       = "actor/entropy"
	GradNorm      = "actor/grad_norm"
	Throughput    = "perf/throughput"
	Groups        = "rollout/groups"
	GroupsDropped = "rollout/groups_dropped"
	StepSeconds   = "timing_s/step"
	GenSeconds    = "timing_s/gen"
	ToolSeconds   = "timing_s/tool"
	TrainSeconds  = "timing_s/update_actor"
	SaveSeconds   = "timing_s/save_checkpoint"
	OtherSeconds  = "timing_s/other"
	EngineCPU     = "cpu_s/engine"
	SandboxCPU    = "cpu_s/sandbox"
	TrainerCPU    = "cpu_s/trainer"
	RestCPU       = "cpu_s/rest"
	IdleCPU       = "cpu_s/idle"
	EnginePasses  = "engine/passes"
	BusyRows      = "engine/busy_rows_mean"
	BusyRowsP10   = "engine/busy_rows_p10"
	// These are left out where nobody measured them.
	PublishSeconds = "timing_s/publish"
	PeakMemory     = "perf/max_memory_gb"
	Utilisation    = "perf/mfu/actor"
)

// row is a series and how it is made of a step.
type row struct {
	Metric
	of func(s *Step) float64
}

// table has a row for each series of a record, under verl's name where it has one.
// A new metric is one more row.
var table = slices.Concat(rolloutRows, spreadRows, releasedRows, trainRows, timeRows, busyRows, usageRows, graphRows, windowRows)

// windowRows are left out of a step that was sampled by the policy before it, so that
// the record of a run without a window has none of them.
var windowRows = []row{
	{Metric{Staleness, Number, Neither, "updates by which the policy that sampled a token is older than the one that learned, mean over tokens"}, func(s *Step) float64 { return s.TokenStaleness }},
	{Metric{StalenessMax, Number, Neither, "the same of the oldest policy that sampled a token"}, func(s *Step) float64 { return float64(s.Staleness) }},
	{Metric{PartialRatio, Share, Neither, "trajectories that several policies sampled, one after another"}, func(s *Step) float64 {
		return Ratio(s.Rollouts.Partial, s.Rollouts.Trajectories)
	}},
}

var rolloutRows = []row{
	{Metric{Reward, rewardOne, Higher, "mean reward of a trajectory"}, func(s *Step) float64 { return s.Rollouts.RewardMean }},
	{Metric{ToolErrors, Share, Lower, "tool calls that failed, of all trajectories"}, func(s *Step) float64 { return s.Rollouts.ToolErrorRate }},
	{Metric{CorrectErrors, Share, Lower, "tool calls that failed, of correct trajectories as sampled"}, func(s *Step) float64 { return s.Rollouts.CorrectErrorRate }},
	{Metric{KeptErrors, Share, Lower, "tool calls that failed, of correct trajectories after resampling"}, func(s *Step) float64 { return s.Rollouts.KeptErrorRate }},
	{Metric{Response, Tokens, Neither, "mean response of a trajectory"}, func(s *Step) float64 { return s.Rollouts.MeanResponseTokens }},
	{Metric{Turns, Number, Neither, "mean turns of a trajectory"}, func(s *Step) float64 { return s.Rollouts.MeanTurns }},
	{Metric{Groups, Number, Neither, "groups sampled"}, func(s *Step) float64 { return float64(s.Rollouts.Groups) }},
	{Metric{GroupsDropped, Number, Lower, "groups whose rewards are all equal"}, func(s *Step) float64 {
		return float64(s.Rollouts.GroupsAllCorrect + s.Rollouts.GroupsAllWrong)
	}},
	{Metric{"tool_call_counts/mean", Number, Neither, "mean tool calls of a trajectory"}, func(s *Step) float64 { return s.Rollouts.MeanCalls }},
	{Metric{"response_length/clip_ratio", Share, Lower, "trajectories that met the limit of tokens"}, func(s *Step) float64 { return s.Rollouts.ClipRatio }},
	{Metric{"response/aborted_ratio", Share, Lower, "trajectories that the infrastructure lost"}, func(s *Step) float64 {
		return Ratio(s.Rollouts.InfraErrors, s.Rollouts.Trajectories)
	}},
	{Metric{"roc/p_err_mean", Share, Lower, "mean p_err of correct trajectories"}, func(s *Step) float64 { return s.Rollouts.PErrMean }},
	{Metric{"roc/p_format_mean", Share, Lower, "mean p_format of correct trajectories"}, func(s *Step) float64 { return s.Rollouts.PFormatMean }},
	{Metric{"reject_equal_reward/solve_equal_all_zeros", Number, Lower, "groups that no trajectory solved"}, func(s *Step) float64 {
		return float64(s.Rollouts.GroupsAllWrong)
	}},
	{Metric{"reject_equal_reward/solve_equal_all_ones", Number, Neither, "groups that each trajectory solved"}, func(s *Step) float64 {
		return float64(s.Rollouts.GroupsAllCorrect)
	}},
	{Metric{"down_sampling/before_sampling_trace_num", Number, Neither, "trajectories sampled"}, func(s *Step) float64 { return float64(s.Rollouts.Trajectories) }},
	{Metric{"down_sampling/after_sampling_trace_num", Number, Neither, "trajectories kept for the batch"}, func(s *Step) float64 { return float64(s.Rollouts.Kept) }},
}

// Without a reference policy, or a correction, the series of theirs are 0.
var trainRows = []row{
	{Metric{Entropy, Nats, Neither, "entropy of the policy at a loss token"}, func(s *Step) float64 { return s.Train.Entropy }},
	{Metric{GradNorm, Number, Neither, "norm of the gradient before clipping"}, func(s *Step) float64 { return s.Train.GradNorm }},
	{Metric{"actor/lr", Number, Neither, "learning rate"}, func(s *Step) float64 { return s.Train.LR }},
	{Metric{"actor/pg_loss", Number, Neither, "loss without the penalty that holds the policy near the reference"}, func(s *Step) float64 {
		return s.Train.Loss - s.Train.Penalty
	}},
	{Metric{"actor/pg_clipfrac", Share, Lower, "loss tokens that were clipped"}, func(s *Step) float64 { return s.Train.ClipLow + s.Train.ClipHigh }},
	{Metric{"actor/pg_clipfrac_low", Share, Lower, "loss tokens that were clipped at 1 - eps_low"}, func(s *Step) float64 { return s.Train.ClipLow }},
	{Metric{"actor/pg_clipfrac_high", Share, Lower, "loss tokens that were clipped at 1 + eps_high"}, func(s *Step) float64 { return s.Train.ClipHigh }},
	// verl's lower is the dual clip.
	{Metric{"actor/pg_clipfrac_lower", Share, Lower, "loss tokens that the dual clip held"}, func(s *Step) float64 { return s.Train.ClipDual }},
	{Metric{"actor/ppo_kl", Nats, Lower, "mean log(old policy / policy)"}, func(s *Step) float64 { return s.Train.PPOKL }},
	{Metric{"actor/kl_loss", Nats, Lower, "distance to the reference policy, estimator k3"}, func(s *Step) float64 { return s.Train.RefK3 }},
	{Metric{"actor/kl_k1", Nats, Lower, "distance to the reference policy, estimator k1"}, func(s *Step) float64 { return s.Train.RefK1 }},
	{Metric{"actor/kl_k2", Number, Lower, "distance to the reference policy, estimator k2"}, func(s *Step) float64 { return s.Train.RefK2 }},
	{Metric{"actor/untrained_frac", Share, Lower, "loss tokens that are in no gradient"}, func(s *Step) float64 { return s.Train.Untrained }},
	{Metric{"actor/skipped_updates", Number, Lower, "updates that were left out for the norm of their gradient"}, func(s *Step) float64 {
		return float64(s.Train.SkippedUpdates)
	}},
	{Metric{"training/rollout_actor_logprob_diff_mean", Nats, Lower, "mean difference of the log-probabilities of engine and trainer"}, func(s *Step) float64 { return s.Train.MismatchKL }},
	{Metric{"training/rollout_actor_logprob_diff_max", Nats, Lower, "largest difference of the log-probabilities of engine and trainer"}, func(s *Step) float64 { return s.Train.MismatchMax }},
	{Metric{"training/policy_version", Number, Neither, "policy that the step published"}, func(s *Step) float64 { return float64(s.PolicyVersion) }},
	{Metric{"rollout_corr/kl", Nats, Lower, "distance of engine and trainer, estimator k1"}, func(s *Step) float64 { return s.Train.RolloutK1 }},
	{Metric{"rollout_corr/k3_kl", Nats, Lower, "distance of engine and trainer, estimator k3"}, func(s *Step) float64 { return s.Train.RolloutK3 }},
	{Metric{"rollout_corr/rollout_is_mean", Number, Neither, "mean ratio of trainer to engine, before its cap"}, func(s *Step) float64 { return s.Train.WeightMean }},
	{Metric{"rollout_corr/rollout_is_max", Number, Lower, "largest ratio of trainer to engine, before its cap"}, func(s *Step) float64 { return s.Train.WeightMax }},
	{Metric{"rollout_corr/rollout_is_ratio_fraction_high", Share, Lower, "loss tokens whose ratio met the cap"}, func(s *Step) float64 { return s.Train.WeightCapped }},
	{Metric{"rollout_corr/rollout_rs_masked_fraction", Share, Lower, "loss tokens whose ratio is outside the mask"}, func(s *Step) float64 { return s.Train.WeightLeftOut }},
}

var timeRows = []row{
	{Metric{Throughput, PerS, Higher, "tokens sampled and trained, over the step"}, func(s *Step) float64 { return PerSecond(s.Tokens+s.Train.Tokens, s.Wall) }},
	{Metric{"perf/total_num_tokens", Tokens, Neither, "response tokens sampled"}, func(s *Step) float64 { return float64(s.Tokens) }},
	{Metric{"perf/sample_tokens_per_s", PerS, Higher, "response tokens over the time of sampling"}, func(s *Step) float64 { return PerSecond(s.Tokens, s.Sampling) }},
	{Metric{"perf/train_tokens_per_s", PerS, Higher, "tokens that passed through the network, over the time of training"}, func(s *Step) float64 { return PerSecond(s.Train.Tokens, s.Training) }},
	{Metric{StepSeconds, Seconds, Lower, "the whole step"}, func(s *Step) float64 { return s.Wall.Seconds() }},
	{Metric{GenSeconds, Seconds, Lower, "sampling, while rollouts waited for the engine"}, func(s *Step) float64 { return (s.Sampling - s.Tools).Seconds() }},
	{Metric{ToolSeconds, Seconds, Lower, "sampling, while rollouts waited for tools"}, func(s *Step) float64 { return s.Tools.Seconds() }},
	{Metric{TrainSeconds, Seconds, Lower, "training"}, func(s *Step) float64 { return s.Training.Seconds() }},
	{Metric{PublishSeconds, Seconds, Lower, "storing the policy that the step made, a part of training"}, func(s *Step) float64 { return s.Publishing.Seconds() }},
	{Metric{SaveSeconds, Seconds, Lower, "what the step waited for its checkpoint"}, func(s *Step) float64 { return s.Saving.Seconds() }},
	{Metric{OtherSeconds, Seconds, Lower, "everything else"}, func(s *Step) float64 { return max(0, s.Wall-s.Sampling-s.Training-s.Saving).Seconds() }},
}

// What was busy, measured by the machines. timing_s/gen and timing_s/tool say who was waited
// for, which is another question.
var busyRows = []row{
	{Metric{EngineCPU, Seconds, Lower, "processor time of the processes that sample, during sampling"}, func(s *Step) float64 { return sumBusy(s.SamplingBusy).process.Seconds() }},
	{Metric{SandboxCPU, Seconds, Lower, "processor time of the sandbox with its programs, during sampling"}, func(s *Step) float64 { return sumBusy(s.SamplingBusy).sandbox.Seconds() }},
	{Metric{TrainerCPU, Seconds, Lower, "processor time of the trainer, during training"}, func(s *Step) float64 { return s.training().process.Seconds() }},
	{Metric{RestCPU, Seconds, Lower, "processor time of all else on these machines, during sampling and training"}, func(s *Step) float64 {
		return (sumBusy(s.SamplingBusy).rest + s.training().rest).Seconds()
	}},
	{Metric{IdleCPU, Seconds, Lower, "time in which cores had nothing to do, summed over cores, during sampling and training"}, func(s *Step) float64 {
		return (sumBusy(s.SamplingBusy).idle + s.training().idle).Seconds()
	}},
	{Metric{PeakMemory, "GB", Lower, "most memory that a process that sampled or trained has held since its start"}, func(s *Step) float64 { return s.peak() / 1e9 }},
	{Metric{Utilisation, Share, Higher, "operations of the model in the update, of those that the devices could have made in its time by their data sheets"}, (*Step).utilisation},
	{Metric{EnginePasses, Number, Lower, "passes of the engines"}, func(s *Step) float64 {
		passes, _, _ := rowsOf(s.SamplingBusy)
		return passes
	}},
	{Metric{BusyRows, Number, Higher, "mean requests that a pass of the engine served"}, func(s *Step) float64 {
		_, mean, _ := rowsOf(s.SamplingBusy)
		return mean
	}},
	{Metric{BusyRowsP10, Number, Higher, "requests that all but a tenth of the passes served at least"}, func(s *Step) float64 {
		_, _, p10 := rowsOf(s.SamplingBusy)
		return p10
	}},
}

// All describes every series of a record, by name.
func All() []Metric {
	byName := map[string]Metric{}
	for _, r := range table {
		byName[r.Name] = r.Metric
	}
	out := make([]Metric, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out
}
