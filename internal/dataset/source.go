package dataset

import (
	"fmt"
	"io"
	"os"

	"temper/internal/chat"
	"temper/internal/config"
	"temper/internal/env"
	"temper/internal/rl"
)

// Problems returns the problems of a source: the lines of its file, whatever the
// split, or Num generated ones of the split, the levels in equal shares and
// interleaved.
func Problems(src config.Source, seed uint64, split env.Split) ([]rl.Problem, error) {
	if src.Path != "" {
		return readFile(src.Path, ReadProblems)
	}
	e, shares, err := plan(src)
	if err != nil {
		return nil, err
	}
	byLevel := make([][]rl.Problem, len(src.Levels))
	for i, level := range src.Levels {
		if byLevel[i], err = e.Problems(seed, split, level, shares[i]); err != nil {
			return nil, err
		}
	}
	out := make([]rl.Problem, src.Num)
	for i := range out {
		at := i % len(byLevel)
		out[i] = byLevel[at][i/len(byLevel)]
	}
	return out, nil
}

// Dialogues returns the training dialogues of a source; see Problems.
func Dialogues(src config.Source, seed uint64) ([]chat.Dialogue, error) {
	if src.Path != "" {
		return readFile(src.Path, ReadDialogues)
	}
	e, _, err := plan(src)
	if err != nil {
		return nil, err
	}
	out := make([]chat.Dialogue, src.Num)
	for i := range out {
		if out[i], err = e.Dialogue(seed, i, src.Levels[i%len(src.Levels)]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// plan checks a generated source and returns how many to draw from each level.
func plan(src config.Source) (env.Environment, []int, error) {
	e, err := env.ByName(src.Env)
	if err != nil {
		return nil, nil, fmt.Errorf("env: %w", err)
	}
	if src.Num < 1 || len(src.Levels) == 0 {
		return nil, nil, fmt.Errorf("num is %d and levels are %v: want at least 1 and one", src.Num, src.Levels)
	}
	seen := map[int]bool{}
	shares := make([]int, len(src.Levels))
	for i, level := range src.Levels {
		if err := e.CheckLevel(level); err != nil {
			return nil, nil, fmt.Errorf("levels: %w", err)
		}
		if seen[level] {
			return nil, nil, fmt.Errorf("levels: %d is given twice", level)
		}
		seen[level] = true
		shares[i] = (src.Num - i + len(src.Levels) - 1) / len(src.Levels)
	}
	return e, shares, nil
}

func readFile[T any](path string, read func(io.Reader, string) ([]T, error)) ([]T, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open dataset: %w", err)
	}
	out, err := read(f, path)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		return nil, fmt.Errorf("close dataset: %w", closeErr)
	}
	return out, err
}
