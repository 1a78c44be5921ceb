package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
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

func FuzzFold(f *testing.F) {
	f.Add("a  b c", 7)
	f.Add(strings.Repeat("x", 50), 5)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = 3 + min(max(width, 0), 200)
		fd := folder{width: width, rest: " ", cut: true}
		lines := fd.fold(text)
		var b strings.Builder
		for _, l := range lines {
			if utf8.RuneCountInString(l) > width && utf8.ValidString(text) {
				t.Errorf("line of %d columns, want at most %d: %q", utf8.RuneCountInString(l), width, l)
			}
			b.WriteString(l)
		}
		if utf8.ValidString(text) && strings.Join(strings.Fields(b.String()), "") != strings.Join(strings.Fields(text), "") {
			t.Errorf("%q became %q", text, lines)
		}
	})
}
