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
	// A step that did not measure one of these lacks it.
	PublishSeconds = "timing_s/publish"
	PeakMemory     = "perf/max_memory_gb"
	Utilisation    = "perf/mfu/actor"
)

// row is a series and its value in a step; ok is false where the step has none.
type row struct {
	Metric
	of func(s *Step) (value float64, ok bool)
}

// always is a series that every step has.
func always(name, unit string, better Direction, meaning string, of func(*Step) float64) row {
	return row{Metric{name, unit, better, meaning}, func(s *Step) (float64, bool) { return of(s), true }}
}

// measured is a series that a step lacks where it is 0, which means not measured.
func measured(name, unit string, better Direction, meaning string, of func(*Step) float64) row {
	return row{Metric{name, unit, better, meaning}, func(s *Step) (float64, bool) {
		value := of(s)
		return value, value != 0
	}}
}

// windowRow is a series that a step lacks when the policy before it sampled it, so that
// the record of a run without a window has none of them.
func windowRow(name, unit string, better Direction, meaning string, of func(*Step) float64) row {
	return row{Metric{name, unit, better, meaning}, func(s *Step) (float64, bool) { return of(s), s.Staleness != 0 }}
}

// table has a row for each series of a record, under verl's name where it has one.
// A new metric is one more row.
var table = slices.Concat(rolloutRows, spreadRows, releasedRows, trainRows, timeRows, busyRows, usageRows, graphRows, windowRows)

var windowRows = []row{
	windowRow(Staleness, Number, Neither, "updates by which the policy that sampled a token is older than the one that learned, mean over tokens", func(s *Step) float64 { return s.TokenStaleness }),
	windowRow(StalenessMax, Number, Neither, "the same of the oldest policy that sampled a token", func(s *Step) float64 { return float64(s.Staleness) }),
	windowRow(PartialRatio, Share, Neither, "trajectories that several policies sampled, one after another", func(s *Step) float64 {
		return Ratio(s.Rollouts.Partial, s.Rollouts.Trajectories)
	}),
}

var rolloutRows = []row{
	always(Reward, rewardOne, Higher, "mean reward of a trajectory", func(s *Step) float64 { return s.Rollouts.RewardMean }),
	always(ToolErrors, Share, Lower, "tool calls that failed, of all trajectories", func(s *Step) float64 { return s.Rollouts.ToolErrorRate }),
	always(CorrectErrors, Share, Lower, "tool calls that failed, of correct trajectories as sampled", func(s *Step) float64 { return s.Rollouts.CorrectErrorRate }),
	always(KeptErrors, Share, Lower, "tool calls that failed, of correct trajectories after resampling", func(s *Step) float64 { return s.Rollouts.KeptErrorRate }),
	always(Response, Tokens, Neither, "mean response of a trajectory", func(s *Step) float64 { return s.Rollouts.MeanResponseTokens }),
	always(Turns, Number, Neither, "mean turns of a trajectory", func(s *Step) float64 { return s.Rollouts.MeanTurns }),
	always(Groups, Number, Neither, "groups sampled", func(s *Step) float64 { return float64(s.Rollouts.Groups) }),
	always(GroupsDropped, Number, Lower, "groups whose rewards are all equal", func(s *Step) float64 {
		return float64(s.equalGroups())
	}),
	always("tool_call_counts/mean", Number, Neither, "mean tool calls of a trajectory", func(s *Step) float64 { return s.Rollouts.MeanCalls }),
	always("response_length/clip_ratio", Share, Lower, "trajectories that met the limit of tokens", func(s *Step) float64 { return s.Rollouts.ClipRatio }),
	always("response/aborted_ratio", Share, Lower, "trajectories that the infrastructure lost", func(s *Step) float64 {
		return Ratio(s.Rollouts.InfraErrors, s.Rollouts.Trajectories)
	}),
	always("roc/p_err_mean", Share, Lower, "mean p_err of correct trajectories", func(s *Step) float64 { return s.Rollouts.PErrMean }),
	always("roc/p_format_mean", Share, Lower, "mean p_format of correct trajectories", func(s *Step) float64 { return s.Rollouts.PFormatMean }),
	always("reject_equal_reward/solve_equal_all_zeros", Number, Lower, "groups that no trajectory solved", func(s *Step) float64 {
		return float64(s.Rollouts.GroupsAllWrong)
	}),
	always("reject_equal_reward/solve_equal_all_ones", Number, Neither, "groups that each trajectory solved", func(s *Step) float64 {
		return float64(s.Rollouts.GroupsAllCorrect)
	}),
	always("down_sampling/before_sampling_trace_num", Number, Neither, "trajectories sampled", func(s *Step) float64 { return float64(s.Rollouts.Trajectories) }),
	always("down_sampling/after_sampling_trace_num", Number, Neither, "trajectories kept for the batch", func(s *Step) float64 { return float64(s.Rollouts.Kept) }),
}

