package workers

import (
	"math"
	"slices"
	"testing"

	"temper/internal/inference"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/trainer/checkpoint"
	"temper/trainer/model"
)

// publish stores a policy of random weights as a version of a run.
func publish(t *testing.T, h *runtest.Run, version int64) run.Policy {
	t.Helper()
	loaded, err := run.Load(t.Context(), h.Store, h.Ref)
	if err != nil {
		t.Fatal(err)
	}
	weights, err := model.InitialTensors(loaded.Model, uint64(version)+100) //nolint:gosec // small
	if err != nil {
		t.Fatal(err)
	}
	p := checkpoint.Policy{Model: loaded.Model, Tokenizer: loaded.TokenizerJSON}
	ref, err := checkpoint.PublishFrom(t.Context(), h.Store, h.Layout.Policy(version).Dir(), p, checkpoint.SourceOf(weights))
	if err != nil {
		t.Fatal(err)
	}
	return run.Policy{Version: version, Ref: ref}
}

// TestTokensOfSpansAreOfTheirPolicies: the policy of each span, asked anew for each token of
// it behind all tokens before, samples that token and gives it the log-probability that the
// trajectory has, bit for bit. So the weights of importance sampling compare with the
// policy that sampled.
func TestTokensOfSpansAreOfTheirPolicies(t *testing.T) {
	h := runtest.New(t, map[string]string{"rl.window": "2", "rl.partial_rollout_tokens": "12", "rl.loss.old_logprobs": "rollout", "rl.problems_per_step": "2"})
	var spans []run.PolicySpan
	for i, until := range []int{12, 24, 0} {
		spans = append(spans, run.PolicySpan{Until: until, Policy: publish(t, h, int64(i))})
	}
	r := Remake(remakeOptions(h.Store)).NewSampling(h.Store)
	defer r.Close()
	ids := h.Selected(t, 1, 3)
	for i, s := range spans {
		in := sampling.GroupsInput{Run: h.Ref, Stage: 1, Step: 3, ProblemIDs: ids, Policy: s.Policy, Until: s.Until, Before: spans[:i]}
		out, err := r.SampleGroups(t.Context(), in, r.NewProgress())
		if err != nil || out.Open > 0 != (i < 2) {
			t.Fatalf("span %d: %+v (%v)", i, out, err)
		}
	}
	loaded, err := run.Load(t.Context(), h.Store, h.Ref)
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[int64]int{}
	for _, s := range spans {
		engine, err := newEngineFactory(h.Store, "", 8, remakeOptions(h.Store).Log).make(loaded)
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Load(t.Context(), s.Policy.Ref, s.Policy.Version); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			for _, tr := range runtest.ReadLines[rl.Trajectory](t, h.Store, h.Layout.Step(3).Group(id)) {
				for at := range tr.Tokens {
					if !tr.LossMask[at] || tr.VersionAt(at) != s.Policy.Version {
						continue
					}
					tokens[s.Policy.Version]++
					got, err := engine.Generate(t.Context(), inference.Request{
						Tokens: tr.Tokens[:at], MaxTokens: 1, Stop: loaded.Format.Stop(), Temperature: float32(h.Config.Rollout.Temperature), Seed: tr.Seed, Version: s.Policy.Version,
					})
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(got.Tokens, tr.Tokens[at:at+1]) || math.Float32bits(got.Logprobs[0]) != math.Float32bits(tr.RolloutLogprobs[at]) {
						t.Fatalf("%s/%d: version %d samples %v with %v at token %d, and the trajectory has %d with %v",
							id, tr.Rollout, s.Policy.Version, got.Tokens, got.Logprobs, at, tr.Tokens[at], tr.RolloutLogprobs[at])
					}
				}
			}
		}
		engine.Close()
	}
	if tokens[0] < 50 || tokens[1] < 50 || tokens[2] < 50 {
		t.Errorf("tokens by version: %v", tokens)
	}
}
