package trainer

import "temper/internal/rl"

// Series are the metrics of a step of policy updates under verl's names where
// it has one. Without a reference policy, or a correction, theirs are 0.
func Series(m rl.TrainMetrics) map[string]float64 {
	return map[string]float64{
		"actor/entropy":           m.Entropy,
		"actor/grad_norm":         m.GradNorm,
		"actor/lr":                m.LR,
		"actor/pg_loss":           m.Loss - m.Penalty,
		"actor/pg_clipfrac":       m.ClipLow + m.ClipHigh,
		"actor/pg_clipfrac_low":   m.ClipLow,
		"actor/pg_clipfrac_high":  m.ClipHigh,
		"actor/pg_clipfrac_lower": m.ClipDual, // verl's lower is the dual clip
		"actor/ppo_kl":            m.PPOKL,
		"actor/kl_loss":           m.RefK3,
		"actor/kl_k1":             m.RefK1,
		"actor/kl_k2":             m.RefK2,
		"actor/untrained_frac":    m.Untrained,
		"actor/skipped_updates":   float64(m.SkippedUpdates),

		"training/rollout_actor_logprob_diff_mean":    m.MismatchKL,
		"training/rollout_actor_logprob_diff_max":     m.MismatchMax,
		"rollout_corr/kl":                             m.RolloutK1,
		"rollout_corr/k3_kl":                          m.RolloutK3,
		"rollout_corr/rollout_is_mean":                m.WeightMean,
		"rollout_corr/rollout_is_max":                 m.WeightMax,
		"rollout_corr/rollout_is_ratio_fraction_high": m.WeightCapped,
		"rollout_corr/rollout_rs_masked_fraction":     m.WeightLeftOut,
	}
}