// Without a reference policy, or a correction, the series of theirs are 0.
var trainRows = []row{
	always(Entropy, Nats, Neither, "entropy of the policy at a loss token", func(s *Step) float64 { return s.Train.Entropy }),
	always(GradNorm, Number, Neither, "norm of the gradient before clipping", func(s *Step) float64 { return s.Train.GradNorm }),
	always("actor/lr", Number, Neither, "learning rate", func(s *Step) float64 { return s.Train.LR }),
	always("actor/pg_loss", Number, Neither, "loss without the penalty that holds the policy near the reference", func(s *Step) float64 {
		return s.Train.Loss - s.Train.Penalty
	}),
	always("actor/pg_clipfrac", Share, Lower, "loss tokens that were clipped", func(s *Step) float64 { return s.Train.ClipLow + s.Train.ClipHigh }),
	always("actor/pg_clipfrac_low", Share, Lower, "loss tokens that were clipped at 1 - eps_low", func(s *Step) float64 { return s.Train.ClipLow }),
	always("actor/pg_clipfrac_high", Share, Lower, "loss tokens that were clipped at 1 + eps_high", func(s *Step) float64 { return s.Train.ClipHigh }),
	// verl's lower is the dual clip.
	always("actor/pg_clipfrac_lower", Share, Lower, "loss tokens that the dual clip held", func(s *Step) float64 { return s.Train.ClipDual }),
	always("actor/ppo_kl", Nats, Lower, "mean log(old policy / policy)", func(s *Step) float64 { return s.Train.PPOKL }),
	always("actor/kl_loss", Nats, Lower, "distance to the reference policy, estimator k3", func(s *Step) float64 { return s.Train.RefK3 }),
	always("actor/kl_k1", Nats, Lower, "distance to the reference policy, estimator k1", func(s *Step) float64 { return s.Train.RefK1 }),
	always("actor/kl_k2", Number, Lower, "distance to the reference policy, estimator k2", func(s *Step) float64 { return s.Train.RefK2 }),
	always("actor/untrained_frac", Share, Lower, "loss tokens that are in no gradient", func(s *Step) float64 { return s.Train.Untrained }),
	always("actor/skipped_updates", Number, Lower, "updates that were left out for the norm of their gradient", func(s *Step) float64 {
		return float64(s.Train.SkippedUpdates)
	}),
	always("training/rollout_actor_logprob_diff_mean", Nats, Lower, "mean difference of the log-probabilities of engine and trainer", func(s *Step) float64 { return s.Train.MismatchKL }),
	always("training/rollout_actor_logprob_diff_max", Nats, Lower, "largest difference of the log-probabilities of engine and trainer", func(s *Step) float64 { return s.Train.MismatchMax }),
	always("training/policy_version", Number, Neither, "policy that the step published", func(s *Step) float64 { return float64(s.PolicyVersion) }),
	always("rollout_corr/kl", Nats, Lower, "distance of engine and trainer, estimator k1", func(s *Step) float64 { return s.Train.RolloutK1 }),
	always("rollout_corr/k3_kl", Nats, Lower, "distance of engine and trainer, estimator k3", func(s *Step) float64 { return s.Train.RolloutK3 }),
	always("rollout_corr/rollout_is_mean", Number, Neither, "mean ratio of trainer to engine, before its cap", func(s *Step) float64 { return s.Train.WeightMean }),
	always("rollout_corr/rollout_is_max", Number, Lower, "largest ratio of trainer to engine, before its cap", func(s *Step) float64 { return s.Train.WeightMax }),
	always("rollout_corr/rollout_is_ratio_fraction_high", Share, Lower, "loss tokens whose ratio met the cap", func(s *Step) float64 { return s.Train.WeightCapped }),
	always("rollout_corr/rollout_rs_masked_fraction", Share, Lower, "loss tokens whose ratio is outside the mask", func(s *Step) float64 { return s.Train.WeightLeftOut }),
}

