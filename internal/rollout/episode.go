package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/internal/tool"
	"temper/sandbox"
	"temper/sandbox/status"
)

// episode is the state of one trajectory during its sampling.
type episode struct {
	runner      *Runner
	spec        Spec
	environment env.Environment
	name        string
	version     int64 // pinned by the first generation
	transcript  *chat.Transcript
	session     *tool.Session
	turns       []rl.Turn
	spans       []rl.Span // one for each version that sampled, so far
	// answer is the last answer so far, and answerTags counts them. An answer counts only
	// outside tool calls, not in code or in the output of a tool.
	answer     string
	answerTags int
	began      time.Time
	sampleTime time.Duration
	toolTime   time.Duration
}

// checkSpec returns an error when the Spec cannot be run.
func (e *episode) checkSpec() error {
	prompt, most := e.transcript.PromptTokens(), e.runner.deps.Engine.MaxContext()
	switch {
	case prompt >= most:
		return fmt.Errorf("prompt of %d tokens, max_context is %d", prompt, most)
	case e.spec.MaxTurns < 1:
		return fmt.Errorf("max_turns is %d, want at least 1", e.spec.MaxTurns)
	case e.spec.MaxResponseTokens < 1:
		return fmt.Errorf("max_response_tokens is %d, want at least 1", e.spec.MaxResponseTokens)
	}
	return nil
}

// runTurns is the agent loop. A turn that was cut at the token limit ends the trajectory.
// Otherwise a turn without a call is the answer, and after the other turns first the turn
// limit and then a lack of room for the tool results end the trajectory.
func (e *episode) runTurns(ctx context.Context) (rl.StopReason, error) {
	for {
		sampled, finish, err := e.generateTurn(ctx)
		if err != nil {
			return "", err
		}
		if finish == rl.FinishAbort {
			return rl.StopCut, nil
		}
		parsed := e.runner.deps.Format.ParseTurn(sampled)
		e.noteAnswer(parsed.Content)
		switch {
		case finish == rl.FinishLength:
			return rl.StopMaxTokens, nil
		case len(parsed.Calls) == 0:
			return rl.StopAnswered, nil
		case len(e.turns) >= e.spec.MaxTurns:
			return rl.StopMaxTurns, nil
		}
		responses, err := e.answerCalls(ctx, parsed.Calls)
		if err != nil {
			return "", err
		}
		err = e.transcript.AppendTool(responses, e.responseLimit())
		if errors.Is(err, chat.ErrTooLong) {
			return rl.StopMaxTokens, nil
		}
		if err != nil {
			return "", fmt.Errorf("tool results: %w", err)
		}
	}
}

// responseLimit is the number of response tokens that both the Spec and the
// engine's context allow.
func (e *episode) responseLimit() int {
	return min(e.spec.MaxResponseTokens, e.runner.deps.Engine.MaxContext()-e.transcript.PromptTokens())
}

// generateTurn generates one turn, or the rest of a turn that the previous part began, and
// appends it. It returns the tokens of the whole turn. FinishAbort means that the part ends
// here.
func (e *episode) generateTurn(ctx context.Context) ([]int32, rl.FinishReason, error) {
	start := e.runner.deps.Now()
	defer func() { e.sampleTime += e.runner.deps.Now().Sub(start) }()
	most, cut := e.responseLimit()-e.transcript.ResponseTokens(), false
	if p := e.spec.Part; p != nil && p.Until > 0 && p.Until-e.transcript.ResponseTokens() < most {
		if most, cut = p.Until-e.transcript.ResponseTokens(), true; most <= 0 {
			return nil, rl.FinishAbort, nil
		}
	}
	req := inference.Request{
		Tokens:      e.transcript.Tokens(),
		MaxTokens:   most,
		Stop:        e.runner.deps.Format.Stop(),
		Temperature: e.spec.Temperature,
		Seed:        e.spec.TrajectorySeed(),
		Version:     e.version,
		Session:     e.name,
	}
	var gen inference.Generation
	err := e.runner.retry(ctx, func() error {
		var err error
		if gen, err = e.runner.deps.Engine.Generate(ctx, req); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
		return checkGeneration(req, gen)
	})
	if err != nil {
		return nil, "", err
	}
	e.version = gen.Version
	from := len(e.transcript.Tokens())
	if err := e.transcript.AppendSampled(gen.Tokens, gen.Logprobs); err != nil {
		return nil, "", err
	}
	e.noteSpan(from)
	if cut && gen.Finish == rl.FinishLength {
		gen.Finish = rl.FinishAbort
	}
	if n := len(e.turns); n > 0 && e.turns[n-1].Finish == rl.FinishAbort { // it was cut
		from = e.turns[n-1].Start
		e.turns = e.turns[:n-1]
	}
	e.turns = append(e.turns, rl.Turn{
		Start: from, End: len(e.transcript.Tokens()), Finish: gen.Finish, Begin: start.Sub(e.began), Generated: e.runner.deps.Now().Sub(start),
	})
	return e.transcript.Tokens()[from:], gen.Finish, nil
}

