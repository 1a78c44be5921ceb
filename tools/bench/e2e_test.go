//go:build integration

package main

import (
	"fmt"
	"os"
	"testing"

	"temper/internal/proc/testbin"
)

// bin is the folder with temper, temper-bench, temporald and s3d; TestMain fills it.
var bin string

func TestMain(m *testing.M) {
	code, err := withBinaries(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withBinaries(test func() int) (int, error) {
	dir, err := os.MkdirTemp("", "temper-bench-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	bin = dir
	if err := testbin.Build("../..", dir); err != nil {
		return 1, err
	}
	if err := testbin.BuildBench("../..", dir); err != nil {
		return 1, err
	}
	return test(), nil
}
