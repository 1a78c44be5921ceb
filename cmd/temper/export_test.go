package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/history"
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

// TestExportThatFails leaves the file of the export before it.
func TestExportThatFails(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 2, false)
	left := 0
	r, err := history.Open(t.Context(), outage{h.Store, &left, blob.ErrUnavailable}, "demo")
	if err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	out := filepath.Join(t.TempDir(), "rollouts.parquet")
	if _, err := exportFile(cmd, r, "parquet", out, "", 1, 2); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	left = 1000
	if _, err := exportFile(cmd, r, "parquet", out, "", 1, 2); !errors.Is(err, blob.ErrUnavailable) {
		t.Errorf("error %v, want that of the store", err)
	}
	after, err := os.ReadFile(out)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("%d bytes of %d are left (%v)", len(after), len(before), err)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(out), "*")); len(files) != 1 {
		t.Errorf("the folder has %q", files)
	}
}
