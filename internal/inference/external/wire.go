package external

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds what is read of an answer in bytes: about 1M tokens with their
// log-probabilities.
const maxAnswer = 256 << 20

// wire sends JSON to one server.
type wire struct {
	base   string
	key    string
	client *http.Client
}

func newWire(base, key string) (wire, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return wire{}, fmt.Errorf("engine url %q, want http://HOST:PORT", base)
	}
	t := &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}
	return wire{base: strings.TrimRight(base, "/"), key: key, client: &http.Client{Transport: t}}, nil
}

func (w wire) address() string { return w.base }

func (w wire) close() { w.client.CloseIdleConnections() }

// send returns the body of a 200. The caller closes it.
func (w wire) send(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, w.base+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if w.key != "" {
		req.Header.Set("Authorization", "Bearer "+w.key)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%s: %w: %w", w.base+path, errLost, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close() //nolint:errcheck // read only
		return nil, w.failure(path, resp)
	}
	if kind := resp.Header.Get("Content-Type"); strings.HasPrefix(kind, "text/html") {
		return nil, errors.Join(fmt.Errorf("%s answers a web page: is it the address of the server? (%w)", w.base+path, errRefused), resp.Body.Close())
	}
	return resp.Body, nil
}

// failure reports why an answer is not a 200, and what to do next.
func (w wire) failure(path string, resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // a part of it will do
	kind := errLost
	switch resp.StatusCode {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		kind = errBusy
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusUnauthorized, http.StatusForbidden, http.StatusNotImplemented:
		kind = errRefused
	}
	return fmt.Errorf("%s: status %d: %s (%w)", w.base+path, resp.StatusCode, reason(data), kind)
}

// reason returns the text of an error's body, in one short line.
func reason(data []byte) string {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	text := string(data)
	if json.Unmarshal(data, &body) == nil {
		text = body.Message
		var inner struct {
			Message string `json:"message"`
		}
		if len(body.Error) > 0 && (json.Unmarshal(body.Error, &text) != nil || text == "") && json.Unmarshal(body.Error, &inner) == nil {
			text = inner.Message
		}
		if text == "" {
			text = string(data)
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "..."
	}
	return text
}

// call sends body and decodes the answer into out; nil ignores it.
func (w wire) call(ctx context.Context, method, path string, body, out any) error {
	r, err := w.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("%s: the answer ends early: %w: %w", w.base+path, errLost, err)
	case len(data) > maxAnswer:
		return fmt.Errorf("%s: an answer of more than %d bytes (%w)", w.base+path, maxAnswer, errRefused)
	case out == nil:
		return nil
	}
	if err := insideError(data); err != nil {
		return fmt.Errorf("%s: status 200 with %w", w.base+path, err)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s: the answer is not the JSON of this server: %w: %w", w.base+path, errLost, err)
	}
	return nil
}

// insideError finds an error in the body of a 200.
func insideError(data []byte) error {
	var body struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &body) != nil || len(body.Error) == 0 || string(body.Error) == "null" {
		return nil
	}
	return fmt.Errorf("an error inside: %s (%w)", reason(data), errLost)
}

// text is the answer of a GET.
func (w wire) text(ctx context.Context, path string) (string, error) {
	r, err := w.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	defer r.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(r, maxAnswer))
	return string(data), err
}

// logprob is a number that may be null in JSON, which becomes NaN.
type logprob float32

// UnmarshalJSON reads a number, null, or a word such as "-inf", which is no log-probability.
func (l *logprob) UnmarshalJSON(data []byte) error {
	var v float64
	if string(data) == "null" || json.Unmarshal(data, &v) != nil {
		*l = logprob(math.NaN())
		return nil
	}
	*l = logprob(v)
	return nil
}

// seed32 folds a seed into what every server takes.
func seed32(seed uint64) uint32 { return uint32(seed ^ seed>>32) }
