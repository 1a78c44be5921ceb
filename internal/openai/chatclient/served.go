package chatclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"temper/internal/chat"
)

// Served is a handler of OpenAI's API that runs the tools itself. It executes the calls of a
// chat request without tools, and returns them with their results as executed_calls beside
// the text. All other requests go to Inner unchanged.
type Served struct {
	Inner http.Handler
	// Model is the name of the model.
	Model string
	// NewTools makes the tools of one request, under a unique name.
	NewTools func(name string) (*Tools, error)
	// MaxTurns bounds the turns of an answer.
	MaxTurns int
}

// maxRequest bounds a body; the bound of Inner is smaller.
const maxRequest = 64 << 20

// ServeHTTP implements http.Handler.
func (s *Served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" {
		s.Inner.ServeHTTP(w, r)
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		refuse(w, "", "the body cannot be read: "+err.Error())
		return
	}
	q, follow := readQuestion(data)
	if !follow {
		r.Body = io.NopCloser(bytes.NewReader(data))
		s.Inner.ServeHTTP(w, r)
		return
	}
	if param := q.refused(); param != "" {
		refuse(w, param, param+": not beside tools that the server runs; ask with tool_choice none")
		return
	}
	s.answer(w, r, q)
}

// question is a request whose calls the server follows.
type question struct {
	body     map[string]json.RawMessage
	messages []json.RawMessage
	stream   bool
	counted  bool
	left     int // tokens that may still be sampled; -1 for what fits
}

// readQuestion reads a request. It leaves to Inner what brings tools, wants none, or is no
// request at all.
func readQuestion(data []byte) (*question, bool) {
	q := &question{left: -1}
	var options struct {
		IncludeUsage bool `json:"include_usage"`
	}
	if json.Unmarshal(data, &q.body) != nil || json.Unmarshal(q.body["messages"], &q.messages) != nil {
		return nil, false
	}
	if text := string(q.body["tool_choice"]); text == `"none"` || given(q.body["tools"]) {
		return nil, false
	}
	_ = json.Unmarshal(q.body["stream"], &q.stream) // Inner finds what is wrong
	_ = json.Unmarshal(q.body["stream_options"], &options)
	q.counted = options.IncludeUsage
	for _, name := range []string{"max_completion_tokens", "max_tokens"} {
		var n *int
		if json.Unmarshal(q.body[name], &n) == nil && n != nil && *n > 0 {
			q.left = *n
			delete(q.body, name)
			break
		}
	}
	return q, true
}

func given(raw json.RawMessage) bool {
	return len(raw) > 0 && !slices.Contains([]string{"null", "[]"}, string(raw))
}

// refused names a parameter that cannot be honoured over several turns; "" for none.
func (q *question) refused() string {
	if raw := q.body["n"]; given(raw) && string(raw) != "1" {
		return "n"
	}
	for _, name := range []string{"logprobs", "return_token_ids"} {
		if raw := q.body[name]; given(raw) && string(raw) != "false" {
			return name
		}
	}
	return ""
}

// followUp says the next turn of a question.
type followUp struct {
	client *Client
	q      *question
}

// Turn implements Sampler: messages are those after the question's own.
func (f *followUp) Turn(ctx context.Context, messages []Message, emit func(Delta) error) (Turn, error) {
	q := f.q
	if q.left == 0 {
		return Turn{Finish: FinishLength}, nil
	}
	body := map[string]any{}
	for name, raw := range q.body {
		body[name] = raw
	}
	all := make([]any, 0, len(q.messages)+len(messages))
	for _, raw := range q.messages {
		all = append(all, raw)
	}
	for _, m := range messages {
		all = append(all, m)
	}
	body["messages"], body["tools"], body["stream"], body["stream_options"] = all, f.client.Tools, true, streamOptions{IncludeUsage: true}
	if q.left > 0 {
		body["max_tokens"] = q.left
	}
	if len(messages) > 0 {
		delete(body, "tool_choice") // it was for the first turn
	}
	turn, err := f.client.stream(ctx, body, emit)
	if q.left > 0 {
		q.left = max(0, q.left-turn.Usage.Completion)
	}
	return turn, err
}

