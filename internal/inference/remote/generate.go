package remote

import (
	"context"
	"errors"
	"time"

	"temper/internal/inference"
	"temper/internal/rl"
)

const (
	// cutEvery is the pause between two attempts to cut a generation, whose request may
	// still be on its way.
	cutEvery = 20 * time.Millisecond
	// cutTime is how long an engine may take to hand over what a cut generation has. A
	// pass of a large model takes less than a second.
	cutTime = 5 * time.Second
	// reloads is how often a generation loads its policy again because another client
	// of the engine has replaced it, or the engine has started anew.
	reloads = 3
)

// Generate implements inference.Engine. The end of ctx closes the connection, which frees
// what the engine holds. Errors: ErrGarbage, and the errors of the port.
func (e *Engine) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), inference.ErrCut) {
			return e.cutShort(req), nil
		}
		return inference.Generation{}, ctx.Err()
	}
	for attempt := 0; ; attempt++ {
		gen, err := e.generate(ctx, req)
		if attempt == reloads || !errors.Is(err, inference.ErrStaleVersion) || ctx.Err() != nil {
			return gen, err
		}
		if again, errLoad := e.reload(ctx, req.Version); !again || errLoad != nil {
			return gen, errors.Join(err, errLoad)
		}
	}
}

// reload makes the engine serve the policy that this client has loaded last, if that is
// the version. It does nothing while another policy is being loaded: that one is newer.
func (e *Engine) reload(ctx context.Context, version int64) (bool, error) {
	if !e.loading.TryLock() {
		return false, nil
	}
	defer e.loading.Unlock()
	e.mu.Lock()
	loaded := e.loaded
	e.mu.Unlock()
	if loaded.Ref.IsZero() || loaded.Version != version {
		return false, nil
	}
	return true, e.load(ctx, loaded.Ref, version)
}

// cutShort is a generation that was cut before it had anything.
func (e *Engine) cutShort(req inference.Request) inference.Generation {
	version := req.Version
	if version < 0 {
		version = e.Version()
	}
	return inference.Generation{Finish: rl.FinishAbort, Version: version}
}

// generate sends the request. A cut goes beside it, and the request itself is then
// answered with what the engine has.
func (e *Engine) generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	in := GenerateRequest{
		ID: e.newID(), Tokens: PackInt32s(req.Tokens), MaxTokens: req.MaxTokens, Stop: req.Stop, Temperature: req.Temperature,
		Seed: req.Seed, Version: req.Version, Session: req.Session, Sampler: req.Sampler, TopLogprobs: req.TopLogprobs,
	}
	// The end of ctx must not close the connection when it is a cut.
	asking, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	answered := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-answered:
			return
		case <-ctx.Done():
		}
		if errors.Is(context.Cause(ctx), inference.ErrCut) {
			e.cut(asking, in.ID, answered)
		}
		abandon()
	}()
	var out Generated
	err := e.call.post(asking, PathGenerate, in, &out)
	close(answered)
	<-watching
	wasCut := errors.Is(context.Cause(ctx), inference.ErrCut)
	switch {
	case err != nil && wasCut:
		return e.cutShort(req), nil
	case err != nil && ctx.Err() != nil:
		return inference.Generation{}, ctx.Err()
	case err != nil:
		return inference.Generation{}, err
	}
	gen, err := e.readGenerated(req, out)
	if err != nil {
		return inference.Generation{}, e.call.garbage(err)
	}
	return gen, nil
}

// cut asks until the generation is answered, or the engine has had its time.
func (e *Engine) cut(ctx context.Context, id string, answered <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, cutTime)
	defer cancel()
	for {
		var out CutAnswer
		err := e.call.post(ctx, PathCut, CutRequest{ID: id}, &out)
		wait := cutEvery
		if err == nil && out.Found {
			wait = cutTime // nothing is left to ask for
		}
		timer := time.NewTimer(wait)
		select {
		case <-answered:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
