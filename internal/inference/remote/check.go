package remote

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"temper/internal/inference"
	"temper/internal/rl"
)

// mostLogprob is above any log-probability by what float32 may be off.
const mostLogprob = 1e-4

// checkStatus finds what cannot be true of an engine, and what cannot serve the caller.
func (e *Engine) checkStatus(st Status) error {
	x := e.expect
	switch {
	case x.Run != "" && st.Run != x.Run:
		return fmt.Errorf("serves run %.64q, want %q", st.Run, x.Run)
	case x.Model != "" && st.Model != x.Model:
		return fmt.Errorf("serves a model with fingerprint %.12q, the run has %.12s", st.Model, x.Model)
	case x.Vocab > 0 && st.Vocab != x.Vocab:
		return fmt.Errorf("has a vocabulary of %d, the run has %d", st.Vocab, x.Vocab)
	case st.Capacity < 1:
		return fmt.Errorf("reports a capacity of %d tokens, want at least 1", st.Capacity)
	case st.MaxContext < 1:
		return fmt.Errorf("reports a max_context of %d, want at least 1", st.MaxContext)
	case st.Used < 0 || st.Running < 0 || st.Waiting < 0 || st.Passes < 0 || st.Tokens < 0:
		return fmt.Errorf("reports a load below 0: used %d, running %d, waiting %d", st.Used, st.Running, st.Waiting)
	case st.Version < -1:
		return fmt.Errorf("reports version %d", st.Version)
	}
	return nil
}

// readGenerated reads an answer and finds what cannot be one to the request.
func (e *Engine) readGenerated(req inference.Request, out Generated) (inference.Generation, error) {
	gen := inference.Generation{Kept: out.Kept, Top: out.Top, Finish: out.Finish, Version: out.Version}
	var errTokens, errLogprobs error
	gen.Tokens, errTokens = out.Tokens.Values()
	gen.Logprobs, errLogprobs = out.Logprobs.Values()
	if err := errors.Join(errTokens, errLogprobs); err != nil {
		return gen, err
	}
	n := len(gen.Tokens)
	switch {
	case len(gen.Logprobs) != n:
		return gen, fmt.Errorf("%d tokens with %d log-probs", n, len(gen.Logprobs))
	case req.Sampler == nil && len(gen.Kept) > 0, req.Sampler != nil && len(gen.Kept) != n:
		return gen, fmt.Errorf("%d tokens, and what was kept at %d positions", n, len(gen.Kept))
	case req.TopLogprobs == 0 && len(gen.Top) > 0, req.TopLogprobs > 0 && len(gen.Top) != n:
		return gen, fmt.Errorf("%d tokens, and the likeliest ones at %d positions", n, len(gen.Top))
	case n > req.MaxTokens:
		return gen, fmt.Errorf("%d tokens, asked for %d", n, req.MaxTokens)
	case req.Version >= 0 && gen.Version != req.Version:
		return gen, fmt.Errorf("sampled with version %d, asked for %d", gen.Version, req.Version)
	case gen.Version < 0:
		return gen, fmt.Errorf("sampled with version %d", gen.Version)
	}
	for i, id := range gen.Tokens {
		if id < 0 || e.expect.Vocab > 0 && int(id) >= e.expect.Vocab {
			return gen, fmt.Errorf("token %d at position %d is outside the vocabulary of %d", id, i, e.expect.Vocab)
		}
		if lp := float64(gen.Logprobs[i]); math.IsNaN(lp) || math.IsInf(lp, 0) || lp > mostLogprob {
			return gen, fmt.Errorf("log-prob %v at position %d", lp, i)
		}
	}
	return gen, checkFinish(req, gen)
}

// checkFinish compares why a generation ended with where it ended.
func checkFinish(req inference.Request, out inference.Generation) error {
	n := len(out.Tokens)
	switch out.Finish {
	case rl.FinishStop:
		if n == 0 || !slices.Contains(req.Stop, out.Tokens[n-1]) {
			return fmt.Errorf("finished by %q after %d tokens without a stop token", out.Finish, n)
		}
	case rl.FinishLength:
		if n != req.MaxTokens {
			return fmt.Errorf("finished by %q after %d tokens, asked for %d", out.Finish, n, req.MaxTokens)
		}
	case rl.FinishAbort: // cut by the caller, or by an engine that ends
	default:
		return fmt.Errorf("finished by %.32q", out.Finish)
	}
	return nil
}
