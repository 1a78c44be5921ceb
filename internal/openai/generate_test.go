package openai_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"

	"temper/internal/inference"
)

// TestGenerate: token ids go in and out as vLLM has it, with a log-probability each, the
// policy that sampled them, and the seed of a trajectory.
func TestGenerate(t *testing.T) {
	s := serve(t, func(string) string { return "xyz" })
	s.Serving = 7
	end, _ := s.tok.Special("<|im_end|>")
	z := s.tok.EncodeSpecial("z")[0]
	ids := s.tok.EncodeSpecial("Q:")
	ask := func(more string) (map[string]any, map[string]any) {
		status, out := s.post("/inference/v1/generate", fmt.Sprintf(`{"request_id": "r1", "model": "m", "token_ids": %s, "return_token_ids": true, "output_mode": "tokens",
			"sampling_params": {"max_tokens": 9, "temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1, "seed": 5, "logprobs": 0, "n": 1, "detokenize": false%s}}`,
			jsonOf(t, ids), more))
		if status != http.StatusOK {
			t.Fatalf("%d %v", status, out)
		}
		choices, _ := out["choices"].([]any)
		choice, _ := choices[0].(map[string]any)
		return out, choice
	}
	out, c := ask("")
	x := append(s.tok.EncodeSpecial("xyz"), end)
	if got := jsonOf(t, c["token_ids"]); got != jsonOf(t, x) || c["finish_reason"] != "stop" || c["stop_reason"] != nil {
		t.Errorf("choice %v", c)
	}
	logprobs, _ := c["logprobs"].(map[string]any)
	content, _ := logprobs["content"].([]any)
	if len(content) != len(x) || jsonOf(t, c["weight_versions"]) != fmt.Sprintf(`[{"end":%d,"start":0,"version":"7"}]`, len(x)) {
		t.Errorf("choice %v", c)
	}
	if out["request_id"] != "r1" || jsonOf(t, out["prompt_token_ids"]) != jsonOf(t, ids) {
		t.Errorf("answer %v", out)
	}
	if r := s.Requests()[0]; r.Seed != 5 || r.Temperature != 1 || !slices.Equal(r.Tokens, ids) || !slices.Equal(r.Stop, []int32{end}) {
		t.Errorf("the engine was asked for %+v", r)
	}
	_, c = ask(fmt.Sprintf(`, "stop_token_ids": [%d], "ignore_eos": true`, z))
	if c["stop_reason"] != float64(z) || len(c["token_ids"].([]any)) != 3 {
		t.Errorf("choice %v", c)
	}
	if diff := cmp.Diff([]int32{z}, s.Requests()[1].Stop); diff != "" {
		t.Error(diff)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestAbort: a request that is ended by its name answers with what it has.
func TestAbort(t *testing.T) {
	s := serve(t, func(string) string { return "x" })
	s.Fail = func(int, inference.Request) error {
		for _, body := range []string{`{"request_ids": ["other"]}`, `{"request_ids": ["generate-tokens-r", "r"]}`} {
			if status, out := s.post("/abort_requests", body); status != http.StatusOK {
				t.Errorf("%d %v", status, out)
			}
		}
		return nil
	}
	status, out := s.post("/inference/v1/generate", `{"request_id": "r", "token_ids": `+jsonOf(t, s.tok.EncodeSpecial("Q:"))+`}`)
	choices, _ := out["choices"].([]any)
	if c, _ := choices[0].(map[string]any); status != http.StatusOK || c["finish_reason"] != "abort" || jsonOf(t, c["token_ids"]) != "[]" {
		t.Errorf("%d %v", status, out)
	}
}

// TestForcedCalls: the model goes on from the beginning of a call, which the client gets as
// a call of its own, whole or streamed.
func TestForcedCalls(t *testing.T) {
	for name, c := range map[string]struct {
		choice openai.ChatCompletionToolChoiceOptionUnionParam
		begun  string
	}{
		"named":    {openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: "weather"}), "<tool_call>\n{\"name\": \"weather\", \"arguments\":"},
		"required": {openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("required")}, "<tool_call>\n{\"name\": \"weather\", \"arguments\":"},
	} {
		rest := " {\"city\": \"Bern\"}}\n</tool_call>"
		s := serve(t, func(string) string { return c.begun + rest })
		p := withTool(ask("weather?"))
		p.ToolChoice = c.choice
		got, err := s.client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		m := got.Choices[0].Message
		if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Arguments != `{"city": "Bern"}` || m.Content != "" {
			t.Errorf("%s: %s", name, m.RawJSON())
		}
		if text := s.tok.Decode(s.Requests()[0].Tokens); !strings.HasSuffix(text, "assistant\n"+c.begun) {
			t.Errorf("%s: the model goes on from %q", name, text)
		}
		stream := s.client.Chat.Completions.NewStreaming(t.Context(), p)
		var sum openai.ChatCompletionAccumulator
		for stream.Next() {
			sum.AddChunk(stream.Current())
		}
		if m := sum.Choices[0].Message; stream.Err() != nil || len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Arguments != `{"city": "Bern"}` || m.Content != "" {
			t.Errorf("%s: the stream makes %+v (%v)", name, m, stream.Err())
		}
	}
}
