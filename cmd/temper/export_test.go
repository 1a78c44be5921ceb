package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/blob/fileblob"
	"temper/internal/run/runtest"
	"temper/internal/series"
)

// TestExportAgain: a run whose plan grew since it was exported is in the folder once, with all
// its steps: TensorBoard adds up the files of a folder.
func TestExportAgain(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 6, false)
	home := t.TempDir()
	t.Setenv("TEMPER_HOME", home)
	t.Setenv("TEMPER_STORE", "")
	store, err := fileblob.New(filepath.Join(home, "store"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	export := func(format string) {
		t.Helper()
		for key, data := range runtest.Dump(t, h.Store) {
			runtest.Put(t, store, key, data)
		}
		output(t, "export", "demo", "--format", format, "--out", filepath.Join(dir, format))
	}
	formats := []string{"tensorboard", "wandb"}
	for _, format := range formats {
		export(format)
	}
	h.Repeat(t, "second")
	h.Continue(t, 7, 8)
	for _, format := range formats {
		export(format)
	}
	for _, pattern := range []string{"tensorboard/*/*", "wandb/*/*.wandb"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: files %q (%v), want one", pattern, files, err)
		}
		data, err := os.ReadFile(files[0])
		if n := strings.Count(string(data), series.Reward) - 1; err != nil || n < 7 {
			t.Errorf("%s: the reward of %d steps (%v), want 8", files[0], n+1, err)
		}
	}
}
