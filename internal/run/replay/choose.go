package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"temper/internal/blob"
	"temper/internal/fault"
	"temper/internal/rl"
	"temper/internal/run"
	"temper/internal/run/artifact"
)

// Made lists the steps that a run has made by itself, in order. Errors: InvalidConfig
// for a run that is not there.
func Made(ctx context.Context, store blob.Store, runID string) ([]int, error) {
	plan, ok, err := run.StoredPlan(ctx, store, runID)
	if err == nil && !ok {
		err = fault.Newf(fault.InvalidConfig, "no run %q is stored (temper run list shows what there is)", runID)
	}
	if err != nil {
		return nil, err
	}
	first := 0
	if plan.Fork != nil {
		first = plan.Fork.Step
	}
	layout := artifact.Layout{RunID: runID}
	made := make([]bool, plan.NumSteps()+1)
	err = artifact.Each(ctx, len(made), func(ctx context.Context, step int) error {
		if step <= first {
			return nil
		}
		_, err := store.Stat(ctx, layout.Step(step).TrainResult())
		made[step] = err == nil
		if errors.Is(err, blob.ErrNotExist) {
			return nil
		}
		return err
	})
	var out []int
	for step, ok := range made {
		if ok {
			out = append(out, step)
		}
	}
	return out, err
}

// Sample chooses a share of steps, one at least, by a seed: the same seed gives the same
// steps.
func Sample(steps []int, share float64, seed uint64) []int {
	n := min(len(steps), max(1, int(math.Ceil(share*float64(len(steps))))))
	order := slices.Clone(steps)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(rl.Seed(seed, "verify", uint64(a)), rl.Seed(seed, "verify", uint64(b)))
	})
	return slices.Sorted(slices.Values(order[:n]))
}

// ParseSteps reads steps and ranges of them, such as 3 and 5-7.
func ParseSteps(words []string) ([]int, error) {
	var out []int
	for _, word := range words {
		from, to, isRange := strings.Cut(word, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil || a < 1 || b < a {
			return nil, fmt.Errorf("%q is no step, want a number from 1 on or a range such as 5-7", word)
		}
		if b-a >= maxSteps {
			return nil, fmt.Errorf("%q has %d steps, want at most %d at a time", word, b-a+1, maxSteps)
		}
		for step := a; step <= b; step++ {
			out = append(out, step)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// maxSteps bounds a range of steps, so that a slip of the finger is not taken for one.
const maxSteps = 100_000

// ParseShare reads a share such as 1% or 0.01.
func ParseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return 0, fmt.Errorf("is %q, want a share such as 1%% or 0.01, up to 100%%", text)
	}
	return v, nil
}
