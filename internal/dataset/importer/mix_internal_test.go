package importer

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// TestMixOfAFileThatCannotBeRead: an error of the disk is no end of the file.
func TestMixOfAFileThatCannotBeRead(t *testing.T) {
	broken := errors.New("broken disk")
	m := &mixFile{}
	if err := m.index(t.Context(), io.MultiReader(strings.NewReader("{}\n{}\n"), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("error %v with %d lines, want that of the disk", err, len(m.lines))
	}
}

// mixed mixes a file of the given text, and returns what is written.
func mixed(ctx context.Context, t *testing.T, text string) (string, error) {
	t.Helper()
	in, out := filepath.Join(t.TempDir(), "in.jsonl"), filepath.Join(t.TempDir(), "out.jsonl")
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := Mix{Out: out, By: ByEpochs, Seed: 1}
	err := m.Write(ctx, io.Discard, []string{in})
	data, readErr := os.ReadFile(out)
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		t.Fatal(readErr)
	}
	return string(data), err
}

// TestMixBehindAByteOrderMark: the rows are whole.
func TestMixBehindAByteOrderMark(t *testing.T) {
	if got, err := mixed(t.Context(), t, "\xef\xbb\xbf{\"a\":1}\n"); err != nil || got != "{\"a\":1}\n" {
		t.Errorf("%q (%v)", got, err)
	}
}

// TestMixThatIsInterrupted writes nothing.
func TestMixThatIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := mixed(ctx, t, "{}\n"); !errors.Is(err, context.Canceled) || got != "" {
		t.Errorf("%q (%v)", got, err)
	}
}
