package chatclient_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"temper/internal/chat"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	openaiapi "temper/internal/openai"
	"temper/internal/openai/chatclient"
	"temper/internal/tool/builtin"
	"temper/sandbox/sandboxtest"
)

// served is a server whose model calls python with its question, and answers with the
// result.
type served struct {
	client openai.Client
	url    string
	script *inferencetest.Script
	fake   *sandboxtest.Fake
}

func serveTools(t *testing.T) *served {
	t.Helper()
	tok, err := chat.TrainTokenizer(chat.Config{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	format, err := chat.New(tok, chat.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.NewTemplate("test", format.Source(), nil)
	if err != nil {
		t.Fatal(err)
	}
	end := format.Stop()[0]
	script := &inferencetest.Script{Context: 2000, Reply: func(r inference.Request) []int32 {
		context := tok.Decode(r.Tokens)
		at := strings.LastIndex(context, "assistant\n") + len("assistant\n")
		said := "I run it.\n" + chat.RenderCall(chat.Call{Name: "python", Arguments: builtin.Program{Code: "print(6*7)"}.Arguments()})
		if _, result, ok := strings.Cut(context, "<tool_response>\n"); ok {
			said = "It is " + strings.TrimSpace(strings.Split(result, "<")[0])
		}
		whole := append(tok.EncodeSpecial(said), end)
		return whole[min(len(tok.EncodeSpecial(context[at:])), len(whole)-1):]
	}}
	api, err := openaiapi.New(openaiapi.Model{Name: "m", Engine: script, Tokenizer: tok, Template: tmpl, Stop: []int32{end}, Temperature: 1}, openaiapi.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	own, fake := tools(t, nil)
	s := httptest.NewServer(&chatclient.Served{Inner: api, Model: "m", MaxTurns: 3, NewTools: func(string) (*chatclient.Tools, error) { return own, nil }})
	t.Cleanup(s.Close)
	client := openai.NewClient(option.WithBaseURL(s.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	return &served{client, s.URL, script, fake}
}

func question() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("6*7?")}}
}

// TestServedTools: the server runs the calls, whole or in a stream, and a client that knows
// nothing of it reads an answer without calls.
func TestServedTools(t *testing.T) {
	s := serveTools(t)
	got, err := s.client.Chat.Completions.New(t.Context(), question())
	if err != nil {
		t.Fatal(err)
	}
	c := got.Choices[0]
	if c.Message.Content != "I run it.\nIt is ran print(6*7)" || c.FinishReason != "stop" || len(c.Message.ToolCalls) > 0 || got.Usage.CompletionTokens == 0 {
		t.Errorf("answer %s", got.RawJSON())
	}
	var raw struct {
		Executed []chatclient.Executed `json:"executed_calls"`
	}
	if err := json.Unmarshal([]byte(c.Message.RawJSON()), &raw); err != nil || len(raw.Executed) != 1 || raw.Executed[0].Content != "ran print(6*7)" || raw.Executed[0].Status != "ok" {
		t.Errorf("executed %+v, %v", raw, err)
	}
	p := question()
	p.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := s.client.Chat.Completions.NewStreaming(t.Context(), p)
	var sum openai.ChatCompletionAccumulator
	for stream.Next() {
		if !sum.AddChunk(stream.Current()) {
			t.Fatalf("a part does not fit: %s", stream.Current().RawJSON())
		}
	}
	if m := sum.Choices[0]; stream.Err() != nil || m.Message.Content != c.Message.Content || m.FinishReason != "stop" || len(m.Message.ToolCalls) > 0 || sum.Usage.TotalTokens != got.Usage.TotalTokens {
		t.Errorf("the stream makes %+v with %+v (%v)", m, sum.Usage, stream.Err())
	}
	if n := len(s.fake.Requests()); n != 2 {
		t.Errorf("%d programs ran", n)
	}
}

// TestATalkWithAServerThatRunsTools shows its calls as its own.
func TestATalkWithAServerThatRunsTools(t *testing.T) {
	s := serveTools(t)
	talk, err := chatclient.New(&chatclient.Client{URL: s.url, Model: "m"}, nil, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	var seen strings.Builder
	got, err := talk.Ask(t.Context(), "6*7?", shown(&seen))
	want := "I run it.\n--- call python\n    print(6*7)\n--- result: ok\n    ran print(6*7)\nIt is ran print(6*7)"
	if err != nil || seen.String() != want || len(got.Results) != 1 {
		t.Errorf("shown %q, %+v, %v", seen.String(), got, err)
	}
}

// TestWhatServedLeavesAlone: a client that brings tools, or wants none, runs its calls
// itself. What cannot be honoured over several turns is refused by name.
func TestWhatServedLeavesAlone(t *testing.T) {
	s := serveTools(t)
	p := question()
	p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{Name: "python"})}
	got, err := s.client.Chat.Completions.New(t.Context(), p)
	if err != nil || len(got.Choices[0].Message.ToolCalls) != 1 || got.Choices[0].FinishReason != "tool_calls" {
		t.Errorf("%+v, %v", got, err)
	}
	p = question()
	p.ToolChoice = openai.ChatCompletionToolChoiceOptionUnionParam{OfAuto: openai.String("none")}
	if got, err = s.client.Chat.Completions.New(t.Context(), p); err != nil || !strings.Contains(got.Choices[0].Message.Content, "<tool_call>") {
		t.Errorf("%+v, %v", got, err)
	}
	if n := len(s.fake.Requests()); n != 0 {
		t.Errorf("%d programs ran", n)
	}
	for param, change := range map[string]func(*openai.ChatCompletionNewParams){
		"n": func(p *openai.ChatCompletionNewParams) { p.N = openai.Int(2) }, "logprobs": func(p *openai.ChatCompletionNewParams) { p.Logprobs = openai.Bool(true) },
		"model":       func(p *openai.ChatCompletionNewParams) { p.Model = "other" },
		"temperature": func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(-1) },
	} {
		p := question()
		change(&p)
		_, err := s.client.Chat.Completions.New(t.Context(), p)
		if e := (*openai.Error)(nil); !errors.As(err, &e) || e.Param != param || e.StatusCode != http.StatusBadRequest && e.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %v", param, err)
		}
	}
	if res, err := http.Get(s.url + "/v1/models"); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("models: %v", err)
	} else {
		_ = res.Body.Close()
	}
}

// TestServedLimits: max_tokens bounds the whole answer.
func TestServedLimits(t *testing.T) {
	s := serveTools(t)
	p := question()
	p.MaxTokens = openai.Int(80)
	got, err := s.client.Chat.Completions.New(t.Context(), p)
	if err != nil || got.Usage.CompletionTokens != 80 || got.Choices[0].FinishReason != "length" {
		t.Errorf("%+v, %v", got, err)
	}
}
