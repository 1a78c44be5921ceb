// Package httpapi carries sandbox calls over HTTP: a handler for a node or a
// gateway, a Stream that multiplexes calls over one HTTP/2 request, and a Client
// that keeps a Stream open; each is or serves a sandbox.Executor. It owns
// the encoding, the limits on bodies and kept answers, authorization and the
// idempotency window; it neither runs programs nor queues them.
//
// A call travels in one of three ways, with the same answers:
//
//   - POST /v1/stream: any number of calls over one full-duplex HTTP/2 request,
//     one JSON object a line in each direction, see ClientFrame and ServerFrame.
//   - POST /v1/execute/batch: up to MaxBatch calls, answered together, or one a
//     line as they end when the caller accepts NDJSON.
//   - POST /v1/execute: one call, for HTTP/1.1 and for a person with curl.
//
// Invariant: a client sees the Result that the executor gave, or an error of the
// sandbox port, once for each call; the transport adds no other outcome.
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"temper/sandbox"
)

// Paths of the API.
const (
	PathExecute  = "/v1/execute"
	PathBatch    = "/v1/execute/batch"
	PathStream   = "/v1/stream"
	PathSessions = "/v1/sessions/" // followed by a session's name, for DELETE; ?run= names its run
	PathHealth   = "/healthz"
	PathReady    = "/readyz" // served by nodes and gateways beside the API
	PathStatus   = "/v1/status"
)

// Limits of the API.
const (
	maxCallBody  = 8 << 20  // one call, a line of a stream or an item of a batch
	maxBatchBody = 64 << 20 // one batch
	maxAnswer    = 2 * maxBatchBody
	// MaxBatch is the number of calls that one batch may hold.
	MaxBatch = 256
	maxID    = 256 // longest ID of a call, in bytes
)

// Headers and types of the API.
const (
	deadlineHeader = "Temper-Deadline-Ms" // remaining time of a call, in milliseconds
	typeJSON       = "application/json"
	typeLines      = "application/x-ndjson"
)

// Failure is an answer that is not a Result.
type Failure struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// RetryAfterMS is the suggested pause after CodeOverloaded; 0 suggests none.
	RetryAfterMS int64 `json:"retry_after_ms,omitempty"`
}

// Code is the kind of a Failure.
type Code string

// Kinds of failure.
const (
	CodeInvalid      Code = "invalid"      // the request cannot be understood
	CodeTooLarge     Code = "too_large"    // a body or a batch above its limit
	CodeSlow         Code = "slow_body"    // a body or line did not arrive in time
	CodeConflict     Code = "conflict"     // the id belongs to another program, a bug of the caller
	CodeNotFound     Code = "not_found"    // no session of that name
	CodeSessionLost  Code = "session_lost" // the session is not in the state that the call needs; final
	CodeUnauthorized Code = "unauthorized" // no or wrong token
	CodeOverloaded   Code = "overloaded"   // not admitted, safe to retry later
	CodeUnavailable  Code = "unavailable"  // the node failed, safe to retry
	CodeDeadline     Code = "deadline"     // the caller's time was over
	CodeCancelled    Code = "cancelled"    // the caller withdrew the call
)

// failureBody wraps a Failure as the body of a response.
type failureBody struct {
	Error Failure `json:"error"`
}

// Batch is the body of a batch request. An invalid call is answered with a Failure; the
// other calls run.
type Batch struct {
	Calls []json.RawMessage `json:"calls"` // each a sandbox.Request
}

// BatchAnswer answers a Batch, one item for each call in the same order.
type BatchAnswer struct {
	Answers []Answer `json:"answers"`
}

