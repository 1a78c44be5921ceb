package activities

import (
	"go.temporal.io/sdk/temporal"

	"temper/internal/blob"
	"temper/internal/fault"
)

// toTemporal is the one mapping from our errors to Temporal's, at the border of
// each activity: what a retry cannot mend becomes a non-retryable error of the
// fault's kind, on which workflows switch; the rest is retried. An error that a damaged
// object caused names the object, which may be made again.
func toTemporal(err error) error {
	kind := fault.Of(err)
	damaged, ok := blob.DamagedRef(err)
	if kind == "" && ok {
		kind = fault.NotFound
	}
	if kind == "" {
		return err
	}
	if ok {
		return temporal.NewNonRetryableApplicationError(err.Error(), string(kind), nil, Damage{Ref: damaged})
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), string(kind), nil)
}

// Damage is the detail of an error that a damaged or missing object caused.
type Damage struct {
	// Ref is the object as it should be. It has no SHA-256 if the checksum is unknown.
	Ref blob.Ref `json:"damaged"`
}