var timeRows = []row{
	always(Throughput, PerS, Higher, "tokens sampled and trained, over the step", func(s *Step) float64 { return PerSecond(s.Tokens+s.Train.Tokens, s.Wall) }),
	always("perf/total_num_tokens", Tokens, Neither, "response tokens sampled", func(s *Step) float64 { return float64(s.Tokens) }),
	always("perf/sample_tokens_per_s", PerS, Higher, "response tokens over the time of sampling", func(s *Step) float64 { return PerSecond(s.Tokens, s.Sampling) }),
	always("perf/train_tokens_per_s", PerS, Higher, "tokens that passed through the network, over the time of training", func(s *Step) float64 { return PerSecond(s.Train.Tokens, s.Training) }),
	always(StepSeconds, Seconds, Lower, "the whole step", func(s *Step) float64 { return s.Wall.Seconds() }),
	always(GenSeconds, Seconds, Lower, "sampling, while rollouts waited for the engine", func(s *Step) float64 { return (s.Sampling - s.Tools).Seconds() }),
	always(ToolSeconds, Seconds, Lower, "sampling, while rollouts waited for tools", func(s *Step) float64 { return s.Tools.Seconds() }),
	always(TrainSeconds, Seconds, Lower, "training", func(s *Step) float64 { return s.Training.Seconds() }),
	measured(PublishSeconds, Seconds, Lower, "storing the policy that the step made, a part of training", func(s *Step) float64 { return s.Publishing.Seconds() }),
	always(SaveSeconds, Seconds, Lower, "what the step waited for its checkpoint", func(s *Step) float64 { return s.Saving.Seconds() }),
	always(OtherSeconds, Seconds, Lower, "everything else", func(s *Step) float64 { return max(0, s.Wall-s.Sampling-s.Training-s.Saving).Seconds() }),
}

// Busy times, measured by the machines. timing_s/gen and timing_s/tool measure waiting,
// which is another question.
var busyRows = []row{
	always(EngineCPU, Seconds, Lower, "processor time of the processes that sample, during sampling", func(s *Step) float64 { return sumBusy(s.SamplingBusy).process.Seconds() }),
	always(SandboxCPU, Seconds, Lower, "processor time of the sandbox with its programs, during sampling", func(s *Step) float64 { return sumBusy(s.SamplingBusy).sandbox.Seconds() }),
	always(TrainerCPU, Seconds, Lower, "processor time of the trainer, during training", func(s *Step) float64 { return s.training().process.Seconds() }),
	always(RestCPU, Seconds, Lower, "processor time of all else on these machines, during sampling and training", func(s *Step) float64 {
		return (sumBusy(s.SamplingBusy).rest + s.training().rest).Seconds()
	}),
	always(IdleCPU, Seconds, Lower, "time in which cores had nothing to do, summed over cores, during sampling and training", func(s *Step) float64 {
		return (sumBusy(s.SamplingBusy).idle + s.training().idle).Seconds()
	}),
	measured(PeakMemory, "GB", Lower, "most memory that a process that sampled or trained has held since its start", func(s *Step) float64 { return s.peak() / 1e9 }),
	measured(Utilisation, Share, Higher, "operations of the model in the update, of those that the devices could have made in its time by their data sheets", (*Step).utilisation),
	always(EnginePasses, Number, Lower, "passes of the engines", func(s *Step) float64 {
		passes, _, _ := rowsOf(s.SamplingBusy)
		return passes
	}),
	always(BusyRows, Number, Higher, "mean requests that a pass of the engine served", func(s *Step) float64 {
		_, mean, _ := rowsOf(s.SamplingBusy)
		return mean
	}),
	always(BusyRowsP10, Number, Higher, "requests that all but a tenth of the passes served at least", func(s *Step) float64 {
		_, _, p10 := rowsOf(s.SamplingBusy)
		return p10
	}),
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
