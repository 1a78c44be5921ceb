package chatclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/openai/chatclient"
)

// TestTurn puts a call together from its parts, as vLLM and others send them.
func TestTurn(t *testing.T) {
	s := serve(t,
		part(`"role":"assistant","content":""`, "null"), part(`"reasoning_content":"hm"`, "null"), part(`"reasoning":"!"`, "null"), part(`"content":"I run"`, "null"),
		part(`"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"python","arguments":""}}]`, "null"),
		part(`"tool_calls":[{"index":0,"function":{"arguments":"{\"code\": "}}]`, "null"), part(`"tool_calls":[{"index":0,"function":{"arguments":"\"1\"}"}}]`, "null"),
		part(``, `"tool_calls"`), `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}`, "[DONE]")
	c := chatclient.Client{URL: s.url + "/v1/", Tools: []byte(`[{"type":"function"}]`), Seed: new(int64), MaxTokens: 9}
	if err := c.Check(t.Context()); err != nil || c.Model != "first" {
		t.Fatalf("model %q, %v", c.Model, err)
	}
	got, err := c.Turn(t.Context(), []chatclient.Message{{Role: "user", Content: "q"}}, func(chatclient.Delta) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	want := chatclient.Turn{
		Reasoning: "hm!", Content: "I run", Calls: []chatclient.Call{call("c1", `{"code": "1"}`)}, Finish: "tool_calls",
		Usage: chatclient.Usage{Prompt: 3, Completion: 4},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	body := s.bodies[0]
	if body["model"] != "first" || body["stream"] != true || body["seed"] != 0.0 || body["max_tokens"] != 9.0 || body["temperature"] != nil {
		t.Errorf("asked %v", body)
	}
}

// TestServersThatFail: each failure is an error of one line, in which nothing steers a
// terminal. A stream that ends early is no answer.
func TestServersThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		events []string
		want   string
	}{
		"an error of OpenAI's form": {429, []string{`{"error":{"message":"busy\u001b[2J"}}`}, `answers 429: busy\x1b[2J`},
		"an error of another form":  {400, []string{`{"error":"no"}`}, "answers 400: no"},
		"a page":                    {502, []string{"<html>\nbad gateway"}, "answers 502: <html> bad gateway"},
		"an error in the stream":    {0, []string{part(`"content":"a"`, "null"), `{"error":{"message":"died"}}`, "[DONE]"}, "the server failed: died"},
		"no end":                    {0, []string{part(`"content":"a"`, "null")}, "ends before the answer does"},
		"no JSON":                   {0, []string{`{"choices":`}, "cannot be read"},
		"a call out of order":       {0, []string{part(`"tool_calls":[{"index":7}]`, "null")}, "index 7"},
		"a call below zero":         {0, []string{part(`"tool_calls":[{"index":-1}]`, "null")}, "index -1"},
		"a line without end":        {0, []string{strings.Repeat("x", 5<<20)}, "longer than 4 MiB"},
	} {
		s := serve(t, c.events...)
		s.status = c.status
		client := chatclient.Client{URL: s.url, Model: "m"}
		_, err := client.Turn(t.Context(), nil, func(chatclient.Delta) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, url := range []string{"", "localhost:8000", "ftp://x", "http://"} {
		client := chatclient.Client{URL: url}
		if err := client.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "http://host:port") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// TestRedirectionsAreNotFollowed: no other address gets the key and the prompt.
func TestRedirectionsAreNotFollowed(t *testing.T) {
	reached := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached++
		_, _ = fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", part(`"content":"4"`, `"stop"`))
	}))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewServer(http.RedirectHandler(other.URL, status))
		for _, client := range []*http.Client{nil, {}} {
			c := chatclient.Client{URL: s.URL, Key: "sk-secret", Model: "m", HTTP: client}
			_, err := c.Turn(t.Context(), []chatclient.Message{{Role: "user", Content: "q"}}, func(chatclient.Delta) error { return nil })
			checked := c.Check(t.Context())
			for _, err := range []error{err, checked} {
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("answers %d: a redirection to %s", status, other.URL)) {
					t.Errorf("%d: %v", status, err)
				}
			}
		}
		s.Close()
	}
	if reached > 0 {
		t.Errorf("the other address was reached %d times", reached)
	}
}

// TestErrorsHideThePassword of an address.
func TestErrorsHideThePassword(t *testing.T) {
	s := serve(t, "no")
	s.status = 500
	at := strings.Replace(s.url, "://", "://user:hunt@er2@", 1)
	client := chatclient.Client{URL: at, Model: "m"}
	_, failed := client.Turn(t.Context(), nil, func(chatclient.Delta) error { return nil })
	s.status, s.events = 0, []string{"{"}
	_, broken := client.Turn(t.Context(), nil, func(chatclient.Delta) error { return nil })
	gone := chatclient.Client{URL: "http://user:hunter2@127.0.0.1:1", Model: "m"}
	for name, err := range map[string]error{
		"a status": failed, "a stream": broken, "no server": gone.Check(t.Context()),
		"no scheme": (&chatclient.Client{URL: "user:hunter2@host"}).Check(t.Context()), "no port": (&chatclient.Client{URL: "http://user:hunter2/@host:x"}).Check(t.Context()),
	} {
		if err == nil || strings.Contains(err.Error(), "hunt") || strings.Contains(err.Error(), "er2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := client.Address(); got != s.url {
		t.Errorf("the address is %q, want %q", got, s.url)
	}
}

// TestInProcess: an answer comes while the handler works, and the handler has ended when
// the body is closed.
func TestInProcess(t *testing.T) {
	ended := make(chan error, 1)
	client := http.Client{Transport: chatclient.InProcess{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/none" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = fmt.Fprint(w, "first\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
		ended <- r.Context().Err()
	})}}
	get := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://model"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res := get("/")
	first := make([]byte, 6)
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != "first\n" {
		t.Fatalf("read %q, %v", first, err)
	}
	_ = res.Body.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the handler ended with %v", err)
		}
	default:
		t.Error("the handler goes on after the body was closed")
	}
	res = get("/none")
	defer func() { _ = res.Body.Close() }()
	if data, err := io.ReadAll(res.Body); res.StatusCode != http.StatusTeapot || len(data) > 0 || err != nil {
		t.Errorf("%d %q, %v", res.StatusCode, data, err)
	}
}