func (s *Served) answer(w http.ResponseWriter, r *http.Request, q *question) {
	id := "chatcmpl-" + strings.ToLower(rand.Text())
	tools, err := s.NewTools(id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer tools.Close(r.Context())
	client := &Client{URL: "http://model", HTTP: &http.Client{Transport: InProcess{s.Inner}}}
	if client.Tools, err = tools.Schemas(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out := &servedAnswer{w: w, q: q, id: id, model: s.Model, created: time.Now().Unix()}
	talk, err := New(&followUp{client, q}, tools, "", s.MaxTurns)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer, err := talk.Continue(r.Context(), out.show)
	if errors.Is(err, ErrTooLong) && len(answer.Turns) > 0 {
		answer.Finish, err = FinishLength, nil
	}
	if err != nil {
		out.fail(err)
		return
	}
	if answer.Finish == FinishMaxTurns {
		answer.Finish = FinishLength
	}
	out.end(answer)
}

// servedAnswer writes an answer, whole or as it comes.
type servedAnswer struct {
	w       http.ResponseWriter
	q       *question
	id      string
	model   string
	created int64
	content strings.Builder
	open    bool
}

// servedMessage is a message, or the new part of one.
type servedMessage struct {
	Role     string     `json:"role,omitempty"`
	Content  string     `json:"content"`
	Executed []Executed `json:"executed_calls,omitempty"`
}

type servedChoice struct {
	Index   int            `json:"index"`
	Message *servedMessage `json:"message,omitempty"`
	Delta   *servedMessage `json:"delta,omitempty"`
	Finish  *string        `json:"finish_reason"`
}

func (a *servedAnswer) body(object string, choices []servedChoice, usage *Usage) map[string]any {
	out := map[string]any{"id": a.id, "object": object, "created": a.created, "model": a.model, "choices": choices}
	if usage != nil {
		out["usage"] = map[string]int{
			"prompt_tokens": usage.Prompt, "completion_tokens": usage.Completion, "total_tokens": usage.Prompt + usage.Completion,
		}
	}
	return out
}

func (a *servedAnswer) show(d Delta) error {
	a.content.WriteString(d.Content)
	if !a.q.stream {
		return nil
	}
	delta := &servedMessage{Content: d.Content, Executed: d.Executed}
	if !a.open {
		delta.Role = chat.RoleAssistant
	}
	return a.event(a.body("chat.completion.chunk", []servedChoice{{Delta: delta}}, nil))
}

func (a *servedAnswer) event(v any) error {
	if !a.open {
		a.w.Header().Set("Content-Type", "text/event-stream")
		a.w.Header().Set("Cache-Control", "no-cache")
		a.open = true
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.w, "data: %s\n\n", data); err != nil {
		return err
	}
	return http.NewResponseController(a.w).Flush()
}

func (a *servedAnswer) end(answer Answer) {
	if !a.q.stream {
		m := &servedMessage{Role: chat.RoleAssistant, Content: a.content.String(), Executed: answer.Results}
		writeJSON(a.w, http.StatusOK, a.body("chat.completion", []servedChoice{{Message: m, Finish: &answer.Finish}}, &answer.Usage))
		return
	}
	if a.event(a.body("chat.completion.chunk", []servedChoice{{Delta: &servedMessage{}, Finish: &answer.Finish}}, nil)) != nil {
		return // the client has gone
	}
	if a.q.counted && a.event(a.body("chat.completion.chunk", []servedChoice{}, &answer.Usage)) != nil {
		return
	}
	_, _ = fmt.Fprint(a.w, "data: [DONE]\n\n")
}

// fail answers with an error. Before anything was sent, it passes an error of Inner on
// unchanged.
func (a *servedAnswer) fail(err error) {
	var inner *StatusError
	switch {
	case a.open:
		_ = a.event(map[string]any{"error": map[string]any{"message": err.Error(), "type": "server_error", "param": nil, "code": nil}})
	case errors.As(err, &inner):
		a.w.Header().Set("Content-Type", "application/json")
		a.w.WriteHeader(inner.Status)
		_, _ = a.w.Write(inner.Body)
	default:
		writeError(a.w, http.StatusServiceUnavailable, "server_error", "", err.Error())
	}
}

func refuse(w http.ResponseWriter, param, message string) {
	writeError(w, http.StatusBadRequest, "invalid_request_error", param, message)
}

func writeError(w http.ResponseWriter, status int, kind, param, message string) {
	var named *string
	if param != "" {
		named = &param
	}
	writeJSON(w, status, map[string]any{"error": map[string]any{"message": message, "type": kind, "param": named, "code": nil}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller has gone when this fails
}
