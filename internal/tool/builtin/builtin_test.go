package builtin_test

import (
	"encoding/json"
	"slices"
	"testing"

	"temper/internal/tool/builtin"
)

// TestTools: every tool has a name of its own, and a schema of that name.
func TestTools(t *testing.T) {
	names := builtin.Names()
	slices.Sort(names)
	if len(slices.Compact(names)) != len(builtin.Tools()) {
		t.Errorf("two tools have one name: %v", names)
	}
	for _, tool := range builtin.Tools() {
		var schema struct {
			Type     string `json:"type"`
			Function struct {
				Name, Description string
				Parameters        struct{ Type string }
			} `json:"function"`
		}
		if err := json.Unmarshal([]byte(tool.Schema), &schema); err != nil {
			t.Errorf("%s: %v", tool.Name, err)
		}
		f := schema.Function
		if schema.Type != "function" || f.Name != tool.Name || f.Description == "" || f.Parameters.Type != "object" {
			t.Errorf("%s has the schema %+v", tool.Name, schema)
		}
		if found, ok := builtin.ByName(tool.Name); !ok || found.IsProgram() != builtin.IsProgram(tool.Name) {
			t.Errorf("%s is not found by its name", tool.Name)
		}
	}
	if _, ok := builtin.ByName("bash"); ok {
		t.Error("bash is a tool")
	}
}

func TestProgram(t *testing.T) {
	p := builtin.Program{Code: "print('<a>')\n", Input: "1 \"2\""}
	for _, arguments := range []string{p.Arguments(), p.Arguments("input"), `{"x": 1, "input": "1 \"2\"", "code": "print('<a>')\n"}`} {
		if got, err := builtin.ProgramOf(arguments); err != nil || got != p {
			t.Errorf("%s is read as %+v, %v", arguments, got, err)
		}
	}
	for want, got := range map[string]string{
		`{"code": "1"}`: builtin.Program{Code: "1"}.Arguments("code"), `{"code": "1", "input": ""}`: builtin.Program{Code: "1"}.Arguments("code", "input"),
	} {
		if got != want {
			t.Errorf("arguments %s, want %s", got, want)
		}
	}
	for arguments, want := range map[string]string{
		"null": "arguments must be an object", "[]": "arguments must be an object", "{}": "code must be a string", `{"Code": "1"}`: "code must be a string",
		`{"code": null}`: "code must be a string", `{"code": "1", "input": 2}`: "input must be a string",
	} {
		if _, err := builtin.ProgramOf(arguments); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", arguments, err, want)
		}
	}
}
