package activities

import (
	"go.temporal.io/sdk/temporal"

	"temper/internal/fault"
)

// toTemporal is the one mapping from our errors to Temporal's, at the border of
// each activity: what a retry cannot mend becomes a non-retryable error of the
// fault's kind, on which workflows switch; the rest is retried.
func toTemporal(err error) error {
	kind := fault.Of(err)
	if kind == "" {
		return err
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), string(kind), nil)
}
