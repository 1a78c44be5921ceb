package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// readBody decodes the body of a request, which must arrive in time and whole.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64, into any) *Failure {
	control := http.NewResponseController(w)
	// A server that cannot set a deadline, as in some tests, goes without.
	_ = control.SetReadDeadline(time.Now().Add(s.patience))
	var buf bytes.Buffer
	if r.ContentLength > 0 && r.ContentLength <= limit {
		buf.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	_ = control.SetReadDeadline(time.Time{})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &Failure{Code: CodeTooLarge, Param: "body", Message: "longer than any request that fits the engine's max_context"}
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return &Failure{Code: CodeSlow, Param: "body", Message: "did not arrive within " + s.patience.String()}
	case err != nil:
		return invalidf("body", "%s", oneLine(err.Error()))
	}
	d := json.NewDecoder(&buf)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return invalidf(wrong.Field, "is a %s, want %s", wrong.Value, wrong.Type)
		}
		return invalidf("body", "%s", oneLine(err.Error()))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalidf("body", "more than one JSON value")
	}
	return nil
}

// setWriteDeadline bounds the time in which a client may read an answer.
func setWriteDeadline(w http.ResponseWriter) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(answerTime))
}

// maxID bounds the names that a client gives.
const maxID = 1024

// check finds what the engine could not take at any time, and returns the tokens.
func (in *GenerateRequest) check(vocab, maxContext int) ([]int32, *Failure) {
	tokens, err := in.Tokens.Values()
	if err != nil {
		return nil, invalidf("tokens", "%v", err)
	}
	switch {
	case in.ID == "" || len(in.ID) > maxID:
		return nil, invalidf("id", "has %d bytes, want 1 to %d", len(in.ID), maxID)
	case len(in.Session) > maxID:
		return nil, invalidf("session", "has %d bytes, want at most %d", len(in.Session), maxID)
	case len(tokens) == 0:
		return nil, invalidf("tokens", "is empty, want the context")
	case in.MaxTokens < 1:
		return nil, invalidf("max_tokens", "is %d, want at least 1", in.MaxTokens)
	case in.MaxTokens > maxContext-len(tokens):
		return nil, &Failure{Code: CodeTooLarge, Param: "max_tokens", Message: fmt.Sprintf(
			"is %d after %d tokens, and max_context is %d", in.MaxTokens, len(tokens), maxContext)}
	case !(in.Temperature >= 0):
		return nil, invalidf("temperature", "is %v, want 0 or more", in.Temperature)
	case in.Version < -1:
		return nil, invalidf("version", "is %d, want -1 or more", in.Version)
	}
	if in.Sampler != nil {
		if err := in.Sampler.Validate(); err != nil {
			return nil, invalidf("sampler", "%s", oneLine(err.Error()))
		}
	}
	for i, id := range tokens {
		if id < 0 || int(id) >= vocab {
			return nil, invalidf("tokens", "id %d at position %d is outside the vocabulary of %d", id, i, vocab)
		}
	}
	return tokens, nil
}

func (in *LoadRequest) check() *Failure {
	switch {
	case in.Ref.IsZero() || in.Ref.SHA256 == "":
		return invalidf("ref", "names no key or no sha256")
	case in.Version < 0:
		return invalidf("version", "is %d, want 0 or more", in.Version)
	}
	return nil
}
