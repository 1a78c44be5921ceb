package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

func TestErrorsThatNoRetryMends(t *testing.T) {
	_, notFinite := json.Marshal(math.NaN())
	for kind, cause := range map[string]error{
		activities.ErrTypeInvalidConfig: config.Problems{{Path: "seed", Msg: "the cause"}},
		activities.ErrTypeDataset:       activities.Permanent(activities.ErrTypeDataset, errors.New("the cause")),
		activities.ErrTypeCorrupt:       fmt.Errorf("the cause: %w", blob.ErrCorrupt),
		activities.ErrTypeDiverged:      fmt.Errorf("the cause: %w", trainer.ErrDiverged),
		activities.ErrTypeTooLarge:      fmt.Errorf("the cause: %w", trainer.ErrTooLarge),
		activities.ErrTypeConflict:      fmt.Errorf("the cause: %w", blob.ErrExists),
		activities.ErrTypeStore:         fmt.Errorf("the cause: %w", blob.ErrMisconfigured),
	} {
		wantKind(t, activities.ToTemporal(cause), kind, "the cause")
		wantKind(t, activities.ToTemporal(fmt.Errorf("step 3: %w", cause)), kind, "step 3: ")
	}
	wantKind(t, activities.ToTemporal(fmt.Errorf("load: %w", checkpoint.ErrCorrupt)), activities.ErrTypeCorrupt, "load")
	wantKind(t, activities.ToTemporal(notFinite), activities.ErrTypeDiverged, "NaN")
	for _, err := range []error{nil, errDied, context.Canceled, context.DeadlineExceeded, blob.ErrNotExist, blob.ErrUnavailable, blob.ErrConflict} {
		if got := activities.ToTemporal(err); got != err { //nolint:errorlint // the very same error
			t.Errorf("%v became %v: it may pass, so it is to be retried", err, got)
		}
	}
}

// TestWatchEndsWithoutProgress, and not before.
func TestWatchEndsWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		progress := func() string { // moves for two hours
			return min(time.Since(started), 2*time.Hour).Truncate(50 * time.Minute).String()
		}
		beats := 0
		if activities.Watch(nil, progress, func(string) { beats++ }) {
			t.Error("an activity that stands still was vouched for")
		}
		took := time.Since(started)
		if took < 100*time.Minute+activities.StallTimeout || took > 101*time.Minute+activities.StallTimeout {
			t.Errorf("given up after %s", took)
		}
		if want := int(took/activities.HeartbeatInterval) - 1; beats != want {
			t.Errorf("%d beats, want %d", beats, want)
		}
		done := make(chan struct{})
		time.AfterFunc(time.Minute, func() { close(done) })
		if !activities.Watch(done, progress, func(string) {}) {
			t.Error("an activity that has ended was given up")
		}
	})
}
