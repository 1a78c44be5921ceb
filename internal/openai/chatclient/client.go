package chatclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Bounds of what a server may send.
const (
	maxLine   = 4 << 20
	maxAnswer = 16 << 20 // all that one turn keeps
	maxBody   = 1 << 20  // an answer that is no stream
	maxCalls  = 256
)

// Client is a Sampler over a server of OpenAI's API.
type Client struct {
	// URL is the address of the server, with or without /v1.
	URL string
	// Key is sent as a bearer token; "" for none.
	Key string
	// Model is the name to ask for; Check fills it in when it is empty.
	Model string
	// Tools are the schemas of the tools; nil for none.
	Tools json.RawMessage
	// These are left to the server when nil or 0.
	Temperature *float64
	Seed        *int64
	MaxTokens   int
	HTTP        *http.Client
	// Card is the server's description of the model. Check fills it in; it is empty if the
	// server does not list the model.
	Card Card
	// Silence is how long an answer may bring nothing new; 0 for as long as it likes.
	Silence time.Duration
}

var _ Sampler = (*Client)(nil)

// Check asks the server for its models and takes the first one when none was named. It notes
// what the server says of the model.
func (c *Client) Check(ctx context.Context) error {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is no address of a server: want http://host:port", c.Address())
	}
	c.URL = strings.TrimSuffix(strings.TrimRight(c.URL, "/"), "/v1")
	ctx, watch := c.watch(ctx)
	defer watch.end()
	res, err := c.do(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return watch.explain(err)
	}
	defer func() { _ = res.Body.Close() }()
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxBody)).Decode(&list); err != nil {
		return fmt.Errorf("%s: the list of models cannot be read: %w", c.Address(), watch.explain(err))
	}
	c.Card = nil
	for _, entry := range list.Data {
		var model struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(entry, &model); err != nil {
			return fmt.Errorf("%s: the list of models cannot be read: %w", c.Address(), err)
		}
		if c.Model == "" || c.Model == model.ID {
			c.Model, c.Card = model.ID, cardOf(entry)
			break
		}
	}
	if c.Model == "" {
		return fmt.Errorf("%s serves no model", c.Address())
	}
	return nil
}

// Address is where the server is, without the name and the password that URL may have.
func (c *Client) Address() string {
	scheme, rest, ok := strings.Cut(c.URL, "://")
	if !ok {
		scheme, rest = "", c.URL
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 { // a password may have any character
		rest = rest[at+1:]
	}
	if !ok {
		return rest
	}
	return scheme + "://" + rest
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	client := http.Client{}
	if c.HTTP != nil {
		client = *c.HTTP
	}
	// The key and the prompt are for this address alone.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	data, _ := io.ReadAll(io.LimitReader(res.Body, maxBody)) // what has come says most
	err = &StatusError{URL: c.Address() + path, Status: res.StatusCode, Body: data, Location: res.Header.Get("Location")}
	if bytes.Contains(data, []byte("context_length_exceeded")) {
		err = fmt.Errorf("%w: %w", ErrTooLong, err)
	}
	return nil, err
}

// StatusError is an answer that is an error.
type StatusError struct {
	URL    string
	Status int
	Body   []byte
	// Location is where a redirection goes, which is not followed.
	Location string
}

// Error implements error.
func (e *StatusError) Error() string {
	if e.Status/100 == 3 && e.Location != "" {
		return fmt.Sprintf("%s answers %d: a redirection to %s, which gets neither the key nor the prompt; if it is the server that you mean, name its address",
			e.URL, e.Status, shortText(e.Location))
	}
	return fmt.Sprintf("%s answers %d: %s", e.URL, e.Status, errorText(e.Body))
}

// ErrTooLong means that the talk no longer fits the context of the model.
var ErrTooLong = errors.New("the talk is longer than the model's context")

// errorText returns the message of an error in any of the forms that servers use.
func errorText(data []byte) string {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	text := string(data)
	if json.Unmarshal(data, &body) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		switch {
		case json.Unmarshal(body.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
		case json.Unmarshal(body.Error, &text) == nil:
		case body.Message != "":
			text = body.Message
		}
	}
	return shortText(text)
}

// shortText is the beginning of a text of a server, on one line.
func shortText(text string) string {
	const most = 500
	text = strings.Join(strings.Fields(text), " ")
	return Escape(strings.ToValidUTF8(text[:min(len(text), most)], ""))
}

// wireRequest is the body of a request for a turn.
type wireRequest struct {
	Model         string          `json:"model"`
	Messages      []Message       `json:"messages"`
	Stream        bool            `json:"stream"`
	StreamOptions streamOptions   `json:"stream_options"`
	Tools         json.RawMessage `json:"tools,omitempty"`
	Temperature   *float64        `json:"temperature,omitempty"`
	Seed          *int64          `json:"seed,omitempty"`
	MaxTokens     int             `json:"max_tokens,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// chunk is one part of a stream.
type chunk struct {
	Choices []struct {
		Delta        wireDelta `json:"delta"`
		FinishReason string    `json:"finish_reason"`
	} `json:"choices"`
	Usage *Usage          `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type wireDelta struct {
	Content          string     `json:"content"`
	Reasoning        string     `json:"reasoning"`         // of vLLM
	ReasoningContent string     `json:"reasoning_content"` // of others, and of vLLM before
	ToolCalls        []callPart `json:"tool_calls"`
	Executed         []Executed `json:"executed_calls"` // of a server that runs calls itself
}

// callPart is a call, or what follows of its arguments.
type callPart struct {
	Index    *int     `json:"index"`
	ID       string   `json:"id"`
	Function Function `json:"function"`
}

// Turn implements Sampler.
func (c *Client) Turn(ctx context.Context, messages []Message, emit func(Delta) error) (Turn, error) {
	return c.stream(ctx, wireRequest{
		Model: c.Model, Messages: messages, Stream: true, StreamOptions: streamOptions{IncludeUsage: true}, Tools: c.Tools,
		Temperature: c.Temperature, Seed: c.Seed, MaxTokens: c.MaxTokens,
	}, emit)
}

// stream asks for a turn with a body that asks for a stream.
func (c *Client) stream(ctx context.Context, request any, emit func(Delta) error) (Turn, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return Turn{}, err
	}
	watched, watch := c.watch(ctx)
	defer watch.end()
	res, err := c.do(watched, http.MethodPost, "/v1/chat/completions", body)
	if err != nil {
		return Turn{}, watch.explain(err)
	}
	defer func() { _ = res.Body.Close() }()
	r := reading{emit: emit, news: watch.news}
	err = watch.explain(r.read(res.Body))
	if ctx.Err() != nil {
		return r.said(), ctx.Err()
	}
	if err != nil {
		return r.said(), fmt.Errorf("%s: %w", c.Address(), err)
	}
	return r.said(), nil
}

// reading puts the parts of a stream together.
type reading struct {
	emit               func(Delta) error
	news               func() // is called when something came
	turn               Turn
	content, reasoning strings.Builder
	calls              []*parts
	kept               int // bytes of all that came
}

func (r *reading) read(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue // a comment, or another field of an event
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			break
		}
		if err := r.take(data); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("a line of the stream is longer than %d MiB", maxLine>>20)
	case err != nil:
		return fmt.Errorf("the stream broke off: %w", err)
	}
	if r.turn.Finish == "" {
		return errors.New("the stream ends before the answer does")
	}
	return nil
}

