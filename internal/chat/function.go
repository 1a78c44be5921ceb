package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"temper/internal/chat/jinja"
)

// FunctionTool is a tool beside the built-in ones: a name and the JSON schema that the
// prompt shows. Its calls must fit the schema.
type FunctionTool struct {
	Name   string `json:"name"`
	Schema string `json:"schema"`
}

// functionSchemas decodes the schemas of functions.
func functionSchemas(functions []FunctionTool) (*jinja.List, error) {
	out := &jinja.List{}
	for _, f := range functions {
		v, err := jinja.Decode([]byte(f.Schema))
		if err != nil {
			return nil, fmt.Errorf("schema of tool %s: %w", f.Name, err)
		}
		out.Items = append(out.Items, v)
	}
	return out, nil
}

// addFunctions adds tools whose calls must fit their schemas.
func (ts *Toolset) addFunctions(schemas *jinja.List) error {
	more, err := NewToolset(schemas)
	if err != nil {
		return err
	}
	for _, spec := range more.tools {
		if ts.findTool(spec.name) != nil {
			return fmt.Errorf("a second tool %q", spec.name)
		}
		spec.strict = true
		ts.tools = append(ts.tools, spec)
	}
	return nil
}

// checkStrictly says why arguments do not fit the schema; empty when they do.
func (spec *toolSpec) checkStrictly(args *jinja.Dict) string {
	for _, e := range args.Entries() {
		key, _ := e.Key.(string)
		schema, _ := spec.properties.Get(key)
		property, ok := schema.(*jinja.Dict)
		if !ok {
			var known []string
			for _, p := range spec.properties.Entries() {
				known = append(known, fmt.Sprintf("'%v'", p.Key))
			}
			return fmt.Sprintf("there is no argument %s, there are %s", quote(key), strings.Join(append(known, "no others"), ", "))
		}
		if want := mismatch(e.Value, property); want != "" {
			return "argument '" + key + "' must be " + want
		}
	}
	return ""
}

// mismatch says what a value should be; empty when it is.
func mismatch(v jinja.Value, schema *jinja.Dict) string {
	if nullable, _ := schema.Get("nullable"); v == nil && nullable == true {
		return ""
	}
	kinds, _ := schema.Get("type")
	list, ok := kinds.(*jinja.List)
	if !ok {
		list = &jinja.List{Items: []jinja.Value{kinds}}
	}
	var words []string
	for _, kind := range list.Items {
		name, limited := kind.(string)
		if !limited || hasType(v, name) {
			return mismatchInside(v, schema)
		}
		words = append(words, article(name))
	}
	return strings.Join(words, " or ")
}

// article is the name of a JSON type in a sentence.
func article(kind string) string {
	switch kind {
	case "integer", "array", "object":
		return "an " + kind
	default:
		return "a " + kind
	}
}

// mismatchInside checks the choices of a text, and what lists and objects hold.
func mismatchInside(v jinja.Value, schema *jinja.Dict) string {
	if choices, ok := schema.Get("enum"); ok {
		if list, ok := choices.(*jinja.List); ok && !slices.Contains(list.Items, v) {
			var words []string
			for _, c := range list.Items {
				words = append(words, fmt.Sprintf("'%v'", c))
			}
			return "one of " + strings.Join(words, ", ")
		}
	}
	var inner []jinja.Value
	var rule jinja.Value
	switch v := v.(type) {
	case *jinja.List:
		inner = v.Items
		rule, _ = schema.Get("items")
	case *jinja.Dict:
		for _, e := range v.Entries() {
			inner = append(inner, e.Value)
		}
		rule, _ = schema.Get("additionalProperties")
	}
	items, ok := rule.(*jinja.Dict)
	if !ok {
		return ""
	}
	for _, x := range inner {
		if want := mismatch(x, items); want != "" {
			return "of items that are each " + want
		}
	}
	return ""
}

func hasType(v jinja.Value, kind string) bool {
	switch v.(type) {
	case string:
		return kind == "string"
	case bool:
		return kind == "boolean"
	case int64, *big.Int:
		return kind == "integer" || kind == "number"
	case float64:
		return kind == "number"
	case *jinja.List:
		return kind == "array"
	case *jinja.Dict:
		return kind == "object"
	default:
		return false
	}
}

// rawArguments returns the arguments of a call as JSON without space. The body is one
// that invocation could read.
func rawArguments(body string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &members) != nil {
		return "{}"
	}
	arguments := []byte(members["arguments"])
	var text string
	if json.Unmarshal(arguments, &text) == nil {
		arguments = []byte(text)
	}
	var out bytes.Buffer
	if json.Compact(&out, arguments) != nil {
		return "{}"
	}
	return out.String()
}

// sampleArguments are arguments that fit the schema; words stands in each text.
func (spec *toolSpec) sampleArguments(words string) string {
	var members []string
	for _, e := range spec.properties.Entries() {
		name := fmt.Sprint(e.Key)
		property, _ := e.Value.(*jinja.Dict)
		if slices.Contains(spec.required, name) {
			members = append(members, quote(name)+": "+sampleValue(property, words))
		}
	}
	return "{" + strings.Join(members, ", ") + "}"
}

func sampleValue(schema *jinja.Dict, words string) string {
	if choices, ok := schema.Get("enum"); ok {
		if list, ok := choices.(*jinja.List); ok && len(list.Items) > 0 {
			return quote(fmt.Sprint(list.Items[0]))
		}
	}
	kind, _ := schema.Get("type")
	if list, ok := kind.(*jinja.List); ok && len(list.Items) > 0 {
		kind = list.Items[0]
	}
	switch kind {
	case "integer", "number":
		return "1"
	case "boolean":
		return "true"
	case "array":
		return "[]"
	case "object":
		return "{}"
	default:
		return quote(words)
	}
}
