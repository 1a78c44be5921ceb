package runtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/config"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/internal/tool/builtin"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

// PolicyRef names a policy that a Scripted engine can load.
func PolicyRef(version int64) run.Policy {
	return run.Policy{Version: version, Ref: blob.RefOf(fmt.Sprintf("policies/%d", version), nil)}
}

// Scripted is an engine whose policy looks up the answer and gives it, or makes one
// of the mistakes that a policy makes.
type Scripted struct {
	*inferencetest.Script
	// Loads are the versions that were loaded, in order.
	Loads  []int64
	Closed bool
	// Fail is the error of Load.
	Fail error
	// Knows decides whether a rollout answers right.
	Knows func(prompt string, req inference.Request) bool
}

// Load makes the engine serve a version.
func (s *Scripted) Load(_ context.Context, _ blob.Ref, version int64) error {
	if s.Fail != nil {
		return s.Fail
	}
	if version != s.Serving {
		s.Loads = append(s.Loads, version)
	}
	s.Serving = version
	return nil
}

// Close notes that the engine is closed.
func (s *Scripted) Close() { s.Closed = true }

// Shares of the scripted policy's rollouts: of the first calls that are broken,
// and of the answers that are right.
const (
	brokenShare = 0.3
	rightShare  = 0.6
)

// words are how a policy answers and calls.
type words struct{ answer, call func(string) string }

var (
	smallWords = words{
		func(s string) string { return chat.TokenAnswer + s + chat.TokenAnswerEnd },
		func(code string) string {
			return chat.RenderCall(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: code}.Arguments()})
		},
	}
	rstar2Words = words{
		func(s string) string {
			return "</reason>" + chat.TokenAnswer + `\boxed{` + s + "}" + chat.TokenAnswerEnd
		},
		func(code string) string {
			return "</reason>" + chat.RenderCall(chat.Call{Name: builtin.ExecutePython, Arguments: builtin.Program{Code: code, Input: "7"}.Arguments()})
		},
	}
)

// NewScripted makes an engine whose policy knows the answers of the run's problems.
func (h *Run) NewScripted(t testing.TB) *Scripted {
	t.Helper()
	data, err := blob.ReadKey(context.Background(), h.Store, h.Layout.Tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	words := smallWords
	if h.Config.Rollout.ChatTemplate == config.TemplateRStar2 {
		words = rstar2Words
	}
	answers := map[string]string{}
	for _, stage := range h.Plan.Stages {
		for _, key := range []string{h.Layout.Stage(stage.Source()).Train(), h.Layout.Stage(stage.Source()).HeldOut()} {
			for _, p := range h.Problems(t, key) {
				answers[p.Prompt] = p.Answer
			}
		}
	}
	end, _ := tok.Special(chat.TokenEnd)
	s := &Scripted{Knows: func(_ string, req inference.Request) bool { return rl.Uniform(seedOf(req), 1) < rightShare }}
	reply := func(req inference.Request) []int32 {
		text := tok.Decode(req.Tokens)
		say := "I do not know"
		for prompt, answer := range answers {
			if strings.Contains(text, prompt) && s.Knows(prompt, req) {
				say = words.answer(answer)
			}
		}
		if !strings.Contains(text, chat.TokenToolResult) {
			say = words.call("print(1)")
			if rl.Uniform(seedOf(req), 2) < brokenShare {
				say = words.call("print(")
			}
		}
		return append(tok.EncodeSpecial(say), end)
	}
	newline := tok.EncodeSpecial("assistant\n")
	s.Script = &inferencetest.Script{Reply: reply, Serving: -1, Context: h.Config.Model.MaxContext}
	if h.Config.RL.PartialRolloutTokens > 0 {
		s.Reply = inferencetest.Resumed(reply, newline[len(newline)-1])
	}
	return s
}

// seedOf makes greedy generations a function of the prompt.
func seedOf(req inference.Request) uint64 {
	if req.Temperature > 0 {
		return req.Seed
	}
	return uint64(len(req.Tokens))
}

// Python answers as the sandbox does: a program that is cut short raises an error.
func Python(req sandbox.Request) (sandbox.Result, error) {
	if strings.HasSuffix(req.Code, "(") {
		return sandbox.Result{Status: sandbox.StatusError, Stderr: "SyntaxError"}, nil
	}
	return sandbox.Result{Status: sandbox.StatusOK, Stdout: "1\n"}, nil
}

// NewSampling makes a service that serves every run with one Scripted engine.
func (h *Run) NewSampling(t testing.TB) (*sampling.Service, *Scripted) {
	engine := h.NewScripted(t)
	return sampling.New(sampling.Config{
		Store: h.Store, Executor: &sandboxtest.Fake{Func: Python}, MaxConcurrent: 4, Now: Still,
		NewEngine: func(*run.Loaded) (sampling.Engine, error) { return engine, nil },
	}), engine
}

// Still is a clock that stands, so that stored results hold no measured time.
func Still() time.Time { return time.Unix(1000, 0).UTC() }
