package trainer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"temper/internal/rl"
	"temper/trainer"
)

// TestStepThatDoesNotFitIsRefused before anything is done, by its largest pass.
func TestStepThatDoesNotFitIsRefused(t *testing.T) {
	cfg := tinyConfig()
	cfg.MicrobatchTokens = 64
	cfg.MemoryLimit = 40 << 30
	accumulated := false
	cfg.StepBytes = func(rows, length, _ int, accumulate bool) (int64, error) {
		accumulated = accumulate
		return int64(rows*length) << 30, nil
	}
	tr := initialised(t, cfg)
	before := snapshot(t, tr)
	s := append(samples(3, 20, 3), cut(samples(1, 90, 4), 45)...)
	step := func(s []rl.Sample) error {
		_, err := tr.SFTStep(t.Context(), s, adam(), constant(1))
		return err
	}
	err := step(s)
	want := "sft step 1: step does not fit the memory: a pass of "
	if !errors.Is(err, trainer.ErrTooLarge) || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "GiB of 40.00 GiB") {
		t.Errorf("error %v, want ErrTooLarge in the form %q", err, want)
	}
	if !accumulated || tr.NumGraphs() != 0 {
		t.Errorf("accumulate %v with several passes; %d graphs were built", accumulated, tr.NumGraphs())
	}
	sameState(t, "after the refusal", snapshot(t, tr), before)
	if err := step(samples(1, 20, 3)); err != nil || accumulated {
		t.Errorf("a small step: error %v, accumulate %v", err, accumulated)
	}
	broken := tinyConfig()
	broken.MemoryLimit = 1
	broken.StepBytes = func(int, int, int, bool) (int64, error) { return 0, fmt.Errorf("no idea") }
	tr = initialised(t, broken)
	if err := step(s); err == nil || !strings.Contains(err.Error(), "no idea") {
		t.Errorf("error %v of the estimate is lost", err)
	}
}
