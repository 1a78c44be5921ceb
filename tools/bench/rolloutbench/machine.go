package rolloutbench

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/policy"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/internal/tokenizer"
	"temper/sandbox"
)

// machine is a rollout worker whose engine and sandbox are fakes.
type machine struct {
	plan   *Plan
	engine *engine
	faults *faults
}

func newMachine(ctx context.Context, p *Plan, ref run.Ref) (*machine, error) {
	loaded, err := run.Load(ctx, p.Store, ref)
	if err != nil {
		return nil, err
	}
	problems, err := run.ReadProblems(ctx, p.Store, loaded.Layout.Stage(1).Train())
	if err != nil {
		return nil, err
	}
	m := &machine{plan: p, faults: newFaults(p.Faults)}
	m.engine = newEngine(p, loaded.Format.Tokenizer(), problems)
	m.engine.context, m.engine.faults = loaded.Config.Model.MaxContext, m.faults
	return m, nil
}

func (m *machine) newService() *sampling.Service {
	concurrent := m.plan.Concurrent
	if concurrent == 0 {
		concurrent = m.plan.Problems * m.plan.Rollouts
	}
	return sampling.New(sampling.Config{
		Store: m.plan.Store, Executor: &executor{plan: m.plan, faults: m.faults, answer: toolText(m.plan.ToolChars)},
		MaxConcurrent: concurrent, Now: time.Now,
		NewEngine: func(*run.Loaded) (sampling.Engine, error) { return m.engine, nil },
	})
}

// engine says words at random: some text, a call, some text, ..., an answer. All of it
// follows from the seed of the trajectory and the length of its context.
type engine struct {
	plan     *Plan
	faults   *faults
	context  int
	words    []int32   // from which text is cut
	logprobs []float32 // of as many tokens
	call     []int32   // how a turn with a call ends
	right    map[string][]int32
	wrong    []int32

	turns, tokens atomic.Int64
}

// Sizes of the text that is cut into turns, and of the vocabulary's part in it.
const (
	numWords  = 1 << 18
	program   = "rows = [line.split(',') for line in open('data.csv')]\\ntotal = sum(int(r[2]) for r in rows if r[0] == 'north')\\nprint(total, len(rows))"
	rightRate = 0.5
)

func newEngine(p *Plan, tok *tokenizer.Tokenizer, problems []rl.Problem) *engine {
	end, _ := tok.Special(chat.TokenEnd)
	say := func(text string) []int32 { return append(tok.EncodeSpecial(text), end) }
	e := &engine{plan: p, right: map[string][]int32{}, wrong: say(chat.TokenAnswer + "no idea" + chat.TokenAnswerEnd)}
	e.call = say(chat.TokenToolCall + `{"name": "python", "arguments": {"code": "` + program + `"}}` + chat.TokenToolCallEnd)
	for _, problem := range problems {
		e.right[problem.ID] = say(chat.TokenAnswer + problem.Answer + chat.TokenAnswerEnd)
	}
	r := rl.Rand(1)
	first, size := int32(len(chat.Specials())), int32(tok.VocabSize())
	for range numWords { // Zipf's law, roughly: the logarithm of the rank is uniform
		rank := int32(math.Exp(r.Float64() * math.Log(float64(size-first-1))))
		e.words = append(e.words, first+rank)
		e.logprobs = append(e.logprobs, drawLogprob(r.Float64(), r.ExpFloat64()))
	}
	return e
}

// drawLogprob draws a log-probability as an engine states it: three of four tokens are
// nearly certain, and their numbers have the few bits that a float32 sum leaves.
func drawLogprob(u, x float64) float32 {
	if u < 0.25 {
		return float32(-x)
	}
	others := math.Exp(-16 * (1 - u)) // of the other tokens, against 1
	return -float32(math.Log(float64(float32(1 + others*x))))
}

// Generate implements policy.Engine.
func (e *engine) Generate(ctx context.Context, req policy.Request) (policy.Generation, error) {
	lie, err := e.faults.generation()
	if err != nil {
		return policy.Generation{}, err
	}
	names := strings.Split(req.Session, "/")                                             // run, purpose, stage, step, problem, rollout
	length := float64(e.plan.Tokens) * min(longest, math.Exp(0.4*normal(req.Seed)-0.08)) // with a mean of about 1
	at := len(req.Tokens)
	turn := int(length / float64(e.plan.Turns) * (0.5 + uniform(req.Seed, at)))
	ending := e.call
	if float64(len(req.Tokens)-promptTokens+turn/2) >= length {
		if ending = e.wrong; rl.Uniform(req.Seed, 1) < rightRate {
			ending = e.right[names[4]]
		}
	}
	n := min(turn, max(0, req.MaxTokens-len(ending)))
	from := int(uniform(req.Seed, at+1) * float64(numWords-n))
	g := policy.Generation{
		Tokens:   append(append(make([]int32, 0, n+len(ending)), e.words[from:from+n]...), ending...),
		Logprobs: append(make([]float32, 0, n+len(ending)), e.logprobs[from:from+n+len(ending)]...),
		Finish:   rl.FinishStop, Version: 0,
	}
	if len(g.Tokens) > req.MaxTokens {
		g.Tokens, g.Logprobs, g.Finish = g.Tokens[:req.MaxTokens], g.Logprobs[:req.MaxTokens], rl.FinishLength
	}
	if err := pause(ctx, time.Duration(len(g.Tokens))*e.plan.TokenTime); err != nil {
		return policy.Generation{}, err
	}
	if lie != nil {
		lie(&g)
		return g, nil
	}
	e.turns.Add(1)
	e.tokens.Add(int64(len(g.Tokens)))
	return g, nil
}

// promptTokens is about how long the prompts are.
const promptTokens = 100

// normal is a draw of the normal distribution, nearly.
func normal(seed uint64) float64 {
	sum := -6.0
	for i := range 12 {
		sum += uniform(seed, -1-i)
	}
	return sum
}

func uniform(seed uint64, i int) float64 { return float64(rl.Uniform(seed, i)) }

// pause waits, in this process for nothing.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Release implements policy.Engine.
func (e *engine) Release(string) {}

// Version implements policy.Engine.
func (e *engine) Version() int64 { return 0 }

// MaxContext implements policy.Engine.
func (e *engine) MaxContext() int { return e.context }

// Load implements policy.Loader.
func (e *engine) Load(context.Context, blob.Ref, int64) error { return nil }

// Close implements sampling.Engine.
func (e *engine) Close() {}

// executor answers every call with the same text.
type executor struct {
	plan   *Plan
	faults *faults
	answer string
}

// Execute implements sandbox.Executor.
func (x *executor) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if err := x.faults.execution(); err != nil {
		return sandbox.Result{}, err
	}
	if err := pause(ctx, x.plan.ToolTime); err != nil {
		return sandbox.Result{}, err
	}
	return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: x.answer}, nil
}

// toolText is the output of a program, so many characters long.
func toolText(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "row %d: %d\n", i, i*i%977)
	}
	return b.String()[:n]
}
