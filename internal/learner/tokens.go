package learner

import (
	"context"
	"errors"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/internal/run/record"
)

// tokenScorer is a learner that returns for each token its log-probability under the policy
// and the policy's entropy there. Scoring changes no state.
type tokenScorer interface {
	Scores(ctx context.Context, samples []rl.Sample) (logprobs, entropies [][]float32, err error)
}

// recordTokens stores log-probabilities and entropies, under the policy before the update
// of a step, of the sampled tokens of its first groups. It is best effort: bad samples show
// in the update. A step that has a record keeps it.
func (s *session) recordTokens(ctx context.Context, step int, batch rl.Batch, groups int) {
	scorer, ok := s.learner.(tokenScorer)
	if !ok || groups == 0 || s.saves.rehearsal {
		return
	}
	if _, err := s.store.Stat(ctx, s.Layout.Step(step).Entropies()); !errors.Is(err, blob.ErrNotExist) {
		return // it comes last
	}
	var means []record.Row
	for _, samples := range firstGroups(batch.Samples, groups) {
		logprobs, entropies, err := scorer.Scores(ctx, samples)
		if err != nil {
			return
		}
		list := make([]record.TokenStats, len(samples))
		for i := range samples {
			list[i] = tokenStats(&samples[i], logprobs[i], entropies[i])
			means = append(means, record.Row{Problem: samples[i].ProblemID, Rollout: samples[i].Rollout, MeanEntropy: list[i].Mean()})
		}
		data, err := record.EncodeTokens(list)
		if err != nil {
			return
		}
		if _, err := blob.PutBytes(ctx, s.store, s.Layout.Step(step).Tokens(samples[0].ProblemID), data, blob.Always); err != nil {
			return
		}
	}
	if data, err := record.Entropies(means); err == nil {
		_, _ = blob.PutBytes(ctx, s.store, s.Layout.Step(step).Entropies(), data, blob.Always) // see above
	}
}

// firstGroups are the samples of the first problems, which stand side by side.
func firstGroups(samples []rl.Sample, groups int) [][]rl.Sample {
	var out [][]rl.Sample
	for from := 0; from < len(samples) && len(out) < groups; {
		to := from
		for to < len(samples) && samples[to].ProblemID == samples[from].ProblemID {
			to++
		}
		out, from = append(out, samples[from:to]), to
	}
	return out
}

// tokenStats returns the statistics of the tokens in the loss.
func tokenStats(s *rl.Sample, logprobs, entropies []float32) record.TokenStats {
	out := record.TokenStats{Rollout: s.Rollout}
	for i, sampled := range s.LossMask {
		if !sampled {
			continue
		}
		engine := float32(0)
		if s.RolloutLogprobs != nil {
			engine = s.RolloutLogprobs[i]
		}
		out.Differences = append(out.Differences, float64(logprobs[i])-float64(engine))
		out.Entropies = append(out.Entropies, float64(entropies[i]))
	}
	return out
}
