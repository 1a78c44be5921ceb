package onestep

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// maxLines keeps the step short enough to be read at once.
const maxLines = 200

// TestDocAgrees: every line of Go in docs/one-step.md stands in the test as it is.
func TestDocAgrees(t *testing.T) {
	source, err := os.ReadFile("onestep_test.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/one-step.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(source, []byte("\n")); n > maxLines {
		t.Errorf("onestep_test.go has %d lines, want at most %d", n, maxLines)
	}
	blocks := 0
	for part := range strings.SplitSeq(string(doc), "```go\n") {
		if block, _, ok := strings.Cut(part, "```"); ok && blocks > 0 && !strings.Contains(string(source), block) {
			t.Errorf("docs/one-step.md shows what onestep_test.go does not have:\n%s", block)
		}
		blocks++
	}
	if blocks < 4 {
		t.Errorf("docs/one-step.md shows %d pieces of the test, want at least 3", blocks-1)
	}
}
