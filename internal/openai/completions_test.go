package openai_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"

	"temper/internal/inference"
)

func TestCompletions(t *testing.T) {
	s := serve(t, func(string) string { return "one two three" })
	got, err := s.client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Q:")}, MaxTokens: openai.Int(7), Logprobs: openai.Int(1),
	})
	if err != nil {
		t.Fatal(err)
	}
	c := got.Choices[0]
	if c.Text != "one two" || c.FinishReason != "length" || len(c.Logprobs.TokenLogprobs) != 7 || c.Logprobs.TextOffset[6] != 6 {
		t.Errorf("choice %s", c.RawJSON())
	}
	ids, err := s.client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{int64(s.tok.Encode("Q")[0]), int64(s.tok.Encode(":")[0])}},
		MaxTokens: openai.Int(40),
	})
	if err != nil {
		t.Fatal(err)
	}
	if ids.Choices[0].Text != "one two three" || ids.Choices[0].FinishReason != "stop" {
		t.Errorf("by ids: %s", ids.RawJSON())
	}
}

// The likeliest tokens are in the three answers as their clients expect them, in a stream
// as well.
func TestTopLogprobs(t *testing.T) {
	s := serve(t, func(string) string { return "abc" })
	params := ask("?")
	params.Logprobs, params.TopLogprobs = openai.Bool(true), openai.Int(2)
	got, err := s.client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	check := func(content []openai.ChatCompletionTokenLogprob) {
		t.Helper()
		if len(content) != 4 {
			t.Fatalf("%d tokens, want abc and the end of the turn", len(content))
		}
		for _, c := range content[:3] {
			if len(c.TopLogprobs) != 2 || c.TopLogprobs[0].Token != c.Token || c.TopLogprobs[0].Logprob != c.Logprob || c.TopLogprobs[1].Token == c.Token {
				t.Errorf("token %s", c.RawJSON())
			}
		}
	}
	check(got.Choices[0].Logprobs.Content)
	stream := s.client.Chat.Completions.NewStreaming(t.Context(), params)
	var parts []openai.ChatCompletionTokenLogprob
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			parts = append(parts, c.Logprobs.Content...)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	check(parts)
	text, err := s.client.Completions.New(t.Context(), openai.CompletionNewParams{
		Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Q:")}, Logprobs: openai.Int(3),
	})
	if err != nil {
		t.Fatal(err)
	}
	if top := text.Choices[0].Logprobs.TopLogprobs; len(top) != 4 || len(top[0]) != 3 || top[0]["a"] != text.Choices[0].Logprobs.TokenLogprobs[0] {
		t.Errorf("choice %s", text.Choices[0].RawJSON())
	}
	_, out := s.post("/inference/v1/generate", `{"token_ids": [5, 6], "sampling_params": {"logprobs": 2}}`)
	if want := `"top_logprobs":[{"logprob":`; strings.Count(jsonOf(t, out), want) != 4 {
		t.Errorf("answer %s", jsonOf(t, out))
	}
}

// A stop string ends the text before it, wherever the parts of a stream are cut.
func TestStopStrings(t *testing.T) {
	for _, c := range []struct{ said, stop, want string }{
		{"one two three", "two", "one "},
		{"aaaaaaaab", "ab", "aaaaaaa"},
		{"12345678END9", "8END", "1234567"},
		{"no such thing", "zzz", "no such thing"},
		{"almost EN", "END", "almost EN"},
		{"a\u00e9b", "\u00e9", "a"},
	} {
		s := serve(t, func(string) string { return c.said })
		p := openai.CompletionNewParams{
			Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Q:")}, MaxTokens: openai.Int(100),
			Stop: openai.CompletionNewParamsStopUnion{OfStringArray: []string{"@@", c.stop}},
		}
		whole, err := s.client.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if got := whole.Choices[0]; got.Text != c.want || got.FinishReason != "stop" {
			t.Errorf("%q until %q: %s", c.said, c.stop, got.RawJSON())
		}
		streamed := ""
		stream := s.client.Completions.NewStreaming(t.Context(), p)
		for stream.Next() {
			streamed += stream.Current().Choices[0].Text
		}
		if stream.Err() != nil || streamed != c.want {
			t.Errorf("%q until %q: streamed %q, error %v", c.said, c.stop, streamed, stream.Err())
		}
	}
}

