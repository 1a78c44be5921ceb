// Package builtin owns the tools that come with Temper: their names, the schemas that a
// prompt shows, and the code of those that run in Go. Programs of the others run in the
// sandbox; package tool sends them there.
//
// Invariant: what a tool returns is a function of its arguments, and hostile arguments
// cost bounded time and memory.
package builtin

import (
	"encoding/json"
	"slices"
)

// Tool is a tool that a configuration can name.
type Tool struct {
	Name string
	// Schema is the JSON schema of the tool in the form of OpenAI's API.
	Schema string
	// Call answers a call whose arguments fit the schema. An error is an answer too: the
	// policy sees its text. Call is nil for a tool that runs a program in the sandbox.
	Call func(arguments json.RawMessage) (string, error)
}

// IsProgram reports whether the tool runs a program in the sandbox.
func (t Tool) IsProgram() bool { return t.Call == nil }

// Tools returns all tools. A new one is a row here and a file beside this one.
func Tools() []Tool {
	return []Tool{
		{Name: Python, Schema: pythonSchema},
		{Name: ExecutePython, Schema: standardIOSchema(ExecutePython)},
		{Name: PythonStandardIO, Schema: standardIOSchema(PythonStandardIO)},
		{Name: Calculator, Schema: calculatorSchema, Call: calculate},
	}
}

// Names returns the names of the tools.
func Names() []string { return namesOf(Tools()) }

// Programs returns the names of the tools that run a program in the sandbox.
func Programs() []string {
	return namesOf(slices.DeleteFunc(Tools(), func(t Tool) bool { return !t.IsProgram() }))
}

// IsProgram reports whether a tool of that name runs a program in the sandbox.
func IsProgram(name string) bool { return slices.Contains(Programs(), name) }

// ByName returns the tool of that name.
func ByName(name string) (Tool, bool) {
	all := Tools()
	i := slices.IndexFunc(all, func(t Tool) bool { return t.Name == name })
	if i < 0 {
		return Tool{}, false
	}
	return all[i], true
}

func namesOf(tools []Tool) []string {
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	return names
}
