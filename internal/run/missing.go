package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/fault"
)

// MissingPolicy is the error, of a kind, that a run has no policy of a version. It
// names those that it has.
func MissingPolicy(ctx context.Context, store blob.Store, kind fault.Kind, runID string, version int64) error {
	layout := artifact.Layout{RunID: runID}
	have, err := artifact.Policies(ctx, store, layout)
	if err != nil {
		return err
	}
	if len(have) == 0 {
		return fault.New(kind, fmt.Errorf("run %s has no policy %d: it has published none yet (temper run list shows the runs)", runID, version))
	}
	gone := ""
	if version > 0 {
		_, err := store.Stat(ctx, layout.TrainResult(int(version)))
		if err != nil && !errors.Is(err, blob.ErrNotExist) {
			return err
		}
		if err == nil {
			gone = " any more (checkpoint.keep_policies)"
		}
	}
	return fault.New(kind, fmt.Errorf("run %s has no policy %d%s: it has %s, the nearest %s", runID, version, gone, ranges(have), nearest(have, version)))
}

// vanished explains an error of reading a policy that was deleted meanwhile.
func vanished(ctx context.Context, store blob.Store, runID string, version int64, err error) error {
	if !errors.Is(err, blob.ErrNotExist) {
		return err
	}
	_, there, lookupErr := artifact.Lookup[Policy](ctx, store, artifact.Layout{RunID: runID}.PolicyRef(version))
	if there || lookupErr != nil { // then something else is wrong with it
		return err
	}
	return MissingPolicy(ctx, store, fault.InvalidConfig, runID, version)
}

// nearest names the versions around one that is missing.
func nearest(have []int64, version int64) string {
	i, _ := slices.BinarySearch(have, version)
	switch i {
	case 0:
		return fmt.Sprintf("is %d", have[0])
	case len(have):
		return fmt.Sprintf("is %d", have[i-1])
	default:
		return fmt.Sprintf("are %d and %d", have[i-1], have[i])
	}
}

// ranges writes sorted numbers as "0, 4-6, 9".
func ranges(numbers []int64) string {
	var out []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		text := fmt.Sprint(numbers[i])
		if last > i {
			text = fmt.Sprintf("%d-%d", numbers[i], numbers[last])
		}
		out = append(out, text)
		i = last + 1
	}
	return strings.Join(out, ", ")
}
