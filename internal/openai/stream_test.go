package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/openai/openai-go/v3"

	"temper/internal/inference"
)

// TestChoicesInAStream: several choices share a stream, each with its own end, and say what
// they say as a whole. The usage counts the prompt once.
func TestChoicesInAStream(t *testing.T) {
	s := serve(t, func(string) string { return "yes, \u00e9" + strings.Repeat("!", 20) })
	p := ask("x")
	p.N, p.StreamOptions.IncludeUsage = openai.Int(3), openai.Bool(true)
	stream := s.client.Chat.Completions.NewStreaming(t.Context(), p)
	var sum openai.ChatCompletionAccumulator
	for stream.Next() {
		if !sum.AddChunk(stream.Current()) {
			t.Fatalf("a part does not fit: %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil || len(sum.Choices) != 3 {
		t.Fatalf("%d choices, %v", len(sum.Choices), err)
	}
	for i, c := range sum.Choices {
		if c.Message.Content != "yes, \u00e9"+strings.Repeat("!", 20) || c.FinishReason != "stop" || int(c.Index) != i {
			t.Errorf("choice %d: %+v", i, c)
		}
	}
	if n := len(s.Requests()[0].Tokens); int(sum.Usage.PromptTokens) != n || sum.Usage.CompletionTokens != 3*28 {
		t.Errorf("usage %+v, want a prompt of %d tokens once", sum.Usage, n)
	}
}

func TestPromptsInAStream(t *testing.T) {
	s := serve(t, func(string) string { return "A" })
	p := openai.CompletionNewParams{Model: "m", Prompt: openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"Q:", "Q:"}}, N: openai.Int(2)}
	stream := s.client.Completions.NewStreaming(t.Context(), p)
	texts, ends := map[int64]string{}, map[int64]string{}
	for stream.Next() {
		for _, c := range stream.Current().Choices {
			texts[c.Index] += c.Text
			ends[c.Index] += string(c.FinishReason)
		}
	}
	if got := fmt.Sprint(texts, ends); stream.Err() != nil || got != "map[0:A 1:A 2:A 3:A] map[0:stop 1:stop 2:stop 3:stop]" {
		t.Errorf("%s, %v", got, stream.Err())
	}
}

// TestBytesThatAreNoText: a model can say any bytes. A stream holds valid JSON of valid
// UTF-8, and says what a whole answer says.
func TestBytesThatAreNoText(t *testing.T) {
	const said = "a\xff\xe4\xb8 b\xf0\x9f\x98\x80\xf0\x9f"
	s := serve(t, func(string) string { return said })
	whole, err := s.client.Chat.Completions.New(t.Context(), ask("x"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.Post(s.url+"/v1/chat/completions", "application/json", strings.NewReader(`{"stream": true, "logprobs": true, "messages": [{"role": "user", "content": "x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil || !utf8.Valid(data) {
		t.Fatalf("streamed %q, %v", data, err)
	}
	text := ""
	for line := range strings.Lines(string(data)) {
		var part struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if line, ok := strings.CutPrefix(line, "data: {"); ok {
			if err := json.Unmarshal([]byte("{"+line), &part); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			for _, c := range part.Choices {
				text += c.Delta.Content
			}
		}
	}
	if want := whole.Choices[0].Message.Content; text != want || !strings.Contains(text, "b\U0001f600") || !strings.Contains(text, "\ufffd") {
		t.Errorf("streamed %q, whole %q", text, want)
	}
}

// TestAClientThatLeaves in the middle of a stream ends what is sampled for it: nothing runs
// on, and the session is given back.
func TestAClientThatLeaves(t *testing.T) {
	s := serve(t, func(string) string { return strings.Repeat("x", 900) })
	first, gone := make(chan struct{}), make(chan struct{})
	s.Fail = func(call int, _ inference.Request) error {
		if call == 3 {
			close(first)
			<-gone
		}
		return nil
	}
	ctx, leave := context.WithCancel(t.Context())
	stream := s.client.Chat.Completions.NewStreaming(ctx, ask("x"))
	if !stream.Next() {
		t.Fatal(stream.Err())
	}
	<-first
	leave()
	_ = stream.Close()
	close(gone)
	for end := time.Now().Add(time.Minute); !strings.HasSuffix(s.metric("vllm:num_requests_running"), " 0"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still sampled: %s", s.metric("vllm:num_requests_running"))
		}
	}
	if n := len(s.Requests()); n > 100 || len(s.Released()) != 1 {
		t.Errorf("the engine was asked %d times, %d sessions were given back", n, len(s.Released()))
	}
	if got := s.metric("vllm:request_success_total"); !strings.Contains(got, `finished_reason="abort"`) {
		t.Errorf("metrics: %s", got)
	}
}

// TestMetricsOfTheEngine: what schedulers read of vLLM, in its units.
func TestMetricsOfTheEngine(t *testing.T) {
	s := serve(t, func(string) string { return "x" })
	for name, want := range map[string]string{
		"vllm:num_requests_waiting": " 3", "vllm:kv_cache_usage_perc": " 0.25", "vllm:cache_config_info": `block_size="1",model_name="m",num_gpu_blocks="4000"} 1`,
	} {
		if got := s.metric(name); !strings.HasSuffix(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
