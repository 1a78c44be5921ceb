package chatclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"temper/internal/openai/chatclient"
	"temper/sandbox"
	"temper/sandbox/sandboxtest"
)

// scripted says one turn after another, in parts.
type scripted struct {
	turns []chatclient.Turn
	// asked are the messages of each request.
	asked [][]chatclient.Message
	// during is called before a turn is said.
	during func(ctx context.Context, emit func(chatclient.Delta) error) error
}

func (s *scripted) Turn(ctx context.Context, messages []chatclient.Message, emit func(chatclient.Delta) error) (chatclient.Turn, error) {
	s.asked = append(s.asked, append([]chatclient.Message{}, messages...))
	if s.during != nil {
		if err := s.during(ctx, emit); err != nil {
			return chatclient.Turn{Content: "half"}, err
		}
	}
	turn := s.turns[0]
	s.turns = s.turns[1:]
	return turn, emit(chatclient.Delta{Reasoning: turn.Reasoning, Content: turn.Content})
}

func call(id, arguments string) chatclient.Call {
	return chatclient.Call{ID: id, Type: "function", Function: chatclient.Function{Name: "python", Arguments: arguments}}
}

func calls(content string, all ...chatclient.Call) chatclient.Turn {
	return chatclient.Turn{Content: content, Calls: all, Finish: "tool_calls", Usage: chatclient.Usage{Prompt: 10, Completion: 5}}
}

func says(content string) chatclient.Turn {
	return chatclient.Turn{Content: content, Finish: "stop", Usage: chatclient.Usage{Prompt: 20, Completion: 2}}
}

// tools run programs on a fake that prints what it was given.
func tools(t *testing.T, change func(*chatclient.ToolConfig)) (*chatclient.Tools, *sandboxtest.Fake) {
	t.Helper()
	fake := &sandboxtest.Fake{Func: func(r sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "ran " + r.Code + r.Stdin}, nil
	}}
	cfg := chatclient.ToolConfig{Names: []string{"python"}, Executor: fake, Name: "t"}
	if change != nil {
		change(&cfg)
	}
	out, err := chatclient.NewTools(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return out, fake
}

// server answers requests for chats with the events that it was given, and keeps the bodies.
type server struct {
	mu     sync.Mutex
	bodies []map[string]any
	events []string
	status int
	url    string
}

func serve(t *testing.T, events ...string) *server {
	t.Helper()
	s := &server{events: events}
	http := httptest.NewServer(s)
	t.Cleanup(http.Close)
	s.url = http.URL
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		_, _ = fmt.Fprint(w, `{"data": [{"id": "first"}]}`)
		return
	}
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	s.mu.Lock()
	s.bodies = append(s.bodies, body)
	s.mu.Unlock()
	if s.status != 0 {
		w.WriteHeader(s.status)
		_, _ = fmt.Fprint(w, s.events[0])
		return
	}
	for _, e := range s.events {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", e)
	}
}

func part(delta, finish string) string {
	return fmt.Sprintf(`{"choices":[{"index":0,"delta":{%s},"finish_reason":%s}]}`, delta, finish)
}

func shown(b *strings.Builder) func(chatclient.Delta) error {
	return chatclient.NewPrinter(b, false).Show
}
