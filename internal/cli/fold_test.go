package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestFold(t *testing.T) {
	for name, c := range map[string]struct {
		f    folder
		text string
		want []string
	}{
		"fits":              {folder{width: 20}, "a b  c", []string{"a b  c"}},
		"nothing":           {folder{width: 20, first: "> "}, " ", []string{"> "}},
		"between fields":    {folder{width: 12, rest: "  "}, "step 1/9  hops-1  reward 0.10", []string{"step 1/9", "  hops-1", "  reward", "  0.10"}},
		"as many as fit":    {folder{width: 18, rest: "  "}, "step 1/9  hops-1  reward 0.10", []string{"step 1/9  hops-1", "  reward 0.10"}},
		"between words":     {folder{width: 10, rest: "  "}, "one two three four", []string{"one two", "  three", "  four"}},
		"long word, cut":    {folder{width: 6, rest: "  ", cut: true}, "ab abcdefghij", []string{"ab", "  abcd", "  efgh", "  ij"}},
		"long word, whole":  {folder{width: 6, rest: "  "}, "ab http://x/abcdef cd", []string{"ab", "  http://x/abcdef", "  cd"}},
		"no room at all":    {folder{width: 1, first: "  ", rest: "  ", cut: true}, "ab", []string{"  ab"}},
		"wide characters":   {folder{width: 4}, "äöü äöü", []string{"äöü", "äöü"}},
		"indented at first": {folder{width: 9, first: "  ", rest: "    "}, "abc  def  ghi", []string{"  abc", "    def", "    ghi"}},
	} {
		got := c.f.fold(c.text)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFoldLosesNothing, and keeps every line within a width that has room for a word.
func TestFoldLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z\x{e4} ]{0,60}`).Draw(t, "text")
		f := folder{width: rapid.IntRange(3, 40).Draw(t, "width"), rest: " ", cut: true}
		lines := f.fold(text)
		for _, l := range lines {
			if n := utf8.RuneCountInString(l); n > f.width {
				t.Fatalf("line of %d columns, want at most %d: %q", n, f.width, l)
			}
		}
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if squeeze(strings.Join(lines, " ")) != squeeze(text) {
			t.Fatalf("%q became %q", text, lines)
		}
	})
}
