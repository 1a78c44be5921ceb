// Package httpapi carries sandbox calls over HTTP: a handler for a node and a
// client that implements sandbox.Executor, both of one wire type. It owns the
// encoding, the limits on bodies, authorization and the idempotency window; it
// neither runs programs nor queues them.
//
// Invariant: a client sees the Result that the node's executor gave, or an error
// of the sandbox port; the transport adds no outcome of its own.
package httpapi

import (
	"temper/sandbox"
)

// Paths of the API.
const (
	PathExecute = "/v1/execute"
	PathBatch   = "/v1/execute/batch"
	PathHealth  = "/healthz"
	PathStatus  = "/status"
)

// Limits of the API.
const (
	maxCallBody  = 8 << 20
	maxBatchBody = 64 << 20
	// MaxBatch is the number of calls that one batch may hold.
	MaxBatch = 256
)

// deadlineHeader carries the time that a call has left, in milliseconds.
const deadlineHeader = "Temper-Deadline-Ms"

// Failure is an answer that is not a Result.
type Failure struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Code is the kind of a Failure.
type Code string

// Kinds of failure.
const (
	CodeInvalid      Code = "invalid"      // the request cannot be understood
	CodeTooLarge     Code = "too_large"    // a body or a batch above its limit
	CodeUnauthorized Code = "unauthorized" // no or wrong token
	CodeOverloaded   Code = "overloaded"   // not admitted, safe to retry later
	CodeUnavailable  Code = "unavailable"  // the node failed, safe to retry
	CodeDeadline     Code = "deadline"     // the caller's time was over
)

// failureBody wraps a Failure as the body of a response.
type failureBody struct {
	Error Failure `json:"error"`
}

// Batch is the body of a batch request.
type Batch struct {
	Calls []sandbox.Request `json:"calls"`
}

// BatchAnswer answers a Batch, one item for each call in the same order.
type BatchAnswer struct {
	Answers []Answer `json:"answers"`
}

// Answer is what became of one call of a batch: exactly one field is set.
type Answer struct {
	Result *sandbox.Result `json:"result,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
}
