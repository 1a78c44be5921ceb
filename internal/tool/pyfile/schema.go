package pyfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Schema is the JSON schema of a function as a policy sees it, in the form of
// Hugging Face's chat templates. The description and those of the parameters are from
// the docstring. The problems say what the function lacks; it has a schema where
// there are none.
func (f Function) Schema() (string, []Problem) {
	about, params := readDoc(f.Doc)
	problems := f.problems()
	if about == "" {
		problems = append(problems, f.problem(f.Line, "has no docstring: say in one what it does, since the policy sees nothing else of it"))
	}
	var properties, required []string
	for _, p := range f.Params {
		schema, err := hintSchema(p.Hint)
		if err != nil {
			problems = append(problems, f.problem(p.Line, "parameter %s %v", p.Name, err))
			continue
		}
		if d := params[p.Name]; d != "" {
			schema = append(schema, `"description": `+quote(d))
		}
		properties = append(properties, quote(p.Name)+": {"+strings.Join(schema, ", ")+"}")
		if !p.Optional {
			required = append(required, quote(p.Name))
		}
	}
	if len(problems) > 0 {
		return "", problems
	}
	return `{"type": "function", "function": {"name": ` + quote(f.Name) + `, "description": ` + quote(about) +
		`, "parameters": {"type": "object", "properties": {` + strings.Join(properties, ", ") +
		`}, "required": [` + strings.Join(required, ", ") + `]}}}`, nil
}

// problems returns the problems in the signature of the function.
func (f Function) problems() []Problem {
	var out []Problem
	if f.Async {
		out = append(out, f.problem(f.Line, "is async: want a plain function"))
	}
	if f.Decorated {
		out = append(out, f.problem(f.Line, "has a decorator: want a plain function, or a name that begins with _"))
	}
	for _, p := range f.Params {
		switch {
		case p.Stars > 0:
			out = append(out, f.problem(p.Line, "has %s%s: want parameters with names of their own", strings.Repeat("*", p.Stars), p.Name))
		case p.PositionOnly:
			out = append(out, f.problem(p.Line, "parameter %s stands before a /: calls are by name", p.Name))
		}
	}
	return out
}

func (f Function) problem(line int, format string, args ...any) Problem {
	return Problem{line, f.Name + ": " + fmt.Sprintf(format, args...)}
}

// hintSchema is the schema of a type hint, as the members of an object.
func hintSchema(hint string) ([]string, error) {
	if hint == "" {
		return nil, fmt.Errorf("has no type hint: write %s", hintsKnown)
	}
	if len(hint) > maxHint {
		return nil, fmt.Errorf("has a type hint of %d bytes, above the limit of %d", len(hint), maxHint)
	}
	parts := alternatives(strings.TrimPrefix(hint, "typing."))
	types := slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return p == "None" })
	if len(types) == 0 {
		return nil, fmt.Errorf("has the hint %s: write %s", hint, hintsKnown)
	}
	var schema []string
	var kinds []string
	for _, t := range types {
		var err error
		if schema, err = plainSchema(t); err != nil {
			return nil, err
		}
		if len(types) > 1 && len(schema) != 1 {
			return nil, fmt.Errorf("has the hint %s: a choice is between str, int, float, bool, list and dict alone", hint)
		}
		kinds = append(kinds, strings.TrimPrefix(strings.Join(schema, ""), `"type": `))
	}
	if len(types) > 1 {
		schema = []string{`"type": [` + strings.Join(kinds, ", ") + `]`}
	}
	if len(types) < len(parts) {
		schema = append(schema, `"nullable": true`)
	}
	return schema, nil
}

// alternatives splits A | B, Optional[A] and Union[A, B].
func alternatives(hint string) []string {
	parts := split(hint, "|")
	head, inside, ok := subscript(hint)
	switch {
	case len(parts) > 1 || !ok:
		return parts
	case head == "Optional":
		return append(split(inside, "|"), "None")
	case head == "Union":
		return split(inside, ",")
	}
	return parts
}

// maxHint bounds a type hint.
const maxHint = 500

const hintsKnown = "str, int, float, bool, list[...], dict[str, ...], Literal[...], Any, or one of them | None"

// plainSchema is the schema of a type without alternatives.
func plainSchema(hint string) ([]string, error) {
	hint = strings.TrimPrefix(hint, "typing.")
	switch hint {
	case "str":
		return []string{`"type": "string"`}, nil
	case "int":
		return []string{`"type": "integer"`}, nil
	case "float":
		return []string{`"type": "number"`}, nil
	case "bool":
		return []string{`"type": "boolean"`}, nil
	case "list", "List":
		return []string{`"type": "array"`}, nil
	case "dict", "Dict":
		return []string{`"type": "object"`}, nil
	case "Any":
		return nil, nil
	}
	head, inside, ok := subscript(hint)
	switch {
	case ok && (head == "list" || head == "List"):
		items, err := hintSchema(inside)
		return []string{`"type": "array"`, `"items": {` + strings.Join(items, ", ") + "}"}, err
	case ok && (head == "dict" || head == "Dict"):
		kv := split(inside, ",")
		if len(kv) != 2 || kv[0] != "str" {
			return nil, fmt.Errorf("has the hint %s: the keys of a JSON object are str", hint)
		}
		values, err := hintSchema(kv[1])
		return []string{`"type": "object"`, `"additionalProperties": {` + strings.Join(values, ", ") + "}"}, err
	case ok && head == "Literal":
		return literalSchema(hint, split(inside, ","))
	}
	return nil, fmt.Errorf("has the hint %s: write %s", hint, hintsKnown)
}

func literalSchema(hint string, values []string) ([]string, error) {
	var quoted []string
	for _, v := range values {
		if openingAt(v) == 0 {
			return nil, fmt.Errorf("has the hint %s: want texts in it", hint)
		}
		s, ok := unquote(v)
		if !ok {
			return nil, fmt.Errorf("has the hint %s: want texts in it", hint)
		}
		quoted = append(quoted, quote(s))
	}
	return []string{`"type": "string"`, `"enum": [` + strings.Join(quoted, ", ") + "]"}, nil
}

// subscript splits list[str] into list and str.
func subscript(hint string) (head, inside string, ok bool) {
	head, inside, ok = strings.Cut(hint, "[")
	inside, closed := strings.CutSuffix(inside, "]")
	return head, inside, ok && closed && inside != ""
}

// split cuts a hint at a sign that stands outside of brackets and strings.
func split(hint, at string) []string {
	tokens, _ := lex(hint)
	parts := []string{""}
	depth := 0
	for _, t := range tokens {
		if t.kind == sign && depth == 0 && t.text == at {
			parts = append(parts, "")
			continue
		}
		switch t.text {
		case "[", "(":
			depth++
		case "]", ")":
			depth--
		}
		parts[len(parts)-1] += t.text
	}
	return parts
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
