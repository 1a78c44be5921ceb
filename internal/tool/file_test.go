package tool_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/tool"
	"temper/internal/tool/pyfile"
)

// TestFilesOfTools: the public functions are tools.
func TestFilesOfTools(t *testing.T) {
	f, problems := tool.NewFile("my.py", []byte("import os\n\ndef _help(x): pass\n\ndef f(a: int):\n    'F.'\n\ndef g():\n    'G.'\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var names []string
	for _, fn := range f.Functions {
		names = append(names, fn.Name)
	}
	if diff := cmp.Diff([]string{"f", "g"}, names); diff != "" || len(f.SHA256) != 64 {
		t.Errorf("functions -want +got\n%s sum %q", diff, f.SHA256)
	}
}

// TestFaultsOfFilesOfTools are named all at once.
func TestFaultsOfFilesOfTools(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		want   []string
	}{
		"empty":     {"", []string{"has no function"}},
		"private":   {"def _f(): pass", []string{"has no function"}},
		"too long":  {"#" + strings.Repeat("x", 1<<20), []string{"has 1048577 bytes, above the limit of 65536"}},
		"no UTF-8":  {"\xff", []string{"is not valid UTF-8"}},
		"zero byte": {"x = 1\x00", []string{"holds a zero byte"}},
		"several": {
			"def f(a):\n    pass\ndef python(code: str):\n    'P.'\ndef f(a: int):\n    'F.'\ndef g(x: Odd):\n    'G.'\n",
			[]string{
				"line 1: f: has no docstring", "line 1: f: parameter a has no type hint", "line 3: python is the name of a tool that Temper has",
				"line 5: defines f a second time, after line 1", "line 7: g: parameter x has the hint Odd",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := tool.NewFile("my.py", []byte(c.source))
			text := lines(problems)
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("the problems lack %q:\n%s", want, text)
				}
			}
		})
	}
}

func lines(problems []pyfile.Problem) string {
	var out []string
	for _, p := range problems {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}
