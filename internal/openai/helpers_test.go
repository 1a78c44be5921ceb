package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"temper/internal/chat"
	"temper/internal/chat/tokenizer"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	openaiapi "temper/internal/openai"
)

const template = `{% if tools %}TOOLS {{ tools | tojson }}
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.function.arguments.x }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// service is a server over a scripted engine.
type service struct {
	*inferencetest.Script
	t      *testing.T
	url    string
	tok    *tokenizer.Tokenizer
	client openai.Client
}

// reporter is a scripted engine that says how it is.
type reporter struct{ *inferencetest.Script }

// Status implements inference.Reporter.
func (reporter) Status(context.Context) (inference.Status, error) {
	return inference.Status{Capacity: 4000, Used: 1000, Waiting: 3}, nil
}

// serve serves an engine that says what reply returns for the text of the context, and
// ends the turn then.
func serve(t *testing.T, reply func(context string) string) *service {
	t.Helper()
	tok, err := chat.TrainTokenizer(chat.Config{}, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := tok.Special("<|im_end|>")
	tmpl, err := chat.NewTemplate("test", template, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, tok: tok, Script: &inferencetest.Script{Context: 1000}}
	// The engine goes on from what it has said: a stream asks for a few tokens at a time.
	s.Reply = func(req inference.Request) []int32 {
		context := tok.Decode(req.Tokens)
		at := strings.LastIndex(context, "assistant\n") + len("assistant\n")
		if !strings.Contains(context, "assistant\n") {
			at = len("Q:")
		}
		whole := append(tok.EncodeSpecial(reply(context[:at])), end)
		said := len(tok.EncodeSpecial(context[at:]))
		return whole[min(said, len(whole)-1):]
	}
	registry := prometheus.NewRegistry()
	api, err := openaiapi.New(openaiapi.Model{
		Name: "m", Engine: reporter{s.Script}, Tokenizer: tok, Template: tmpl, Stop: []int32{end}, Temperature: 1, Created: time.Unix(7, 0),
	}, openaiapi.Limits{BodyBytes: 1 << 16}, registry)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL
	s.client = openai.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0))
	return s
}

// post sends a body and returns the status with the decoded answer.
func (s *service) post(path, body string) (int, map[string]any) {
	s.t.Helper()
	res, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var out map[string]any
	if err := json.NewDecoder(bytes.NewReader(data)).Decode(&out); err != nil {
		s.t.Fatalf("%s answered %q", path, data)
	}
	return res.StatusCode, out
}

// metric returns the lines of /metrics that begin so.
func (s *service) metric(prefix string) string {
	s.t.Helper()
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, prefix) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n")
}
