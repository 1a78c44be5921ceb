package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Names of the Python tools: the plain one, that of the paper of rStar2-Agent, and that
// of its released code.
const (
	Python           = "python"
	ExecutePython    = "execute_python_code_with_standard_io"
	PythonStandardIO = "python_code_with_standard_io"
)

// The arguments of the Python tools.
const (
	argCode  = "code"  // required
	argInput = "input" // the program's standard input
)

// Program is the program of a call of a Python tool.
type Program struct{ Code, Input string }

// ProgramOf reads the arguments of a call. Names are compared exactly, and unknown
// arguments are ignored. The error says in a few words what is wrong.
func ProgramOf(arguments string) (Program, error) {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &members) != nil || members == nil {
		return Program{}, errors.New("arguments must be an object")
	}
	var p Program
	for _, arg := range []struct {
		name     string
		value    *string
		required bool
	}{{argCode, &p.Code, true}, {argInput, &p.Input, false}} {
		text, given := members[arg.name]
		if !given && !arg.required {
			continue
		}
		var s *string
		if json.Unmarshal(text, &s) != nil || s == nil {
			return Program{}, fmt.Errorf("%s must be a string", arg.name)
		}
		*arg.value = *s
	}
	return p, nil
}

// Arguments returns the arguments of a call that runs the program. They leave out an
// empty input that is not required.
func (p Program) Arguments(required ...string) string {
	text := `{"` + argCode + `": ` + quote(p.Code)
	if p.Input != "" || slices.Contains(required, argInput) {
		text += `, "` + argInput + `": ` + quote(p.Input)
	}
	return text + "}"
}

// quote returns s as a JSON string with the fewest escapes.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) != nil { // a string always encodes
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

const pythonSchema = `{"type": "function", "function": {"name": "python", "description": "Run a Python program and return what it prints, or the error that ended it.",
"parameters": {"type": "object", "properties": {
"code": {"type": "string", "description": "the program"},
"input": {"type": "string", "description": "its standard input"}},
"required": ["code"]}}}`

// standardIOSchema is the schema of the tools of rStar2-Agent, with the text that the
// policy of the paper was trained on (arXiv 2508.20722, figure 3), without the
// description of the result.
func standardIOSchema(name string) string {
	return `{"type": "function", "function": {"name": "` + name + `",
"description": "Execute Python code with standard input and capture standard output. This function takes a Python code string and an input string, provides the input string through standard input (stdin) to the code, and captures and returns any output produced through standard output (stdout). If the executed code raises an exception, the error message will be captured and returned instead.",
"parameters": {"type": "object", "properties": {
"code": {"type": "string", "description": "A string containing Python code to be executed. The code can read from standard input using the input() function."},
"input": {"type": "string", "description": "A string that will be provided as standard input to the code when it calls input()."}},
"required": ["code", "input"]}}}`
}
