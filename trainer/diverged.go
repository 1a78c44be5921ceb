package trainer

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"temper/internal/blob"
	"temper/trainer/checkpoint"
)

// DivergedError is the error of an update that was refused because its loss, its gradient or
// one of its metrics is not finite. It is an ErrDiverged.
type DivergedError struct {
	Report Divergence
}

// Error returns one line with the values, the tensor and the sample.
func (e *DivergedError) Error() string {
	r := &e.Report
	return fmt.Sprintf("%v: loss %v, gradient norm %v, %s", ErrDiverged, float64(r.Loss), float64(r.GradNorm), r.Cause)
}

// Unwrap returns ErrDiverged.
func (e *DivergedError) Unwrap() error { return ErrDiverged }

// Save stores the report as JSON under key, replacing an earlier one, and returns its location.
func (e *DivergedError) Save(ctx context.Context, store blob.Store, key string) (where string, err error) {
	if _, err := blob.PutJSON(ctx, store, key, &e.Report, blob.Always); err != nil {
		return "", fmt.Errorf("store the report of a diverged step: %w", err)
	}
	return store.Locate(key), nil
}

// Divergence reports the inputs of a refused update, and the first values that are not finite.
// It holds ids, counts and norms, and no text of a sample.
type Divergence struct {
	Step      int                 `json:"step"` // position in the schedule
	Objective string              `json:"objective"`
	LR        Number              `json:"lr"`
	Counters  checkpoint.Counters `json:"counters"` // before the refused update
	// Loss and GradNorm of the refused update. A gradient may be finite in every value
	// while its norm overflows float32.
	Loss     Number `json:"loss"`
	GradNorm Number `json:"grad_norm"`
	// Metric is the first measure that is not finite; the loss is one of them.
	Metric string `json:"metric,omitempty"`
	// Cause in words.
	Cause string `json:"cause"`
	// Tensor is the first one with a value that is not finite. Weights come first, in the
	// order of the network, then gradients, in the order of the backward pass.
	Tensor string `json:"tensor,omitempty"`
	// Passes over the microbatches, repeated for this report.
	Passes []DivergedPass `json:"passes"`
	// Samples of the worst pass, each in a pass alone.
	Samples []DivergedSample `json:"samples,omitempty"`
	// Tensors, in the order of the network, with their gradients in the worst pass.
	Tensors []TensorReport `json:"tensors"`
	// Incomplete is the reason why parts of the report are missing.
	Incomplete string `json:"incomplete,omitempty"`
}

// DivergedPass is a device pass of a refused update.
type DivergedPass struct {
	Rows     int              `json:"rows"` // of the padded shape
	Length   int              `json:"length"`
	Loss     Number           `json:"loss"`      // its part of the loss
	GradNorm Number           `json:"grad_norm"` // of its part of the gradient, in float64
	Metric   string           `json:"metric,omitempty"`
	Tensor   string           `json:"tensor,omitempty"`
	Samples  []DivergedSample `json:"samples"`
}

// DivergedSample identifies a sample. Loss, GradNorm and Metric come from a pass over this
// sample alone, if one was made.
type DivergedSample struct {
	Index      int     `json:"index"` // in the batch
	ProblemID  string  `json:"problem_id"`
	Rollout    int     `json:"rollout"`
	Tokens     int     `json:"tokens"`
	LossTokens int     `json:"loss_tokens"`
	Advantage  Number  `json:"advantage"`
	Loss       *Number `json:"loss,omitempty"`
	GradNorm   *Number `json:"grad_norm,omitempty"`
	Metric     string  `json:"metric,omitempty"`
}

// TensorReport holds norms, computed in float64, and counts of values that are not
// finite.
type TensorReport struct {
	Name              string `json:"name"`
	Frozen            bool   `json:"frozen,omitempty"`
	WeightNorm        Number `json:"weight_norm"`
	WeightNotFinite   int    `json:"weight_not_finite"`
	GradientNorm      Number `json:"gradient_norm"`
	GradientNotFinite int    `json:"gradient_not_finite"`
}

// Number is a float64 whose JSON is a string where JSON has no number: "NaN", "+Inf", "-Inf".
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) {
	if x := float64(n); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte(strconv.Quote(strconv.FormatFloat(x, 'g', -1, 64))), nil
	}
	return json.Marshal(float64(n))
}
