package archtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestContributingHasTheTable holds the table of layers for people equal to the one
// that is enforced.
func TestContributingHasTheTable(t *testing.T) {
	want := map[string]string{}
	for _, p := range packages {
		if !p.planned {
			want[p.pattern] = [...]string{vocabulary: "L0", ports: "L1", adapters: "L2", durable: "L3", composition: "L4"}[p.layer]
		}
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^\| (L\d) \|[^|]*\|([^|]*)\|`).FindAllStringSubmatch(string(text), -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line[2], -1) {
			for _, pattern := range expand(name[1]) {
				if old, twice := got[pattern]; twice {
					t.Errorf("CONTRIBUTING.md names %s in %s and in %s", pattern, old, line[1])
				}
				got[pattern] = line[1]
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layers (-table_test.go +CONTRIBUTING.md):\n%s", diff)
	}
}

// expand writes a/{b,c} as a/b and a/c.
func expand(name string) []string {
	before, rest, ok := strings.Cut(name, "{")
	if !ok {
		return []string{name}
	}
	inner, _, _ := strings.Cut(rest, "}")
	var out []string
	for part := range strings.SplitSeq(inner, ",") {
		out = append(out, before+part)
	}
	return out
}
