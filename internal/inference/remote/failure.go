package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"temper/internal/blob"
	"temper/internal/inference"
)

// Code tells what kind of error an engine answers with. Clients decide by it.
type Code string

// Codes, each with one HTTP status.
const (
	CodeInvalid      Code = "invalid"      // 400: no retry helps
	CodeUnauthorized Code = "unauthorized" // 401, and 403 for a web page
	CodeNotFound     Code = "not_found"    // 404: a path, or a policy that is not in the store
	CodeSlow         Code = "slow"         // 408: the body did not arrive in time
	CodeStale        Code = "stale_version"
	CodeTooLarge     Code = "too_large"  // 413: larger than the engine
	CodeBadPolicy    Code = "bad_policy" // 422: not the bytes of the reference, or of another model
	CodeOverloaded   Code = "overloaded" // 429
	CodeInternal     Code = "internal"   // 500
	CodeDraining     Code = "draining"   // 503
)

var statusOf = map[Code]int{
	CodeInvalid: http.StatusBadRequest, CodeUnauthorized: http.StatusUnauthorized, CodeNotFound: http.StatusNotFound,
	CodeSlow: http.StatusRequestTimeout, CodeStale: http.StatusConflict, CodeTooLarge: http.StatusRequestEntityTooLarge,
	CodeBadPolicy: http.StatusUnprocessableEntity, CodeOverloaded: http.StatusTooManyRequests,
	CodeInternal: http.StatusInternalServerError, CodeDraining: http.StatusServiceUnavailable,
}

// Failure is an error on the wire: one line that names the parameter.
type Failure struct {
	Code Code `json:"code"`
	// Param is the field of the request that is wrong; empty where none is.
	Param   string `json:"param,omitempty"`
	Message string `json:"message"`
}

// failed is the body of an answer that is an error.
type failed struct {
	Error Failure `json:"error"`
}

// Error implements error.
func (f *Failure) Error() string {
	if f.Param != "" {
		return fmt.Sprintf("%s: %s (%s)", f.Param, f.Message, f.Code)
	}
	return fmt.Sprintf("%s (%s)", f.Message, f.Code)
}

// Unwrap gives the error of the port that a code stands for, so that callers of a
// remote engine use errors.Is as with one in their process.
func (f *Failure) Unwrap() error {
	switch f.Code {
	case CodeStale:
		return inference.ErrStaleVersion
	case CodeTooLarge:
		return inference.ErrTooLarge
	case CodeOverloaded, CodeDraining:
		return inference.ErrOverloaded
	case CodeBadPolicy:
		return blob.ErrCorrupt
	case CodeNotFound:
		return blob.ErrNotExist
	default:
		return nil
	}
}

// IsRefusal reports whether err is an answer of an engine, and not of the way to it.
func IsRefusal(err error) bool {
	var f *Failure
	return errors.As(err, &f)
}

// ReadFailure is the error of an answer with another status than 200. A body that is
// none of ours, as of a proxy, is named by its status.
func ReadFailure(status int, body []byte) *Failure {
	var f failed
	if err := json.Unmarshal(body, &f); err == nil && f.Error.Code != "" {
		f.Error.Message = oneLine(f.Error.Message)
		return &f.Error
	}
	out := &Failure{Code: CodeInternal, Message: fmt.Sprintf("answered %d %s", status, http.StatusText(status))}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		out.Code = CodeUnauthorized
	case http.StatusTooManyRequests:
		out.Code = CodeOverloaded
	case http.StatusServiceUnavailable:
		out.Code = CodeDraining
	case http.StatusBadRequest:
		out.Code = CodeInvalid
	}
	return out
}

// failureOf reports what an error of an engine is on the wire.
func failureOf(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	code := CodeInternal
	switch {
	case errors.Is(err, inference.ErrOverloaded):
		code = CodeOverloaded
	case errors.Is(err, inference.ErrStaleVersion):
		code = CodeStale
	case errors.Is(err, inference.ErrTooLarge):
		code = CodeTooLarge
	case errors.Is(err, blob.ErrCorrupt):
		code = CodeBadPolicy
	case errors.Is(err, blob.ErrNotExist):
		code = CodeNotFound
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code = CodeInternal // the caller has gone, or the process ends
	}
	return &Failure{Code: code, Message: oneLine(err.Error())}
}

// oneLine keeps an error to one line that a log can hold.
func oneLine(text string) string {
	const most = 500
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " ..."
	}
	return text
}

func invalidf(param, format string, args ...any) *Failure {
	return &Failure{Code: CodeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}
