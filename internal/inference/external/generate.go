package external

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"temper/internal/inference"
	"temper/internal/rl"
)

// maxEmpty bounds answers in a row that bring no token forward.
const maxEmpty = 20

// Generate implements inference.Engine. Equal requests have equal seeds, and servers may
// answer them differently all the same: nothing forces their draws.
func (e *Engine) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	out := inference.Generation{Finish: rl.FinishAbort, Version: e.Version()}
	if errors.Is(context.Cause(ctx), inference.ErrCut) {
		return out, nil
	}
	if err := ctx.Err(); err != nil {
		return inference.Generation{}, err
	}
	if err := e.cfg.checkRequest(req); err != nil {
		return inference.Generation{}, err
	}
	now, leave, err := e.begin(ctx, req.Version)
	if err != nil {
		return ended(ctx, out, err)
	}
	defer leave()
	out.Version = now.version
	deadline := time.Now().Add(e.cfg.Patience)
	for empty := 0; ; {
		a, err := e.ask(ctx, now, next(req, out))
		out.Tokens, out.Logprobs = append(out.Tokens, a.tokens...), append(out.Logprobs, a.logprobs...)
		e.tokens.Add(int64(len(a.tokens)))
		if len(a.tokens) > 0 {
			empty, deadline = 0, time.Now().Add(e.cfg.Patience)
		}
		switch {
		case ctx.Err() != nil:
			return ended(ctx, out, ctx.Err())
		case err == nil && a.finish != rl.FinishAbort:
			out.Finish = a.finish
			return out, nil
		case len(out.Tokens) == req.MaxTokens: // taken away behind the last token
			out.Finish = rl.FinishLength
			return out, nil
		case err != nil && !errors.Is(err, errLost):
			return inference.Generation{}, portError(err)
		case time.Now().After(deadline):
			return inference.Generation{}, fmt.Errorf("engine %s: no answer in %s: %w", e.cfg.Kind, e.cfg.Patience, errors.Join(err, inference.ErrOverloaded))
		}
		if empty++; err == nil && empty > maxEmpty {
			return inference.Generation{}, fmt.Errorf("engine %s: %d answers in a row without a token: %w", e.cfg.Kind, empty, inference.ErrOverloaded)
		}
		if err := sleep(ctx, time.Duration(empty)*50*time.Millisecond); err != nil {
			return ended(ctx, out, err)
		}
	}
}

// ended is the outcome when ctx is over: a generation that was cut keeps what it has.
func ended(ctx context.Context, out inference.Generation, err error) (inference.Generation, error) {
	if errors.Is(context.Cause(ctx), inference.ErrCut) {
		out.Finish = rl.FinishAbort
		return out, nil
	}
	return inference.Generation{}, err
}

// portError maps what a server did to the errors of the port.
func portError(err error) error {
	if errors.Is(err, errBusy) {
		return fmt.Errorf("%w: %w", inference.ErrOverloaded, err)
	}
	return err
}

// next asks for the rest of a generation. Its seed differs from the earlier parts.
func next(req inference.Request, sofar inference.Generation) call {
	tokens := req.Tokens
	if len(sofar.Tokens) > 0 {
		tokens = slices.Concat(req.Tokens, sofar.Tokens)
	}
	return call{
		id: fmt.Sprintf("temper-%016x-%d-%d", req.Seed, len(tokens), requests.Add(1)), session: req.Session,
		tokens: tokens, maxTokens: req.MaxTokens - len(sofar.Tokens), stop: req.Stop,
		temperature: req.Temperature, seed: rl.Seed(req.Seed, "external", uint64(len(tokens))),
	}
}