// checkGeneration returns an error when a generation breaks the contract of
// inference.Engine.
func checkGeneration(req inference.Request, gen inference.Generation) error {
	n := len(gen.Tokens)
	switch {
	case n == 0 || n > req.MaxTokens || len(gen.Logprobs) != n:
		return fmt.Errorf("engine: %d tokens with %d logprobs, want 1 to %d", n, len(gen.Logprobs), req.MaxTokens)
	case gen.Finish != rl.FinishStop && gen.Finish != rl.FinishLength:
		return fmt.Errorf("engine: generation finished by %q", gen.Finish)
	case req.Version >= 0 && gen.Version != req.Version:
		return fmt.Errorf("engine: version %d answered, want %d: %w", gen.Version, req.Version, inference.ErrStaleVersion)
	}
	return nil
}

// answerCalls answers the calls of the last turn in order.
func (e *episode) answerCalls(ctx context.Context, calls []chat.Call) ([]string, error) {
	start := e.runner.deps.Now()
	defer func() { e.toolTime += e.runner.deps.Now().Sub(start) }()
	turn := &e.turns[len(e.turns)-1]
	var responses []string
	for i, c := range calls {
		call, err := e.answerCall(ctx, i, c)
		if err != nil {
			return nil, err
		}
		turn.Calls = append(turn.Calls, call)
		responses = append(responses, call.Response)
	}
	return responses, nil
}

// answerCall answers the i-th call of the last turn.
func (e *episode) answerCall(ctx context.Context, i int, c chat.Call) (rl.ToolCall, error) {
	cfg := &e.runner.cfg
	call := rl.ToolCall{Name: c.Name, Arguments: c.Arguments}
	asked := tool.Call{Run: e.spec.RunID, Problem: &e.spec.Problem, Said: c, Session: e.session}
	called, known := e.runner.deps.Tools[c.Name]
	var outcome chat.Outcome
	switch {
	case cfg.MaxCallsPerTurn > 0 && i >= cfg.MaxCallsPerTurn:
		outcome = chat.Outcome{Status: status.Refused, Reason: rl.SurplusReason(cfg.MaxCallsPerTurn)}
	case c.Malformed != "":
		outcome = chat.Outcome{Status: status.Malformed, Reason: c.Malformed}
	case !known:
		return rl.ToolCall{}, fmt.Errorf("rollout: the format lets a policy call %q, which no tool answers", c.Name)
	case called.Refuse(asked) != "":
		outcome = chat.Outcome{Status: status.Refused, Reason: called.Refuse(asked)}
	default:
		call.ID = fmt.Sprintf("%s/%d/%d/%08x", e.name, len(e.turns)-1, i, uint32(called.Mark(asked)))
		asked.ID = call.ID
		var answer tool.Answer
		start := e.runner.deps.Now()
		err := e.runner.retry(ctx, func() (err error) {
			answer, err = called.Call(ctx, asked)
			return err
		})
		if err != nil {
			return rl.ToolCall{}, err
		}
		outcome = answer.Outcome
		call.Spent = rl.CallTime{
			Begin: start.Sub(e.began), Took: e.runner.deps.Now().Sub(start),
			Queue: answer.Usage.Queue, Wall: answer.Usage.Wall, CPU: answer.Usage.CPU, PeakMemory: answer.Usage.PeakMemory,
			StdoutBytes: len(outcome.Stdout), StderrBytes: len(outcome.Stderr),
		}
		if cfg.KeepOutputs {
			call.Spent.Stdout, call.Spent.Stderr = outcome.Stdout, outcome.Stderr
		}
	}
	call.Status = outcome.Status
	call.Response = outcome.Text(cfg.MaxToolResponseChars)
	return call, nil
}

// closePatience is how long a finished trajectory waits for the end of its session.
const closePatience = 2 * time.Second

// closeSession ends the session of the trajectory, even after the end of ctx. It ignores a
// failure: the sandbox ends a session that has been idle for long.
func (e *episode) closeSession(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closePatience)
	defer cancel()
	_ = e.session.Close(ctx, e.runner.deps.Sessions, e.spec.RunID)
}

// retry calls f until it succeeds. It waits for the end of an overload without a limit, and
// gives up after MaxAttempts other errors. It does not retry after a wrong version, a fault
// of the data set, an id of another program, a session that is lost for good, or the end of
// ctx.
func (r *Runner) retry(ctx context.Context, f func() error) error {
	pause := r.cfg.Backoff
	for attempt := 1; ; {
		err := f()
		if err == nil || ctx.Err() != nil || isFinal(err) {
			return err
		}
		if !errors.Is(err, inference.ErrOverloaded) && !errors.Is(err, sandbox.ErrOverloaded) {
			if attempt == r.cfg.MaxAttempts {
				return fmt.Errorf("gave up after %d attempts: %w", attempt, err)
			}
			attempt++
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, r.cfg.MaxBackoff)
	}
}

// isFinal reports whether another attempt would fail in the same way.
func isFinal(err error) bool {
	if errors.Is(err, tool.ErrMoved) {
		return false
	}
	return errors.Is(err, inference.ErrStaleVersion) || errors.Is(err, inference.ErrTooLarge) || errors.Is(err, tool.ErrFixture) || isFailure(err) ||
		errors.Is(err, sandbox.ErrConflict) || errors.Is(err, sandbox.ErrSessionLost)
}
