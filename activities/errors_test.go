package activities_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.temporal.io/sdk/temporal"

	"temper/activities"
	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/fault"
	"temper/trainer"
	"temper/trainer/checkpoint"
)

func TestErrorsThatNoRetryMends(t *testing.T) {
	for kind, cause := range map[string]error{
		string(fault.InvalidConfig): config.Problems{{Path: "seed", Msg: "the cause"}},
		string(fault.Dataset):       fault.New(fault.Dataset, errors.New("the cause")),
		string(fault.Corrupt):       fmt.Errorf("the cause: %w", blob.ErrCorrupt),
		string(fault.Diverged):      fmt.Errorf("the cause: %w", trainer.ErrDiverged),
		string(fault.TooLarge):      fmt.Errorf("the cause: %w", trainer.ErrTooLarge),
		string(fault.Conflict):      fmt.Errorf("the cause: %w", blob.ErrExists),
		string(fault.Store):         fmt.Errorf("the cause: %w", blob.ErrMisconfigured),
	} {
		wantKind(t, activities.ToTemporal(cause), kind, "the cause")
		wantKind(t, activities.ToTemporal(fmt.Errorf("step 3: %w", cause)), kind, "step 3: ")
	}
	wantKind(t, activities.ToTemporal(fmt.Errorf("load: %w", checkpoint.ErrCorrupt)), string(fault.Corrupt), "load")
	for _, err := range []error{nil, errors.New("it may pass"), context.Canceled, context.DeadlineExceeded, blob.ErrNotExist, blob.ErrUnavailable, blob.ErrConflict} {
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

// wantKind checks type, text and that Temporal will not retry.
func wantKind(t *testing.T, err error, kind, text string) {
	t.Helper()
	app, ok := err.(*temporal.ApplicationError) //nolint:errorlint // Temporal looks at the outermost error only
	if !ok || app.Type() != kind || !app.NonRetryable() || !strings.Contains(app.Message(), text) {
		t.Errorf("error %v (%T), want a final one of type %s saying %q", err, err, kind, text)
	}
}
