package external

import (
	"context"
	"fmt"
	"math"

	"temper/internal/config"
	"temper/internal/rl"
)

// Shape of the proof: a prompt and the continuation of a server, at temperatures that
// tell processed log-probabilities from raw ones.
const (
	probePrompt = 8
	probeTokens = 24
	proofSeed   = 20260101
)

var probeTemperatures = []float32{1, 2}

// prover asks servers for proofs.
type prover struct{ cfg Config }

// prove lets a server sample behind a fixed prompt and compares the log-probabilities
// that it reports with those that the policy gives to the same tokens. Labels and
// checksums prove nothing: they say what was asked for, not what is computed.
func (e prover) prove(ctx context.Context, s *replica, now heldPolicy, p published) error {
	n := min(probeTokens, e.cfg.MaxContext/2)
	prompt := e.prompt(min(probePrompt, e.cfg.MaxContext-n))
	for _, temperature := range probeTemperatures {
		ids, reported, err := e.probe(ctx, s, now, prompt, n, temperature)
		if err != nil {
			return err
		}
		want, err := e.cfg.Publisher.Logprobs(ctx, p.dir, ids, len(prompt), temperature)
		if err != nil {
			return fmt.Errorf("log-probabilities of policy %d: %w", now.version, err)
		}
		at, largest := farthest(reported, want)
		if largest <= e.cfg.Tolerance {
			e.cfg.Log.Info("engine server proved its policy", "server", s.server.address(), "policy_version", now.version,
				"temperature", temperature, "largest_difference", largest)
			continue
		}
		if temperature != 1 {
			raw, err := e.cfg.Publisher.Logprobs(ctx, p.dir, ids, len(prompt), 1)
			if err != nil {
				return fmt.Errorf("log-probabilities of policy %d: %w", now.version, err)
			}
			if _, d := farthest(reported, raw); d <= e.cfg.Tolerance {
				return fmt.Errorf("%s reports log-probabilities from before the temperature: %s (%w)", s.server.address(), rawAdvice(e.cfg.Kind), errRefused)
			}
		}
		return fmt.Errorf("%s computes another policy than version %d: log-probability %d of %d at temperature %g is %v, want %v; "+
			"the difference %.3g is above the tolerance %g%s (%w)", s.server.address(), now.version, at, len(want), temperature,
			reported[at], want[at], largest, e.cfg.Tolerance, otherAdvice(e.cfg.Kind), errRefused)
	}
	return nil
}

// prompt spreads ids over the vocabulary.
func (e prover) prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((1 + i*7919) % e.cfg.Vocab)
	}
	return ids
}

// probe samples n tokens behind the prompt.
func (e prover) probe(ctx context.Context, s *replica, now heldPolicy, prompt []int32, n int, temperature float32) (ids []int32, logprobs []float32, err error) {
	ids = append(ids, prompt...)
	for empty := 0; len(logprobs) < n; {
		c := call{
			id: fmt.Sprintf("temper-proof-%d", requests.Add(1)), tokens: ids, maxTokens: n - len(logprobs),
			temperature: temperature, seed: rl.Seed(proofSeed, "proof", uint64(len(ids))),
		}
		a, err := s.server.generate(ctx, c)
		if err == nil {
			err = a.check(c, e.cfg.Vocab, s.server.label(now.label))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: proof of policy %d: %w", s.server.address(), now.version, err)
		}
		if empty++; len(a.tokens) > 0 {
			empty = 0
		} else if empty > maxEmpty {
			return nil, nil, fmt.Errorf("%s: proof of policy %d: no token in %d answers (%w)", s.server.address(), now.version, empty, errLost)
		}
		ids, logprobs = append(ids, a.tokens...), append(logprobs, a.logprobs...)
	}
	return ids, logprobs, nil
}

// farthest is the largest difference and where it is; NaN is infinitely far.
func farthest(got, want []float32) (at int, largest float64) {
	if len(got) != len(want) {
		return 0, math.Inf(1)
	}
	for i := range got {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			return i, math.Inf(1)
		}
		if d > largest {
			at, largest = i, d
		}
	}
	return at, largest
}

func rawAdvice(kind string) string {
	switch kind {
	case config.EngineVLLM:
		return "start vLLM with --logprobs-mode processed_logprobs"
	case config.EngineSGLang:
		return "start SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB"
	default:
		return "this llama.cpp does not know post_sampling_probs"
	}
}

// otherAdvice names what has made servers fail the proof.
func otherAdvice(kind string) string {
	switch kind {
	case config.EngineVLLM:
		return "; vLLM on a CPU keeps an old output head when it is tied to the embedding"
	case config.EngineLlamaCpp:
		return "; llama.cpp in float32 wants --flash-attn off --cache-type-k f32 --cache-type-v f32"
	default:
		return ""
	}
}
