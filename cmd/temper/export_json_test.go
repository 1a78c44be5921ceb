package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/cli"
	"temper/internal/run/record"
	"temper/internal/run/runtest"
)

// TestRunRollouts prints the same lines whether a group is stored as lines or as a
// compact record, which has no text.
func TestRunRollouts(t *testing.T) {
	h := runtest.New(t, nil)
	h.Whole(t, 1, true)
	home := t.TempDir()
	t.Setenv("TEMPER_HOME", home)
	t.Setenv("TEMPER_STORE", "")
	store, err := fileblob.New(filepath.Join(home, "store"))
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range runtest.Dump(t, h.Store) {
		runtest.Put(t, store, key, data)
	}
	id := h.Selected(t, 1, 1)[0]
	lines, err := blob.ReadKey(t.Context(), store, h.Layout.Group(1, id))
	if err != nil {
		t.Fatal(err)
	}
	all := output(t, "export", "demo", "--format", "json", "--from", "1", "--to", "1")
	if n := strings.Count(all, "\n"); n != 18 || !strings.Contains(all, string(lines)) {
		t.Errorf("%d lines, want those of 18 trajectories", n)
	}
	trajectories, err := record.Decode(lines)
	if err != nil {
		t.Fatal(err)
	}
	var packed []record.Packed
	for i := range trajectories {
		p, err := record.Pack(&trajectories[i])
		if err != nil {
			t.Fatal(err)
		}
		packed = append(packed, p)
	}
	data, err := record.Compact(packed)
	if err != nil {
		t.Fatal(err)
	}
	runtest.Put(t, store, h.Layout.Group(1, id), string(data))
	if got := output(t, "export", "demo", "--format", "json", "--from", "1", "--to", "1", "--problem", id); got != string(lines) {
		t.Errorf("of a compact record:\n%s\nwant\n%s", got, lines)
	}
	for _, args := range [][]string{{"--from", "9"}, {"--from", "1", "--problem", "nobody"}, {"--format", "csv", "--problem", id}} {
		var stdout, stderr bytes.Buffer
		if code := execute(append([]string{"export", "demo", "--format", "json"}, args...), &stdout, &stderr); code != cli.ExitUser {
			t.Errorf("%q: exit code %d: %s", args, code, stderr.String())
		}
	}
}
