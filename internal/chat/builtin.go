package chat

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat/jinja"
)

// Names of the built-in formats, for checkpoints with the tokens of Qwen.
const (
	// FormatRStar2 is the prompt of rStar2-Agent, with the answer instruction
	// before the first question alone: conversations only grow.
	FormatRStar2 = "rstar2"
	// FormatRStar2Released is the template of the released code, for parity.
	FormatRStar2Released = "rstar2-released"
)

// Names of the tools of rStar2-Agent: that of the paper, and those of the released code.
const (
	ToolExecutePython    = "execute_python_code_with_standard_io"
	ToolPythonStandardIO = "python_code_with_standard_io"
	ToolJupyter          = "jupyter_code"
)

// NoTools as the only name of a list of tools means that there are no tools.
const NoTools = "none"

// RolloutTools lists the tools that rollouts can run. All of them run Python
// programs; they differ in name and signature.
func RolloutTools() []string { return []string{ToolName, ToolExecutePython, ToolPythonStandardIO} }

// DefaultTools returns the tools of a format for a run that names none.
func DefaultTools(format string) []string {
	switch format {
	case FormatRStar2:
		return []string{ToolExecutePython}
	case FormatRStar2Released:
		return []string{ToolPythonStandardIO}
	default:
		return []string{ToolName}
	}
}

// rolloutToolset returns the named tools, nil for NoTools.
func rolloutToolset(names []string) (*Toolset, error) {
	if len(names) == 1 && names[0] == NoTools {
		return nil, nil //nolint:nilnil // having no tools is no error
	}
	for _, name := range names {
		if !slices.Contains(RolloutTools(), name) {
			return nil, fmt.Errorf("no tool %q, want %s, or %s alone", name, strings.Join(RolloutTools(), ", "), NoTools)
		}
	}
	schemas, err := BuiltinTools(names...)
	if err != nil {
		return nil, err
	}
	return NewToolset(schemas)
}

//go:embed templates/rstar2.jinja
var rstar2Source string

//go:embed templates/rstar2-released.jinja
var rstar2ReleasedSource string

// Builtin returns a built-in format by name.
func Builtin(name string) (*Template, error) {
	switch name {
	case FormatRStar2:
		return NewTemplate(name, rstar2Source, nil)
	case FormatRStar2Released:
		return NewTemplate(name, rstar2ReleasedSource, nil)
	default:
		return nil, fmt.Errorf("no built-in chat format %q, only %s", name, strings.Join(BuiltinNames(), ", "))
	}
}

// BuiltinNames lists the built-in formats.
func BuiltinNames() []string { return []string{FormatRStar2, FormatRStar2Released} }

// BuiltinTools returns the JSON schemas of the named tools, in the order given.
func BuiltinTools(names ...string) (*jinja.List, error) {
	out := &jinja.List{}
	for _, name := range names {
		schema, ok := toolSchema(name)
		if !ok {
			return nil, fmt.Errorf("no built-in tool %q, only %s and %s", name, strings.Join(RolloutTools(), ", "), ToolJupyter)
		}
		v, err := jinja.Decode([]byte(schema))
		if err != nil {
			return nil, fmt.Errorf("schema of tool %s: %w", name, err)
		}
		out.Items = append(out.Items, v)
	}
	return out, nil
}

// sessionNote ends the description of a tool whose calls share one process.
const sessionNote = " Names that earlier calls of the conversation defined are still there."

// describeSessions adds the note to the schemas of the named tools.
func describeSessions(schemas *jinja.List, names []string) error {
	for _, v := range schemas.Items {
		schema, _ := v.(*jinja.Dict)
		if schema == nil {
			return errors.New("schema of a tool is no object")
		}
		inner, _ := schema.Get("function")
		function, _ := inner.(*jinja.Dict)
		if function == nil {
			return errors.New("schema of a tool has no function")
		}
		name, _ := function.Get("name")
		if text, _ := name.(string); slices.Contains(names, text) {
			description, _ := function.Get("description")
			text, _ := description.(string)
			function.Set("description", text+sessionNote)
		}
	}
	return nil
}

// toolSchema returns the JSON schema that the prompt shows for a tool. The texts for
// the tools of rStar2-Agent are those that the policy of the paper was trained on
// (arXiv 2508.20722, figure 3), without the description of the result.
func toolSchema(name string) (string, bool) {
	switch name {
	case ToolName:
		return `{"type": "function", "function": {"name": "python", "description": "Run a Python program and return what it prints, or the error that ended it.",
"parameters": {"type": "object", "properties": {
"code": {"type": "string", "description": "the program"},
"input": {"type": "string", "description": "its standard input"}},
"required": ["code"]}}}`, true
	case ToolExecutePython, ToolPythonStandardIO:
		return `{"type": "function", "function": {"name": "` + name + `",
"description": "Execute Python code with standard input and capture standard output. This function takes a Python code string and an input string, provides the input string through standard input (stdin) to the code, and captures and returns any output produced through standard output (stdout). If the executed code raises an exception, the error message will be captured and returned instead.",
"parameters": {"type": "object", "properties": {
"code": {"type": "string", "description": "A string containing Python code to be executed. The code can read from standard input using the input() function."},
"input": {"type": "string", "description": "A string that will be provided as standard input to the code when it calls input()."}},
"required": ["code", "input"]}}}`, true
	case ToolJupyter:
		return `{"type": "function", "function": {"name": "jupyter_code",
"description": "Execute Python code as the next cell of a notebook: names of earlier cells of the conversation are there. Returns what the cell prints and the value of its last expression, or the error that ended it.",
"parameters": {"type": "object", "properties": {
"code": {"type": "string", "description": "A string containing the Python code of the cell."}},
"required": ["code"]}}}`, true
	default:
		return "", false
	}
}