// TestSamplersReachTheEngine sends each limit, and the values that keep every token.
func TestSamplersReachTheEngine(t *testing.T) {
	for body, want := range map[string]*inference.Sampler{
		`"top_p": 0.9`: {TopP: 0.9}, `"top_k": 50`: {TopK: 50}, `"min_p": 0.1`: {MinP: 0.1},
		`"top_p": 0.5, "top_k": 3, "min_p": 1`: {TopP: 0.5, TopK: 3, MinP: 1},
		`"top_p": 1, "top_k": -1, "min_p": 0`:  nil, `"top_k": 0`: nil, `"n": 1`: nil,
	} {
		s := serve(t, func(string) string { return "yes" })
		resp, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(`{"model": "m", "prompt": "Q:", `+body+`}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the status counts
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", body, resp.Status)
		}
		if diff := cmp.Diff(want, s.Requests()[0].Sampler); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

func TestBadRequests(t *testing.T) {
	s := serve(t, func(string) string { return "x" })
	chat := func(more string) string {
		return `{"model": "m", "messages": [{"role": "user", "content": "x"}]` + more + `}`
	}
	for name, c := range map[string]struct {
		path, body, param string
		status            int
	}{
		"no JSON":              {"/v1/chat/completions", "{", "", 400},
		"a list":               {"/v1/chat/completions", "[]", "", 400},
		"unknown parameter":    {"/v1/chat/completions", chat(`, "guided_regex": "x"`), "guided_regex", 400},
		"unknown model":        {"/v1/chat/completions", `{"model": "gpt-5", "messages": []}`, "model", 404},
		"no messages":          {"/v1/chat/completions", `{"model": "m"}`, "messages", 400},
		"empty messages":       {"/v1/chat/completions", `{"model": "m", "messages": []}`, "messages", 400},
		"a role":               {"/v1/chat/completions", `{"model": "m", "messages": [{"role": "king", "content": "x"}]}`, "messages[0].role", 400},
		"an image":             {"/v1/chat/completions", `{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, "messages[0].content[0]", 400},
		"arguments":            {"/v1/chat/completions", `{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}`, "messages[0].tool_calls[0].function.arguments", 400},
		"temperature":          {"/v1/chat/completions", chat(`, "temperature": -1`), "temperature", 400},
		"temperature text":     {"/v1/chat/completions", chat(`, "temperature": "hot"`), "temperature", 400},
		"top_p":                {"/v1/chat/completions", chat(`, "top_p": 1.5`), "top_p", 400},
		"no nucleus":           {"/v1/chat/completions", chat(`, "top_p": 0`), "top_p", 400},
		"min_p":                {"/v1/completions", `{"prompt": "Q:", "min_p": -0.1}`, "min_p", 400},
		"top_k":                {"/v1/chat/completions", chat(`, "top_k": -2`), "top_k", 400},
		"penalty":              {"/v1/chat/completions", chat(`, "presence_penalty": 1`), "presence_penalty", 400},
		"bias":                 {"/v1/chat/completions", chat(`, "logit_bias": {"5": 100}`), "logit_bias", 400},
		"no choices":           {"/v1/chat/completions", chat(`, "n": 0`), "n", 400},
		"many choices":         {"/v1/chat/completions", chat(`, "n": 1000000000`), "n", 400},
		"negative choices":     {"/v1/chat/completions", chat(`, "n": -1, "stream": true`), "n", 400},
		"negative max_tokens":  {"/v1/chat/completions", chat(`, "max_tokens": -5`), "max_tokens", 400},
		"max_completion":       {"/v1/chat/completions", chat(`, "max_completion_tokens": 0`), "max_tokens", 400},
		"seed":                 {"/v1/chat/completions", chat(`, "seed": 1.5`), "seed", 400},
		"max_tokens":           {"/v1/chat/completions", chat(`, "max_tokens": 0`), "max_tokens", 400},
		"more than fits":       {"/v1/chat/completions", chat(`, "max_tokens": 1000`), "max_tokens", 400},
		"stop":                 {"/v1/chat/completions", chat(`, "stop": [1]`), "stop", 400},
		"empty stop":           {"/v1/chat/completions", chat(`, "stop": [""]`), "stop", 400},
		"a choice of no tool":  {"/v1/chat/completions", chat(`, "tool_choice": "required"`), "tool_choice", 400},
		"tool_choice":          {"/v1/chat/completions", chat(`, "tools": [` + weather + `], "tool_choice": "maybe"`), "tool_choice", 400},
		"unknown tool":         {"/v1/chat/completions", chat(`, "tools": [` + weather + `], "tool_choice": {"type": "function", "function": {"name": "rm"}}`), "tool_choice", 400},
		"a choice of no form":  {"/v1/chat/completions", chat(`, "tools": [` + weather + `], "tool_choice": {"name": "weather"}`), "tool_choice", 400},
		"tools":                {"/v1/chat/completions", chat(`, "tools": [{}]`), "tools", 400},
		"response_format":      {"/v1/chat/completions", chat(`, "response_format": {"type": "json_object"}`), "response_format", 400},
		"top_logprobs":         {"/v1/chat/completions", chat(`, "logprobs": true, "top_logprobs": 21`), "top_logprobs", 400},
		"negative top":         {"/v1/chat/completions", chat(`, "logprobs": true, "top_logprobs": -1`), "top_logprobs", 400},
		"top of nothing":       {"/v1/chat/completions", chat(`, "top_logprobs": 2`), "top_logprobs", 400},
		"logprobs":             {"/v1/completions", `{"prompt": "x", "logprobs": 21}`, "logprobs", 400},
		"logprobs of ids":      {"/inference/v1/generate", `{"token_ids": [5], "sampling_params": {"logprobs": -1}}`, "logprobs", 400},
		"stream_options":       {"/v1/chat/completions", chat(`, "stream_options": {"include_usage": true}`), "stream_options", 400},
		"long prompt":          {"/v1/completions", `{"prompt": "` + strings.Repeat("x", 1000) + `"}`, "prompt", 400},
		"no prompt":            {"/v1/completions", `{"model": "m"}`, "prompt", 400},
		"empty prompt":         {"/v1/completions", `{"prompt": ""}`, "prompt", 400},
		"ids beyond the model": {"/v1/completions", `{"prompt": [5, 100000]}`, "prompt", 400},
		"negative ids":         {"/v1/completions", `{"prompt": [-1]}`, "prompt", 400},
		"many prompts":         {"/v1/completions", `{"prompt": ["` + strings.Repeat(`x","`, 64) + `x"]}`, "prompt", 400},
		"no ids":               {"/inference/v1/generate", `{"token_ids": []}`, "token_ids", 400},
		"ids of no model":      {"/inference/v1/generate", `{"token_ids": [5, 100000]}`, "token_ids", 400},
		"stop ids":             {"/inference/v1/generate", `{"token_ids": [5], "sampling_params": {"stop_token_ids": [-1]}}`, "stop_token_ids", 400},
		"long ids":             {"/inference/v1/generate", `{"token_ids": [5` + strings.Repeat(", 5", 1000) + `]}`, "token_ids", 400},
		"no tokens of ids":     {"/inference/v1/generate", `{"token_ids": [5], "sampling_params": {"max_tokens": 0}}`, "max_tokens", 400},
		"priority":             {"/inference/v1/generate", `{"token_ids": [5], "priority": 1}`, "priority", 400},
		"stop of ids":          {"/inference/v1/generate", `{"token_ids": [5], "sampling_params": {"stop": "x"}}`, "stop", 400},
		"stream of ids":        {"/inference/v1/generate", `{"token_ids": [5], "stream": true}`, "stream", 400},
		"mode":                 {"/inference/v1/generate", `{"token_ids": [5], "output_mode": "text"}`, "output_mode", 400},
		"abort of all":         {"/abort_requests", `{}`, "request_ids", 400},
		"echo":                 {"/v1/completions", `{"prompt": "x", "echo": true}`, "echo", 400},
		"large body":           {"/v1/completions", `{"prompt": "` + strings.Repeat("x", 1<<16) + `"}`, "", 413},
		"unknown path":         {"/v1/embeddings", `{}`, "", 404},
		"ids of no token":      {"/detokenize", `{"tokens": [999999]}`, "tokens", 400},
	} {
		status, answer := s.post(c.path, c.body)
		e, _ := answer["error"].(map[string]any)
		message, _ := e["message"].(string)
		param, _ := e["param"].(string)
		if status != c.status || param != c.param || message == "" || strings.Contains(message, "\n") || strings.Contains(message, "openai.") {
			t.Errorf("%s: %d, %v", name, status, answer)
		}
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("the engine was asked %d times", n)
	}
}

// Failures of the engine have the status that clients act on.
func TestEngineFailures(t *testing.T) {
	for want, failure := range map[int]error{
		http.StatusTooManyRequests: inference.ErrOverloaded, http.StatusServiceUnavailable: inference.ErrStaleVersion, http.StatusInternalServerError: errors.New("broken"),
	} {
		s := serve(t, func(string) string { return "x" })
		s.Fail = func(int, inference.Request) error { return failure }
		_, err := s.client.Chat.Completions.New(t.Context(), ask("x"))
		if e := (*openai.Error)(nil); !errors.As(err, &e) || e.StatusCode != want {
			t.Errorf("%v: %v, want status %d", failure, err, want)
		}
		if got := s.metric("vllm:num_requests_running"); !strings.HasSuffix(got, " 0") {
			t.Errorf("metrics: %s", got)
		}
	}
	// In the middle of a stream the error is the last part.
	s := serve(t, func(string) string { return strings.Repeat("x", 100) })
	s.Fail = func(call int, _ inference.Request) error {
		if call > 2 {
			return errors.New("broken")
		}
		return nil
	}
	stream := s.client.Chat.Completions.NewStreaming(t.Context(), ask("x"))
	text := ""
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			text += c.Delta.Content
		}
	}
	if err := stream.Err(); err == nil || !strings.Contains(err.Error(), "broken") || text == "" {
		t.Errorf("after %q: %v", text, err)
	}
}

func TestTokens(t *testing.T) {
	s := serve(t, func(string) string { return "x" })
	_, got := s.post("/tokenize", `{"prompt": "ab<|im_end|>", "return_token_strs": true}`)
	if got["count"] != 3.0 || got["max_model_len"] != 1000.0 {
		t.Errorf("tokens %v", got)
	}
	_, chat := s.post("/tokenize", `{"messages": [{"role": "user", "content": "x"}]}`)
	if n, _ := chat["count"].(float64); n < 5 {
		t.Errorf("tokens of a chat: %v", chat)
	}
	models, err := s.client.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != "m" {
		t.Errorf("models %+v, %v", models, err)
	}
	if _, err := s.client.Models.Get(t.Context(), "n"); err == nil {
		t.Error("there is a model that nobody serves")
	}
}
