package chat

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat/jinja"
	"temper/internal/tool/builtin"
)

// Names of the built-in formats, for checkpoints with the tokens of Qwen.
const (
	// FormatRStar2 is the prompt of rStar2-Agent, with the answer instruction
	// before the first question alone: conversations only grow.
	FormatRStar2 = "rstar2"
	// FormatRStar2Released is the template of the released code, for parity.
	FormatRStar2Released = "rstar2-released"
)

// NoTools as the only name of a list of tools means that there are no tools.
const NoTools = "none"

// DefaultTools returns the tools of a format for a run that names none.
func DefaultTools(format string) []string {
	switch format {
	case FormatRStar2:
		return []string{builtin.ExecutePython}
	case FormatRStar2Released:
		return []string{builtin.PythonStandardIO}
	default:
		return []string{builtin.Python}
	}
}

// builtinToolset returns the named tools with their schemas, nil for NoTools.
func builtinToolset(names []string) (*jinja.List, *Toolset, error) {
	if len(names) == 1 && names[0] == NoTools {
		return nil, nil, nil
	}
	schemas := &jinja.List{}
	for _, name := range names {
		tool, ok := builtin.ByName(name)
		if !ok {
			return nil, nil, fmt.Errorf("no tool %q, want %s, or %s alone", name, strings.Join(builtin.Names(), ", "), NoTools)
		}
		schema, err := jinja.Decode([]byte(tool.Schema))
		if err != nil {
			return nil, nil, fmt.Errorf("schema of tool %s: %w", name, err)
		}
		schemas.Items = append(schemas.Items, schema)
	}
	tools, err := NewToolset(schemas)
	if err != nil {
		return nil, nil, err
	}
	for i := range tools.tools {
		tools.tools[i].strict = !builtin.IsProgram(tools.tools[i].name)
	}
	return schemas, tools, nil
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
