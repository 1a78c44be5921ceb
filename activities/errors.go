package activities

import (
	"encoding/json"
	"errors"

	"go.temporal.io/sdk/temporal"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

// Types of application errors that Temporal carries. Workflows and retry
// policies switch on these, never on text. None of them is retried.
const (
	ErrTypeInvalidConfig = "InvalidConfig" // the user's configuration
	ErrTypeRunExists     = "RunExists"     // a run id that is taken
	ErrTypeDiverged      = "Diverged"      // NaN or Inf in loss, gradient or log-probability
	ErrTypeTooLarge      = "TooLarge"      // a step that does not fit the trainer's memory
	ErrTypeDataset       = "Dataset"       // a missing or corrupt dataset
	ErrTypeCorrupt       = "Corrupt"       // stored bytes that do not match their reference
	ErrTypeStore         = "Store"         // a store that refuses us: bucket, credentials, permission
	ErrTypeNotFound      = "NotFound"      // a policy or step that the run does not have
	ErrTypeRefused       = "Refused"       // a command that makes no sense now
	ErrTypeConflict      = "Conflict"      // a replay or a checkpoint that does not fit what is stored
)

// permanentError is an error that no retry can mend.
type permanentError struct {
	kind string // one of the types above
	err  error
}

// Error returns the text of the cause alone: the type travels beside it.
func (e *permanentError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *permanentError) Unwrap() error { return e.err }

// permanent types an error; toTemporal finds it under any wrapping.
func permanent(kind string, err error) error { return &permanentError{kind: kind, err: err} }

// toTemporal is the one mapping from our errors to Temporal's, at the border of
// each activity: what a retry cannot mend becomes a typed, non-retryable error;
// the rest is retried.
func toTemporal(err error) error {
	if kind := kindOf(err); kind != "" {
		return temporal.NewNonRetryableApplicationError(err.Error(), kind, nil)
	}
	return err
}

// kindOf is the type of an error that no retry can mend, "" of any other.
func kindOf(err error) string {
	var typed *permanentError
	var problems config.Problems
	var notFinite *json.UnsupportedValueError
	switch {
	case errors.As(err, &typed):
		return typed.kind
	case errors.As(err, &problems):
		return ErrTypeInvalidConfig
	case errors.Is(err, trainer.ErrDiverged), errors.As(err, &notFinite):
		return ErrTypeDiverged
	case errors.Is(err, trainer.ErrTooLarge):
		return ErrTypeTooLarge
	case errors.Is(err, blob.ErrCorrupt), errors.Is(err, checkpoint.ErrCorrupt):
		return ErrTypeCorrupt
	case errors.Is(err, blob.ErrExists), errors.Is(err, checkpoint.ErrMismatch):
		return ErrTypeConflict
	case errors.Is(err, blob.ErrMisconfigured):
		return ErrTypeStore
	default:
		return ""
	}
}

// IsInvalid reports whether an error is the user's to mend, for who calls this
// package without Temporal.
func IsInvalid(err error) bool {
	kind := kindOf(err)
	return kind == ErrTypeInvalidConfig || kind == ErrTypeDataset || kind == ErrTypeRunExists
}
