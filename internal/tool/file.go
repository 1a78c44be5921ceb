package tool

import (
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat"
	"temper/internal/tool/builtin"
	"temper/internal/tool/pyfile"
)

// File is a Python file of the user's whose functions are tools. A run stores it, so
// that what the policy sees and calls does not depend on the disk or on this binary.
type File struct {
	pyfile.Source
	// Functions are the tools, in the order of the file.
	Functions []chat.FunctionTool `json:"functions"`
}

// NewFile reads the tools of a file: all functions at its top level whose names do not
// begin with an underscore. The problems are all faults of the file.
func NewFile(path string, data []byte) (File, []pyfile.Problem) {
	source, problem := pyfile.NewSource(path, data)
	if problem != nil {
		return File{}, []pyfile.Problem{*problem}
	}
	out := File{Source: source}
	functions, problems := source.Functions()
	for _, f := range functions {
		if !f.Public() {
			continue
		}
		if reserved(f.Name) {
			problems = append(problems, pyfile.Problem{Line: f.Line, Msg: fmt.Sprintf("%s is the name of a tool that Temper has: choose another", f.Name)})
		}
		schema, faults := f.Schema()
		problems = append(problems, faults...)
		out.Functions = append(out.Functions, chat.FunctionTool{Name: f.Name, Schema: schema})
	}
	if len(problems) == 0 && len(out.Functions) == 0 {
		problems = append(problems, pyfile.Problem{Msg: "has no function: want def name(...) at the top level, with type hints and a docstring"})
	}
	slices.SortStableFunc(problems, func(a, b pyfile.Problem) int { return a.Line - b.Line })
	return out, problems
}

// reserved reports whether a function cannot have the name.
func reserved(name string) bool {
	return slices.Contains(builtin.Names(), name) || name == chat.NoTools || strings.HasPrefix(name, "__")
}

// Functions are the tools of all files, in order.
func Functions(files []File) []chat.FunctionTool {
	var out []chat.FunctionTool
	for _, f := range files {
		out = append(out, f.Functions...)
	}
	return out
}
