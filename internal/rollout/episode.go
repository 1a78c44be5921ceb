package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/policy"
	"temper/internal/rl"
	"temper/sandbox"
	"temper/sandbox/status"
)

// episode is one trajectory that is being sampled.
type episode struct {
	runner      *Runner
	spec        Spec
	environment env.Environment
	name        string
	version     int64 // pinned by the first generation
	transcript  *chat.Transcript
	kernel      *kernel
	turns       []rl.Turn
	// contents holds the text of each turn outside its tool calls. An answer counts
	// only there, not in code or in the output of a tool.
	contents   []string
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

// runTurns is the agent loop. A turn that was cut at the token limit stops the
// trajectory, whatever it says. Otherwise a turn without a call is the answer; then
// the turn limit stops the trajectory, and last a lack of room for the tool results.
func (e *episode) runTurns(ctx context.Context) (rl.StopReason, error) {
	for {
		sampled, finish, err := e.generateTurn(ctx)
		if err != nil {
			return "", err
		}
		parsed := e.runner.deps.Format.ParseTurn(sampled)
		e.contents = append(e.contents, parsed.Content)
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

// generateTurn generates one turn and appends it.
func (e *episode) generateTurn(ctx context.Context) ([]int32, rl.FinishReason, error) {
	start := e.runner.deps.Now()
	defer func() { e.sampleTime += e.runner.deps.Now().Sub(start) }()
	req := policy.Request{
		Tokens:      e.transcript.Tokens(),
		MaxTokens:   e.responseLimit() - e.transcript.ResponseTokens(),
		Stop:        e.runner.deps.Format.Stop(),
		Temperature: e.spec.Temperature,
		Seed:        e.spec.TrajectorySeed(),
		Version:     e.version,
		Session:     e.name,
	}
	var gen policy.Generation
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
	e.turns = append(e.turns, rl.Turn{Start: from, End: len(e.transcript.Tokens()), Finish: gen.Finish})
	return gen.Tokens, gen.Finish, nil
}

// checkGeneration returns an error when a generation breaks the contract of
// policy.Engine.
func checkGeneration(req policy.Request, gen policy.Generation) error {
	n := len(gen.Tokens)
	switch {
	case n == 0 || n > req.MaxTokens || len(gen.Logprobs) != n:
		return fmt.Errorf("engine: %d tokens with %d logprobs, want 1 to %d", n, len(gen.Logprobs), req.MaxTokens)
	case gen.Finish != rl.FinishStop && gen.Finish != rl.FinishLength:
		return fmt.Errorf("engine: generation finished by %q", gen.Finish)
	case req.Version >= 0 && gen.Version != req.Version:
		return fmt.Errorf("engine: version %d answered, want %d: %w", gen.Version, req.Version, policy.ErrStaleVersion)
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
	call := rl.ToolCall{Name: c.Name, Code: c.Code, Stdin: c.Stdin}
	var outcome chat.Outcome
	switch {
	case cfg.MaxCallsPerTurn > 0 && i >= cfg.MaxCallsPerTurn:
		outcome = chat.Outcome{Status: status.Refused, Reason: fmt.Sprintf("at most %d calls per turn", cfg.MaxCallsPerTurn)}
	case c.Malformed != "":
		outcome = chat.Outcome{Status: status.Malformed, Reason: c.Malformed}
	case e.inKernel(c.Name) && e.kernel.refusal(call) != "":
		outcome = chat.Outcome{Status: status.Refused, Reason: e.kernel.refusal(call)}
	default:
		call.ID = e.callID(i, c)
		res, err := e.runProgram(ctx, call)
		if err != nil {
			return rl.ToolCall{}, err
		}
		call.Wall = res.Usage.Wall
		outcome = Outcome(res)
	}
	call.Status = outcome.Status
	call.Response = outcome.Text(cfg.MaxToolResponseChars)
	return call, nil
}

// inKernel reports whether calls of the tool run in the session of the trajectory.
func (e *episode) inKernel(tool string) bool {
	return slices.Contains(e.runner.cfg.SessionTools, tool)
}

// callID is unique and deterministic. It holds a hash of the program, and of the
// cells before it where there are any, so that an executor that remembers ids can
// never answer with another program's result.
func (e *episode) callID(i int, c chat.Call) string {
	program := rl.Seed(0, "call", rl.Hash(e.spec.Problem.Fixture), rl.Hash(c.Code), rl.Hash(c.Stdin))
	if e.inKernel(c.Name) {
		program = rl.Seed(program, "session", e.kernel.mark)
	}
	return fmt.Sprintf("%s/%d/%d/%08x", e.name, len(e.turns)-1, i, uint32(program))
}

// runProgram runs a program until the sandbox gives its result.
func (e *episode) runProgram(ctx context.Context, call rl.ToolCall) (sandbox.Result, error) {
	req := sandbox.Request{
		ID: call.ID, Run: e.spec.RunID, Code: call.Code, Stdin: call.Stdin, Fixture: e.spec.Problem.Fixture,
		Limits: sandbox.Limits{Wall: e.runner.cfg.ToolTimeout, Memory: e.runner.cfg.ToolMemory},
	}
	if e.inKernel(call.Name) {
		e.kernel.asCell(&req)
	}
	var res sandbox.Result
	err := e.runner.retry(ctx, func() error {
		var err error
		if res, err = e.runner.deps.Executor.Execute(ctx, req); err != nil {
			if errors.Is(err, sandbox.ErrSessionLost) && e.kernel.move() {
				e.kernel.asCell(&req)
				err = fmt.Errorf("%w: %w", errMoved, err)
			}
			return fmt.Errorf("sandbox: %w", err)
		}
		if !res.Status.OfProgram() {
			return fmt.Errorf("sandbox: call %s ended with status %q: %s", req.ID, res.Status, res.Reason)
		}
		if req.Fixture != "" && res.Status == sandbox.StatusRefused && strings.HasPrefix(res.Reason, "fixture") {
			return fmt.Errorf("%w: problem %s: %s", errDataset, e.spec.Problem.ID, res.Reason)
		}
		return nil
	})
	if err == nil && e.inKernel(call.Name) {
		e.kernel.recordCell(req, res)
	}
	return res, err
}

// errDataset marks a fault of the data set. The policy is not to blame, and another
// attempt cannot help.
var errDataset = errors.New("fault of the data set")

// errMoved marks the loss of a session that goes on under another name.
var errMoved = errors.New("the session is made again")

// retry calls f until it succeeds. It waits as long as there is an overload, and gives
// up after MaxAttempts other errors. It does not try again after a wrong version, a
// fault of the data set, an id that another program has, a session that is lost for good, or
// the end of ctx.
func (r *Runner) retry(ctx context.Context, f func() error) error {
	pause := r.cfg.Backoff
	for attempt := 1; ; {
		err := f()
		if err == nil || ctx.Err() != nil || isFinal(err) {
			return err
		}
		if !errors.Is(err, policy.ErrOverloaded) && !errors.Is(err, sandbox.ErrOverloaded) {
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
	if errors.Is(err, sandbox.ErrSessionLost) {
		return !errors.Is(err, errMoved)
	}
	return errors.Is(err, policy.ErrStaleVersion) || errors.Is(err, errDataset) || errors.Is(err, sandbox.ErrConflict)
}
