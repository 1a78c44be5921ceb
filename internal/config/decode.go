package config

import (
	"reflect"
	"slices"

	"github.com/goccy/go-yaml"
)

// Decode reads YAML (or JSON) strictly into the struct that v points to, over what it
// holds. check then looks at the whole and returns further problems by their key paths; nil
// for none. The error is Problems with every mistake at once, in the order of the file, whose
// name stands in messages. Fields are known by their tag yaml.
func Decode(name string, data []byte, v any, check func() Problems) error {
	b := &binder{file: name, at: map[string]position{}}
	if root, err := parseYAML(data); err != nil {
		err.File = name
		return Problems{*err}
	} else if root != nil {
		b.bind(root, reflect.ValueOf(v).Elem(), "")
	}
	var found Problems
	if check != nil {
		found = check()
	}
	for _, p := range found {
		p.File = name
		if pos, ok := b.at[p.Path]; ok {
			p.Line, p.Col = pos.line, pos.col
		}
		if !b.failed(p.Path) {
			b.problems = append(b.problems, p)
		}
	}
	slices.SortStableFunc(b.problems, func(a, b Problem) int { return a.Line - b.Line })
	return b.problems.Err()
}

// Encode writes v as YAML that Decode reads: what it gives depends on v alone.
func Encode(v any) ([]byte, error) { return yaml.Marshal(v) }
