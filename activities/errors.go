package activities

import (
	"errors"

	"go.temporal.io/sdk/temporal"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

// Types of application errors that Temporal carries. Workflows and retry
// policies switch on these, never on text.
const (
	ErrTypeInvalidConfig = "InvalidConfig" // the user's configuration
	ErrTypeRunExists     = "RunExists"     // a run id that is taken
	ErrTypeDiverged      = "Diverged"      // NaN or Inf in loss or gradient
	ErrTypeDataset       = "Dataset"       // a missing or corrupt dataset
	ErrTypeCorrupt       = "Corrupt"       // stored bytes that do not match their reference
)

func userError(kind string, err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), kind, err)
}

// toTemporal is the one mapping from our errors to Temporal's: what a retry
// cannot mend becomes a typed, non-retryable error; the rest is retried.
func toTemporal(err error) error {
	var app *temporal.ApplicationError
	var cfg config.Problems
	switch {
	case err == nil, errors.As(err, &app):
		return err
	case errors.As(err, &cfg):
		return userError(ErrTypeInvalidConfig, err)
	case errors.Is(err, trainer.ErrDiverged):
		return userError(ErrTypeDiverged, err)
	case errors.Is(err, blob.ErrCorrupt), errors.Is(err, checkpoint.ErrCorrupt):
		return userError(ErrTypeCorrupt, err)
	default:
		return err
	}
}
