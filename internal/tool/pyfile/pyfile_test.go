package pyfile_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/tool/pyfile"
)

// declared lists the functions of a source, each with its line and its parameters.
func declared(t *testing.T, src string) []string {
	t.Helper()
	functions, problem := pyfile.Parse(src)
	if problem != nil {
		t.Fatal(problem)
	}
	var out []string
	for _, f := range functions {
		text := fmt.Sprintf("%d %s", f.Line, f.Name)
		for _, p := range f.Params {
			text += " " + strings.Repeat("*", p.Stars) + p.Name + ":" + p.Hint
			if p.Optional {
				text += "?"
			}
		}
		out = append(out, text)
	}
	return out
}

// TestWhatAFileDeclares: only functions at the top level count, and neither strings nor
// comments nor brackets deceive.
func TestWhatAFileDeclares(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want []string
	}{
		"nothing":     {"", nil},
		"plain":       {"def f(a: int, b: str = 'x') -> int:\n    return a\n", []string{"1 f a:int b:str?"}},
		"one line":    {"def f(): return 1", []string{"1 f"}},
		"nested":      {"class A:\n    def g(self): pass\nif True:\n    def h(): pass\ndef f():\n    def inner(): pass\n", []string{"5 f"}},
		"in a string": {"x = '''\ndef g():\n    pass\n'''\ny = \"def h():\"\ndef f(): pass\n", []string{"6 f"}},
		"in a comment": {
			"# def g():\ndef f(a: int,  # the ' first\n      b: dict[str, list[int]] = {'a': [1, 2]},\n      *rest, c: 'X' = (1, 2), **more): pass\n",
			[]string{"2 f a:int b:dict[str,list[int]]? *rest: c:'X'? **more:"},
		},
		"in brackets":       {"x = [\n1,\n]\nz = f(\ndef_ := 1\n)\ndef f(): pass", []string{"7 f"}},
		"continued":         {"x = 1 + \\\n2\ndef f(): pass", []string{"3 f"}},
		"formatted strings": {"x = f'{d['a']} {{ {y:>{w}} ' + f\"\"\"\n{'''q'''}\n\"\"\"\ndef f(): pass", []string{"4 f"}},
		"raw strings":       {"x = r'\\'' + rb\"\\\\\"\ndef f(): pass", []string{"2 f"}},
		"line ends":         {"\ufeffx = 1\r\n\r\ndef f(a: int):\r\n    pass\r\n", []string{"3 f a:int"}},
		"by name alone":     {"def f(*, a: int): pass", []string{"1 f a:int"}},
		"async":             {"async def f(): pass\n@x.y(1)\ndef g(): pass", []string{"1 f", "3 g"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, declared(t, c.src)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestUnreadableFilesAreNamed(t *testing.T) {
	for src, want := range map[string]string{
		"x = 1\ny = 'abc\ndef f(): pass": "line 2: has a string that is not closed",
		"x = '''\ndef f(): pass":         "line 1: has a string that is not closed",
		"def f(a: int\n":                 "line 1: has a def f whose parameters cannot be read",
		"def f(1 2): pass":               "line 1: has a def f whose parameters cannot be read",
		"\ndef f(a)\n":                   "line 2: has a def f without a colon",
		"def f:\n  pass":                 "line 1: has a def without parameters",
	} {
		if _, problem := pyfile.Parse(src); problem == nil || !strings.Contains(problem.String(), want) {
			t.Errorf("%q: %v, want %q", src, problem, want)
		}
	}
}

// TestSchema: hints and docstrings become the schema that chat templates show.
func TestSchema(t *testing.T) {
	src := `
def f(a: str, b: int = 1, c: float | None = None, d: list[dict[str, bool]] = [], e: Literal["x", 'y'] = "x",
      g: Optional[int] = None, h: Union[int, str] = 1, i: typing.Any = 0, j: dict = {}):
    """Do "it"
    well.

    Args:
        a: the first
            of all
        b (int): the second
    Returns:
        nothing
    """
`
	functions, problem := pyfile.Parse(src)
	if problem != nil {
		t.Fatal(problem)
	}
	schema, problems := functions[0].Schema()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	const want = `{"type": "function", "function": {"name": "f", "description": "Do \"it\" well.", "parameters": {"type": "object", "properties": {` +
		`"a": {"type": "string", "description": "the first of all"}, "b": {"type": "integer", "description": "the second"}, ` +
		`"c": {"type": "number", "nullable": true}, "d": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "boolean"}}}, ` +
		`"e": {"type": "string", "enum": ["x", "y"]}, "g": {"type": "integer", "nullable": true}, "h": {"type": ["integer", "string"]}, ` +
		`"i": {}, "j": {"type": "object"}}, "required": ["a"]}}}`
	if schema != want || !json.Valid([]byte(schema)) {
		t.Errorf("schema\n%s\nwant\n%s", schema, want)
	}
}

// TestAllFaultsOfAFunctionAreNamed at once, each with its line.
func TestAllFaultsOfAFunctionAreNamed(t *testing.T) {
	src := "@decorated\nasync def f(a,\n  b: Foo,\n  c: dict[int, str], /,\n  *args: int, d: list[str] | int = 1, e: None = None, **kw):\n    return 1\n"
	functions, problem := pyfile.Parse(src)
	if problem != nil {
		t.Fatal(problem)
	}
	_, problems := functions[0].Schema()
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	text := strings.Join(got, "\n")
	for _, want := range []string{
		"line 2: f: is async", "line 2: f: has a decorator", "line 2: f: parameter a stands before a /", "line 5: f: has *args", "line 5: f: has **kw",
		"line 2: f: has no docstring", "line 2: f: parameter a has no type hint", "line 3: f: parameter b has the hint Foo: write str",
		"line 4: f: parameter c has the hint dict[int,str]: the keys", "parameter d has the hint list[str]|int: a choice is between", "parameter e has the hint None",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the problems lack %q:\n%s", want, text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("def f(a: int = {'x': [1]}) -> None:\n    '''doc'''\n")
	f.Add("x = f'{a!r:>{w}}' # c\n@d\nasync def g(*, b): pass")
	f.Add("def f(\\\n'''")
	f.Fuzz(func(t *testing.T, src string) {
		functions, _ := pyfile.Parse(src)
		for _, fn := range functions {
			if schema, problems := fn.Schema(); len(problems) == 0 && !json.Valid([]byte(schema)) {
				t.Errorf("%q: the schema is no JSON: %s", src, schema)
			}
		}
	})
}