// Answer is the outcome of one call: exactly one field is set.
type Answer struct {
	Result *sandbox.Result `json:"result,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
}

// BatchLine is one line of a batch that is answered as NDJSON, in the order in
// which the calls end.
type BatchLine struct {
	Index int    `json:"index"` // in Batch.Calls
	ID    string `json:"id"`
	Answer
}

// ClientFrame is one line from client to server of a stream: a call or a cancel.
type ClientFrame struct {
	// Call is a program to run. Its ID must not be empty; the answer repeats it.
	Call *sandbox.Request `json:"call,omitempty"`
	// DeadlineMS is the remaining time of Call; nil for no bound.
	DeadlineMS *int64 `json:"deadline_ms,omitempty"`
	// Cancel is the ID of calls on this stream to cancel; they still get answers.
	Cancel string `json:"cancel,omitempty"`
}

// ServerFrame is one line from server to client of a stream: the answer to one
// call frame, or the load. A line that could not be understood is answered with
// an Error and, when it could be read, the ID.
type ServerFrame struct {
	Load *Load  `json:"load,omitempty"`
	ID   string `json:"id"`
	Answer
}

// Load is the load of a server. It sends it at once when a stream opens, then every second
// and when Draining changes.
type Load struct {
	Slots    int  `json:"slots"`    // programs that can run at once
	Busy     int  `json:"busy"`     // programs that run
	Waiting  int  `json:"waiting"`  // calls that wait for a slot
	Queue    int  `json:"queue"`    // calls that may wait
	Draining bool `json:"draining"` // no new calls are taken
}

// mostLoad bounds the numbers of a valid Load; larger ones are garbage.
const mostLoad = 1 << 30

// sound reports whether the numbers of a load are valid.
func (l Load) sound() bool {
	for _, n := range [...]int{l.Slots, l.Busy, l.Waiting, l.Queue} {
		if n < 0 || n > mostLoad {
			return false
		}
	}
	return true
}

// failure returns the Failure for err, which ended a call within ctx.
func failure(ctx context.Context, err error) *Failure {
	switch {
	case errors.Is(err, sandbox.ErrOverloaded):
		return &Failure{CodeOverloaded, err.Error(), max(sandbox.RetryAfter(err, 0).Milliseconds(), 0)}
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || endedBefore(ctx, err):
		return &Failure{Code: CodeDeadline, Message: "the deadline of the call is over"}
	case ctx.Err() != nil:
		return &Failure{Code: CodeCancelled, Message: "the caller withdrew the call"}
	case errors.Is(err, sandbox.ErrSessionLost):
		return &Failure{Code: CodeSessionLost, Message: err.Error()}
	case errors.Is(err, sandbox.ErrConflict):
		return &Failure{Code: CodeConflict, Message: err.Error()}
	default:
		return &Failure{Code: CodeUnavailable, Message: err.Error()}
	}
}

// endedBefore reports whether err is the end of the deadline of ctx, reported by another
// process or timer before ctx itself has ended.
func endedBefore(ctx context.Context, err error) bool {
	_, limited := ctx.Deadline()
	return limited && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sandbox.ErrUnavailable)
}

// invalid returns the Failure of an invalid request.
func invalid(format string, args ...any) *Failure {
	return &Failure{Code: CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// tooLarge returns the Failure of an input above a limit in bytes.
func tooLarge(what string, limit int64) *Failure {
	return &Failure{Code: CodeTooLarge, Message: fmt.Sprintf("%s is above the limit of %d bytes", what, limit)}
}

// outcome turns a Failure into the result of Execute.
func outcome(ctx context.Context, id string, f *Failure) (sandbox.Result, error) {
	switch f.Code {
	case CodeInvalid, CodeTooLarge:
		return sandbox.Result{ID: id, Status: sandbox.StatusRefused, Reason: f.Message}, nil
	case CodeConflict:
		return sandbox.Result{}, sandbox.ErrConflict
	case CodeSessionLost:
		return sandbox.Result{}, fmt.Errorf("%w: %s", sandbox.ErrSessionLost, detail(f.Message, sandbox.ErrSessionLost))
	case CodeOverloaded:
		return sandbox.Result{}, &sandbox.Overloaded{
			Detail: detail(f.Message, sandbox.ErrOverloaded), RetryAfter: time.Duration(f.RetryAfterMS) * time.Millisecond,
		}
	case CodeDeadline, CodeCancelled:
		switch {
		case ctx.Err() != nil:
			return sandbox.Result{}, ctx.Err()
		case f.Code == CodeDeadline: // the server's deadline ended first
			return sandbox.Result{}, context.DeadlineExceeded
		}
	default:
	}
	return sandbox.Result{}, fmt.Errorf("%w: %s", sandbox.ErrUnavailable, detail(f.Message, sandbox.ErrUnavailable))
}

// detail returns the part of message after the sentinel's text.
func detail(message string, sentinel error) string {
	return strings.TrimPrefix(strings.TrimPrefix(message, sentinel.Error()), ": ")
}
