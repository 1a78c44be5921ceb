package reward

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"temper/internal/rl"
	"temper/internal/tool/pyfile"
)

// File is a Python file of the user's with a function that gives rewards in place of
// the environment. A run stores it.
type File struct {
	pyfile.Source
	// Function is its name, and Line where it begins.
	Function string `json:"function"`
	Line     int    `json:"line"`
	// Params are the parameters that it takes, of those that there are.
	Params []string `json:"params"`
}

// functionName is the function of a file that has several.
const functionName = "reward"

// params are the names of the parameters that a reward function may have.
var params = []string{"problem", "trajectory", "key", "answer", "stop_reason"} //nolint:gochecknoglobals // a constant list

//go:embed call.py
var callEnd string

// NewFile reads a reward function. The problems are all faults of the file.
func NewFile(path string, data []byte) (File, []pyfile.Problem) {
	source, problem := pyfile.NewSource(path, data)
	if problem != nil {
		return File{}, []pyfile.Problem{*problem}
	}
	functions, problems := source.Functions()
	if len(functions) == 0 && len(problems) > 0 {
		return File{Source: source}, problems
	}
	f, ok := choose(functions)
	if !ok {
		return File{Source: source}, append(problems, pyfile.Problem{Msg: fmt.Sprintf(
			"has no function %s: want def %s(problem, trajectory, key) at the top level", functionName, functionName)})
	}
	out := File{Source: source, Function: f.Name, Line: f.Line}
	fault := func(line int, format string, args ...any) {
		problems = append(problems, pyfile.Problem{Line: line, Msg: f.Name + ": " + fmt.Sprintf(format, args...)})
	}
	if f.Async {
		fault(f.Line, "is async: want a plain function")
	}
	for _, p := range f.Params {
		switch {
		case p.Stars > 0 || p.PositionOnly:
			fault(p.Line, "parameter %s cannot be given by name", p.Name)
		case slices.Contains(params, p.Name):
			out.Params = append(out.Params, p.Name)
		case !p.Optional:
			fault(p.Line, "parameter %s is unknown: want some of %s", p.Name, strings.Join(params, ", "))
		}
	}
	return out, problems
}

// choose finds the reward function: the one of that name, or the only public one.
func choose(functions []pyfile.Function) (pyfile.Function, bool) {
	var public []pyfile.Function
	for _, f := range functions {
		if f.Name == functionName {
			return f, true
		}
		if f.Public() {
			public = append(public, f)
		}
	}
	if len(public) != 1 {
		return pyfile.Function{}, false
	}
	return public[0], true
}

// Program is the text of a verifier job; see Silence for its fixture.
func (f File) Program() string { return f.Source.Program(callEnd) }

// Input is the standard input of the job of a trajectory. All of it is data.
func (f File) Input(p rl.Problem, t *rl.Trajectory) (string, error) {
	all := map[string]any{
		"problem":    map[string]any{"id": p.ID, "env": p.Env, "level": p.Level, "prompt": p.Prompt},
		"trajectory": t.Text, "key": p.Answer, "answer": t.Answer, "stop_reason": t.StopReason,
	}
	given := map[string]any{}
	for _, name := range f.Params {
		given[name] = all[name]
	}
	data, err := json.Marshal(map[string]any{"name": f.Function, "arguments": given})
	return string(data), err
}