func (r *reading) take(data []byte) error {
	var part chunk
	if err := json.Unmarshal(data, &part); err != nil {
		return fmt.Errorf("a part of the stream cannot be read: %w", err)
	}
	if len(part.Error) > 0 && string(part.Error) != "null" {
		return errors.New("the server failed: " + errorText(data))
	}
	if part.Usage != nil {
		r.turn.Usage = *part.Usage
	}
	for _, choice := range part.Choices {
		if choice.FinishReason != "" {
			r.turn.Finish = choice.FinishReason
		}
		before := r.kept
		if err := r.takeDelta(choice.Delta); err != nil {
			return err
		}
		if r.kept > before {
			r.news()
		}
	}
	return nil
}

func (r *reading) takeDelta(d wireDelta) error {
	shown := Delta{Reasoning: d.Reasoning + d.ReasoningContent, Content: d.Content, Executed: d.Executed}
	if err := r.keep(len(shown.Content) + len(shown.Reasoning)); err != nil {
		return err
	}
	r.content.WriteString(shown.Content)
	r.reasoning.WriteString(shown.Reasoning)
	for _, e := range d.Executed {
		if err := r.keep(sizeOfExecuted + len(e.ID) + len(e.Name) + len(e.Arguments) + len(e.Status) + len(e.Content)); err != nil {
			return err
		}
		if e.Status != "" {
			r.turn.Executed = append(r.turn.Executed, e)
		}
	}
	if err := r.takeCalls(d.ToolCalls); err != nil {
		return err
	}
	if shown.Reasoning == "" && shown.Content == "" && len(shown.Executed) == 0 {
		return nil
	}
	return r.emit(shown)
}

// sizeOfExecuted is about what an Executed costs beside its texts.
const sizeOfExecuted = 128

// keep counts the bytes that the turn keeps.
func (r *reading) keep(size int) error {
	if r.kept += size; r.kept > maxAnswer {
		return fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return nil
}

// parts are the parts of a call.
type parts struct {
	id              string
	name, arguments strings.Builder
}

// takeCalls adds parts of calls. A part without an index is a whole call.
func (r *reading) takeCalls(of []callPart) error {
	for _, p := range of {
		at := len(r.calls)
		if p.Index != nil {
			at = *p.Index
		}
		if at < 0 || at > len(r.calls) || at >= maxCalls {
			return fmt.Errorf("a call has the index %d after %d calls", at, len(r.calls))
		}
		if at == len(r.calls) {
			r.calls = append(r.calls, &parts{})
		}
		if err := r.keep(len(p.ID) + len(p.Function.Name) + len(p.Function.Arguments)); err != nil {
			return err
		}
		call := r.calls[at]
		if p.ID != "" {
			call.id = p.ID
		}
		call.name.WriteString(p.Function.Name)
		call.arguments.WriteString(p.Function.Arguments)
	}
	return nil
}

// said is the turn as far as it came.
func (r *reading) said() Turn {
	out := r.turn
	out.Content, out.Reasoning = r.content.String(), r.reasoning.String()
	for _, c := range r.calls {
		out.Calls = append(out.Calls, Call{ID: c.id, Type: "function", Function: Function{Name: c.name.String(), Arguments: c.arguments.String()}})
	}
	return out
}
