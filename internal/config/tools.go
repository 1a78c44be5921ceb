package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Tools are the tools of a policy, in the order of the prompt. A file states them
// as a list of names, [python], or as a mapping from names to options,
// {python: {session: true}}. A file of functions is {path: my_tool.py} in the list, and
// {NAME: {path: my_tool.py}} in the mapping. The frozen form is the list unless an
// option is set.
type Tools []Tool

// Tool is one tool with its options.
type Tool struct {
	Name    string      `yaml:"name" json:"name"`
	Options ToolOptions `yaml:"options" json:"options"`
}

// ToolOptions is how the calls of a tool run. NAME stands for the name of a tool.
type ToolOptions struct {
	// Session runs the calls of a trajectory in one Python process that keeps variables
	// from call to call, as a notebook does. Without it each call is a program of its
	// own. The prompt says which of the two it is.
	Session bool `yaml:"session,omitempty" json:"session,omitempty"`
	// Path is a Python file whose public functions are tools; NAME is then any word. The
	// functions have type hints and docstrings, from which their schemas are made. In a
	// list the element is {path: my_tool.py}. A relative path counts from the folder of
	// the configuration file. The run keeps the text of the file.
	Path string `yaml:"path,omitempty" json:"path,omitempty" path:"yes" empty:"a tool of Temper"`
}

// Names returns the names of the tools in order, without files; nil for none.
func (ts Tools) Names() []string {
	var names []string
	for _, t := range ts {
		if t.Options.Path == "" {
			names = append(names, t.Name)
		}
	}
	return names
}

// Files returns the tools that are files, in order.
func (ts Tools) Files() []Tool {
	var out []Tool
	for _, t := range ts {
		if t.Options.Path != "" {
			out = append(out, t)
		}
	}
	return out
}

// WithSession returns the names of the tools whose calls share a session.
func (ts Tools) WithSession() []string {
	var names []string
	for _, t := range ts {
		if t.Options.Session {
			names = append(names, t.Name)
		}
	}
	return names
}

// MarshalYAML implements yaml.InterfaceMarshaler.
func (ts Tools) MarshalYAML() (any, error) {
	if !slices.ContainsFunc(ts, func(t Tool) bool { return t.Options != ToolOptions{} }) {
		return ts.Names(), nil
	}
	var out yaml.MapSlice
	for _, t := range ts {
		out = append(out, yaml.MapItem{Key: t.Name, Value: t.Options})
	}
	return out, nil
}

// bindNode reads either form.
func (ts *Tools) bindNode(b *binder, n ast.Node, path string) {
	var out Tools
	switch form := n.(type) {
	case *ast.SequenceNode:
		for i, item := range form.Values {
			var t Tool
			at := fmt.Sprintf("%s[%d]", path, i)
			switch item.(type) {
			case *ast.MappingNode, *ast.MappingValueNode:
				if b.bind(item, reflect.ValueOf(&t.Options).Elem(), at); t.Options.Path == "" && !b.failed(at) {
					b.fail(item, at, "want a name, or {path: FILE.py}")
				}
				t.Name = strings.TrimSuffix(filepath.Base(t.Options.Path), pythonEnding)
			default:
				b.bind(item, reflect.ValueOf(&t.Name).Elem(), at)
			}
			out = append(out, t)
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		for i, e := range mappingEntries(n) {
			t := Tool{Name: e.Key.GetToken().Value}
			b.bind(e.Value, reflect.ValueOf(&t.Options).Elem(), join(path, t.Name))
			b.at[fmt.Sprintf("%s[%d]", path, i)] = nodePosition(e.Key)
			out = append(out, t)
		}
	default:
		b.fail(n, path, "want a list of names, or a mapping from names to options, have %s", describe(n))
		return
	}
	*ts = out
}

// byKey returns the options of the tool of that name, which it adds where there is none.
func (ts *Tools) byKey(name string) reflect.Value {
	*ts = slices.Clone(*ts) // another copy of the configuration may share the list
	at := slices.IndexFunc(*ts, func(t Tool) bool { return t.Name == name })
	if at < 0 {
		at = len(*ts)
		*ts = append(*ts, Tool{Name: name})
	}
	return reflect.ValueOf(&(*ts)[at].Options).Elem()
}
