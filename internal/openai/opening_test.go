package openai_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"temper/internal/chat"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	openaiapi "temper/internal/openai"
)

// TestAHistoryBeginsTurnsAsTheirPromptsDid: the prompt of rStar2-Agent opens a turn with
// <reason>, which is no part of what the model says. In the next prompt the turn has it
// again, so that the context only grows.
func TestAHistoryBeginsTurnsAsTheirPromptsDid(t *testing.T) {
	tok, err := chat.TrainTokenizer(chat.Config{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.Builtin(chat.FormatRStar2)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := tok.Special("<|im_end|>")
	said := "6*7</reason><answer>42</answer>"
	script := &inferencetest.Script{Reply: func(inference.Request) []int32 { return append(tok.EncodeSpecial(said), end) }}
	api, err := openaiapi.New(openaiapi.Model{
		Name: "m", Engine: script, Tokenizer: tok, Template: tmpl, Stop: []int32{end}, Temperature: 1, Created: time.Unix(7, 0),
	}, openaiapi.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	defer server.Close()
	client := openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	p := openai.ChatCompletionNewParams{Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("how much?")}}
	for _, next := range []string{"and 7*7?", "end"} {
		got, err := client.Chat.Completions.New(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		p.Messages = append(p.Messages, got.Choices[0].Message.ToParam(), openai.UserMessage(next))
	}
	first, second := tok.Decode(script.Requests()[0].Tokens), tok.Decode(script.Requests()[1].Tokens)
	if !strings.HasSuffix(first, "<reason>") || !strings.HasPrefix(second, first+said) {
		t.Errorf("after\n%q\nthe model reads\n%q", first, second)
	}
}
