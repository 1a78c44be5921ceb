package runclient

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPathsOfOverridesCountFromHere, since other processes read them elsewhere.
func TestPathsOfOverridesCountFromHere(t *testing.T) {
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	s := Submission{Set: []string{"model.path=qwen3", "sft.data.path=/abs.jsonl", "stages[0].data.path=", "name=a.path", "stages[1].data={path: b.jsonl}"}}
	got, err := s.Overrides()
	want := map[string]string{
		"model.path": filepath.Join(here, "qwen3"), "sft.data.path": "/abs.jsonl", "stages[0].data.path": "", "name": "a.path",
		"stages[1].data": "{path: b.jsonl}", "stages[1].data.path": filepath.Join(here, "b.jsonl"),
	}
	if diff := cmp.Diff(got, want); err != nil || diff != "" {
		t.Errorf("error %v, got -, want +\n%s", err, diff)
	}
}
