package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// binder walks a YAML tree beside a struct type, sets what fits and collects
// everything that does not, so that one reading reports all mistakes.
type binder struct {
	file     string
	problems Problems
	// at remembers where each key path was stated, for later range checks.
	at map[string]position
}

type position struct{ line, col int }

func (b *binder) fail(n ast.Node, path, format string, args ...any) {
	pos := nodePosition(n)
	b.problems = append(b.problems, Problem{
		File: b.file, Line: pos.line, Col: pos.col, Path: path, Msg: fmt.Sprintf(format, args...),
	})
}

func nodePosition(n ast.Node) position {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return position{}
	}
	p := n.GetToken().Position
	return position{p.Line, p.Column}
}

// bind sets v from n. The value keeps its default where the tree says nothing.
func (b *binder) bind(n ast.Node, v reflect.Value, path string) {
	b.at[path] = nodePosition(n)
	if own, ok := v.Addr().Interface().(interface {
		bindNode(b *binder, n ast.Node, path string)
	}); ok {
		own.bindNode(b, n, path)
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		b.bindText(n, u, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		b.bindStruct(n, v, path)
	case reflect.Slice:
		b.bindSlice(n, v, path)
	case reflect.Map:
		b.bindMap(n, v, path)
	default:
		b.bindScalar(n, v, path)
	}
}

func (b *binder) bindStruct(n ast.Node, v reflect.Value, path string) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	case *ast.NullNode:
		return
	default:
		b.fail(n, path, "want a mapping, have %s", describe(n))
		return
	}
	seen := map[string]bool{}
	for _, e := range mappingEntries(n) {
		key := e.Key.GetToken().Value
		field, ok := fieldByKey(v, key)
		switch {
		case !ok:
			b.fail(e.Key, join(path, key), "unknown key%s", known(key, v.Type()))
		case seen[key]:
			b.fail(e.Key, join(path, key), "stated twice")
		default:
			b.bind(e.Value, field, join(path, key))
			b.at[join(path, key)] = nodePosition(e.Key)
		}
		seen[key] = true
	}
}

// mappingEntries returns the entries of a mapping. The parser represents a mapping of one
// entry by another type of node.
func mappingEntries(n ast.Node) []*ast.MappingValueNode {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}
	default:
		return nil
	}
}

func (b *binder) bindSlice(n ast.Node, v reflect.Value, path string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		b.fail(n, path, "want a list, have %s", describe(n))
		return
	}
	out := reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values))
	for i, item := range seq.Values {
		elem := out.Index(i)
		if d, ok := elem.Addr().Interface().(interface{ setDefaults() }); ok {
			d.setDefaults()
		}
		b.bind(item, elem, fmt.Sprintf("%s[%d]", path, i))
	}
	v.Set(out)
}

// bindMap reads keys with scalar values into a map of texts.
func (b *binder) bindMap(n ast.Node, v reflect.Value, path string) {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	default:
		b.fail(n, path, "want a mapping, have %s", describe(n))
		return
	}
	out := reflect.MakeMap(v.Type())
	for _, e := range mappingEntries(n) {
		if _, scalar := e.Value.(ast.ScalarNode); !scalar {
			b.fail(e.Value, join(path, e.Key.GetToken().Value), "want a single value, have %s", describe(e.Value))
			continue
		}
		out.SetMapIndex(reflect.ValueOf(e.Key.GetToken().Value), reflect.ValueOf(e.Value.GetToken().Value))
	}
	v.Set(out)
}

func (b *binder) bindText(n ast.Node, u encoding.TextUnmarshaler, path string) {
	if err := u.UnmarshalText([]byte(n.GetToken().Value)); err != nil {
		b.fail(n, path, "%v", err)
	}
}

func (b *binder) bindScalar(n ast.Node, v reflect.Value, path string) {
	if v.CanFloat() && isPlain(n) {
		if f, err := strconv.ParseFloat(n.GetToken().Value, 64); err == nil { // YAML 1.2 floats such as 3e-4
			v.SetFloat(f)
			return
		}
	}
	if _, quoted := n.(*ast.StringNode); quoted && v.Kind() != reflect.String && v.Type() != durationType {
		b.fail(n, path, "want %s, have %s", wantName(v), describe(n))
		return
	}
	if _, isBool := n.(*ast.BoolNode); isBool != (v.Kind() == reflect.Bool) {
		b.fail(n, path, "want %s, have %s", wantName(v), describe(n))
		return
	}
	if _, isFloat := n.(*ast.FloatNode); isFloat && (v.CanInt() || v.CanUint()) {
		b.fail(n, path, "want %s, have %s", wantName(v), describe(n))
		return
	}
	if err := yaml.NodeToValue(n, v.Addr().Interface(), yaml.Strict()); err != nil {
		b.fail(n, path, "want %s, have %s", wantName(v), describe(n))
	}
}

// isPlain reports whether n is a scalar without quotes.
func isPlain(n ast.Node) bool {
	t := n.GetToken().Type
	return t != token.SingleQuoteType && t != token.DoubleQuoteType
}

func wantName(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return `a duration such as "4s"`
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.CanUint():
		return "a whole number of at least 0"
	case v.CanInt():
		return "a whole number"
	case v.CanFloat():
		return "a number"
	default:
		return "a text"
	}
}

func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	default:
		return strconv.Quote(n.GetToken().Value)
	}
}
