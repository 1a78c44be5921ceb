package run

import (
	"fmt"
	"slices"

	"temper/internal/config"
	"temper/internal/rl"
)

// What crosses Temporal stays below 64 KiB, a thirtieth of what a server takes:
// payloads lie in histories and are sent again at each replay.
const (
	// MaxConfigBytes bounds a configuration that is sent as text or as an object.
	MaxConfigBytes = 48 << 10
	// MaxStepIDBytes bounds the ids of the problems of one step, as JSON.
	MaxStepIDBytes = 48 << 10
)

// CheckSize reports a configuration that is too long to be sent.
func (in Input) CheckSize() error {
	if n := len(in.Config); n > MaxConfigBytes {
		return fmt.Errorf("config: %s as text, want at most %s: shorten rollout.system_prompt, or name a file that the control worker can read",
			config.Bytes(n), config.Bytes(MaxConfigBytes))
	}
	return nil
}

// checkStepIDs finds ids that are too long for a step to name all of its problems.
func checkStepIDs(problems []rl.Problem, perStep int) error {
	var sizes []int
	for _, p := range problems {
		sizes = append(sizes, len(p.ID)+len(`"",`))
	}
	slices.SortFunc(sizes, func(a, b int) int { return b - a })
	total := 0
	for _, n := range sizes[:min(perStep, len(sizes))] {
		total += n
	}
	if total > MaxStepIDBytes {
		return fmt.Errorf("the ids of a step's %d problems take %s, want at most %s: shorten the ids or lower rl.problems_per_step",
			perStep, config.Bytes(total), config.Bytes(MaxStepIDBytes))
	}
	return nil
}