// checkRequest refuses what no server could serve. An id outside the vocabulary ends
// a whole vLLM server, so it must not get there.
func (c Config) checkRequest(req inference.Request) error {
	if len(req.Tokens) == 0 || req.MaxTokens < 1 {
		return fmt.Errorf("request of %d+%d tokens, want at least 1+1", len(req.Tokens), req.MaxTokens)
	}
	if size := len(req.Tokens) + req.MaxTokens; size > c.MaxContext {
		return fmt.Errorf("request of %d+%d tokens, max_context is %d: %w", len(req.Tokens), req.MaxTokens, c.MaxContext, inference.ErrTooLarge)
	}
	for i, id := range req.Tokens {
		if id < 0 || int(id) >= c.Vocab {
			return fmt.Errorf("token id %d at position %d is outside the vocabulary of %d", id, i, c.Vocab)
		}
	}
	if t := float64(req.Temperature); !(t >= 0) || math.IsInf(t, 0) {
		return fmt.Errorf("temperature %v, want 0 or more", req.Temperature)
	}
	return nil
}

// ask asks one server once. The error of a server that must prove itself again is
// errLost, and the tokens with it may be kept.
func (e *Engine) ask(ctx context.Context, now heldPolicy, c call) (answer, error) {
	s := e.replicaFor(c)
	if s.unproven.Load() {
		if err := e.repair(ctx, s); err != nil {
			return answer{}, err
		}
	}
	proofs := s.proofs.Load()
	s.running.Add(1)
	a, err := s.server.generate(ctx, c)
	s.running.Add(-1)
	if checkErr := a.check(c, e.cfg.Vocab, s.server.label(now.label)); checkErr != nil {
		a = answer{}
		if err == nil {
			err = fmt.Errorf("%s: %w", s.server.address(), checkErr)
		}
	}
	if errors.Is(err, errLost) && ctx.Err() == nil && s.proofs.Load() == proofs {
		s.unproven.Store(true)
		e.repairLater(s) //nolint:contextcheck // the repair outlives the request that met the loss
		e.cfg.Log.Warn("engine server lost", "server", s.server.address(), "err", err)
	}
	return a, err
}

// check returns why an answer cannot be used. It ends the answer of a server that
// continues after a stop token at that token.
func (a *answer) check(c call, vocab int, label string) error {
	for _, l := range a.labels {
		if l != label {
			return fmt.Errorf("the answer is of policy %q, want %q: %w", l, label, errLost)
		}
	}
	switch {
	case len(a.tokens) != len(a.logprobs):
		return fmt.Errorf("%d tokens with %d log-probabilities (%w)", len(a.tokens), len(a.logprobs), errRefused)
	case len(a.tokens) > c.maxTokens:
		return fmt.Errorf("%d tokens, asked for %d (%w)", len(a.tokens), c.maxTokens, errRefused)
	}
	for i, id := range a.tokens {
		lp := float64(a.logprobs[i])
		if id < 0 || int(id) >= vocab {
			return fmt.Errorf("token id %d is outside the vocabulary of %d: is the embedding padded? (%w)", id, vocab, errRefused)
		}
		if math.IsNaN(lp) || math.IsInf(lp, 0) || lp > 1e-3 {
			return fmt.Errorf("token %d of the answer has log-probability %v (%w)", i, lp, errRefused)
		}
		if slices.Contains(c.stop, id) {
			a.tokens, a.logprobs, a.finish = a.tokens[:i+1], a.logprobs[:i+1], rl.FinishStop
			return nil
		}
	}
	switch {
	case a.cutStop != nil && slices.Contains(c.stop, *a.cutStop):
		return fmt.Errorf("the server leaves out the stop token %d, whose log-probability is needed (%w)", *a.cutStop, errRefused)
	case a.finish == rl.FinishStop: // at a token that this request does not list
		a.finish = rl.FinishAbort
	case a.finish == rl.FinishLength && len(a.tokens) < c.maxTokens:
		return fmt.Errorf("the server ended after %d of %d tokens behind %d: its context is smaller than the model's (%w)",
			len(a.tokens), c.maxTokens, len(c.tokens), errRefused)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
