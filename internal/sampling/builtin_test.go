package sampling_test

import (
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
	"temper/internal/tool/builtin"
)

// TestEvaluationWithCalculator: a run whose policy has the calculator beside Python shows
// both in its prompt, and counts the calls of both in an evaluation.
func TestEvaluationWithCalculator(t *testing.T) {
	h := runtest.New(t, map[string]string{"rollout.tools": "[python, calculator]", "model.max_context": "4096"})
	r, engine := h.NewSampling(t)
	data, err := blob.ReadKey(t.Context(), h.Store, h.Layout.Tokenizer())
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := tok.Special(chat.TokenEnd)
	scripted := engine.Reply
	engine.Reply = func(req inference.Request) []int32 {
		text := tok.Decode(req.Tokens)
		if !strings.Contains(text, `"name": "python"`) || !strings.Contains(text, `"name": "calculator"`) {
			t.Errorf("the prompt lacks a tool:\n%.300s", text)
		}
		if req.Temperature == 0 || strings.Contains(text, chat.TokenToolResult) {
			return scripted(req)
		}
		call := chat.RenderCall(chat.Call{Name: builtin.Calculator, Arguments: `{"expression": "1/0"}`})
		return append(tok.EncodeSpecial(call), end)
	}
	got, err := r.Evaluate(t.Context(), sampling.EvaluateInput{Run: h.Ref, Stage: 1, Label: "after", Policy: runtest.PolicyRef(3)}, r.NewProgress())
	if err != nil {
		t.Fatal(err)
	}
	if got.ToolErrorRate != 1 || got.GreedyErrorRate == 1 || got.MeanCalls != 1 {
		t.Errorf("evaluation %+v", got)
	}
	for i, tr := range runtest.ReadLines[rl.Trajectory](t, h.Store, got.TrajectoriesPath) {
		want := map[bool]string{true: builtin.Python, false: builtin.Calculator}[i < 4]
		if call := tr.Turns[0].Calls[0]; call.Name != want || call.Arguments == "" {
			t.Errorf("trajectory %d calls %+v, want %s", i, call, want)
		}
	}
}
