// Package fault names the kinds of errors that no retry can mend. It knows
// neither Temporal nor the packages that fail: an error carries its kind, and
// who retries asks for it.
//
// Invariant: an error without a kind is worth another attempt.
package fault

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Kind tells why a retry cannot help. The values are part of stored workflow
// histories.
type Kind string

// The kinds of errors.
const (
	InvalidConfig Kind = "InvalidConfig" // the user's configuration or input
	RunExists     Kind = "RunExists"     // a run id that is taken
	Diverged      Kind = "Diverged"      // NaN or Inf in loss, gradient or log-probability
	TooLarge      Kind = "TooLarge"      // a step that does not fit the trainer's memory
	Dataset       Kind = "Dataset"       // a missing or corrupt dataset
	UserCode      Kind = "UserCode"      // a tool or a reward function of the user's that fails
	Corrupt       Kind = "Corrupt"       // stored bytes that do not match their reference
	Store         Kind = "Store"         // a store that refuses us: bucket, credentials, permission
	NotFound      Kind = "NotFound"      // a policy or step that the run does not have
	Refused       Kind = "Refused"       // a command that makes no sense now
	Conflict      Kind = "Conflict"      // a replay or a checkpoint that does not fit what is stored
)

// carrier is an error that knows its kind.
type carrier interface{ FaultKind() Kind }

// typed gives an error a kind.
type typed struct {
	kind Kind
	err  error
}

// Error returns the text of the cause alone: the kind travels beside it.
func (e *typed) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *typed) Unwrap() error { return e.err }

// FaultKind is the kind.
func (e *typed) FaultKind() Kind { return e.kind }

// New gives err a kind; nil stays nil.
func New(kind Kind, err error) error {
	if err == nil {
		return nil
	}
	return &typed{kind: kind, err: err}
}

// Newf makes an error with a kind from a format, as fmt.Errorf does.
func Newf(kind Kind, format string, args ...any) error {
	return &typed{kind: kind, err: fmt.Errorf(format, args...)}
}

// Of is the kind of the outermost error in the chain of err that has one, and ""
// when none has: another attempt may succeed.
func Of(err error) Kind {
	var c carrier
	if errors.As(err, &c) {
		return c.FaultKind()
	}
	return ""
}

// OfEncoding gives the error of a value that JSON cannot hold its kind, and leaves any
// other as it is. A result with NaN or Inf comes of a policy that has diverged: the
// next attempt makes the same one.
func OfEncoding(err error) error {
	var notFinite *json.UnsupportedValueError
	if errors.As(err, &notFinite) {
		return New(Diverged, err)
	}
	return err
}

// IsUsers reports whether an error is the user's to mend.
func IsUsers(err error) bool {
	switch Of(err) {
	case InvalidConfig, Dataset, RunExists, UserCode:
		return true
	default:
		return false
	}
}
