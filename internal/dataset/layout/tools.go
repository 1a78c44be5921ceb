package layout

import (
	"encoding/json"
	"fmt"
	"strings"

	"temper/internal/chat/jinja"
)

// toolsOf writes schemas in the form of OpenAI's API: {"type": "function", "function":
// {"name", "description", "parameters"}} with JSON Schema's names of types. A second tool
// of the same name is dropped.
func toolsOf(list *jinja.List) ([]json.RawMessage, *Reject) {
	out := []json.RawMessage{}
	names := map[string]bool{}
	for i, v := range list.Items {
		if text, ok := v.(string); ok {
			if decoded, err := jinja.Decode([]byte(text)); err == nil {
				v = decoded
			}
		}
		schema, ok := v.(*jinja.Dict)
		if !ok {
			return nil, reject(BadTools, "tool %d is no object", i)
		}
		function := schema
		if f, ok := schema.Get("function"); ok {
			if function, ok = f.(*jinja.Dict); !ok {
				return nil, reject(BadTools, "tool %d: function is no object", i)
			}
		}
		name, _ := function.Get("name")
		text, _ := name.(string)
		if text == "" {
			return nil, reject(BadTools, "tool %d has no name", i)
		}
		if names[text] {
			continue
		}
		names[text] = true
		wrapped := jinja.NewDict()
		wrapped.Set("type", "function")
		wrapped.Set("function", functionOf(text, function))
		encoded, err := jinja.Encode(wrapped)
		if err != nil {
			return nil, reject(BadTools, "tool %d: %s", i, oneLine(err))
		}
		out = append(out, json.RawMessage(encoded))
	}
	return out, nil
}

// functionOf keeps name, description and parameters of a function, in this order.
func functionOf(name string, f *jinja.Dict) *jinja.Dict {
	out := jinja.NewDict()
	out.Set("name", name)
	description, _ := f.Get("description")
	if text, ok := description.(string); ok {
		out.Set("description", text)
	}
	parameters, ok := f.Get("parameters")
	if !ok {
		parameters, _ = f.Get("input_schema")
	}
	p, ok := parameters.(*jinja.Dict)
	if !ok {
		p = jinja.NewDict()
	}
	out.Set("parameters", parametersOf(p))
	return out
}

// parametersOf returns a JSON Schema of an object. Sets such as xLAM list the parameters
// without one, and mark those that may be missing in the text of their type.
func parametersOf(p *jinja.Dict) *jinja.Dict {
	kind, _ := p.Get("type")
	_, isObject := p.Get("properties")
	if _, isText := kind.(string); isText && isObject || isText && (kind == "object" || kind == "dict") {
		schema, _ := schemaOf(p).(*jinja.Dict)
		if _, ok := schema.Get("properties"); !ok {
			schema.Set("properties", jinja.NewDict())
		}
		return schema
	}
	properties, required := jinja.NewDict(), &jinja.List{}
	for _, e := range p.Entries() {
		name := fmt.Sprint(e.Key)
		d, ok := e.Value.(*jinja.Dict)
		if !ok {
			continue
		}
		property := schemaOf(d)
		properties.Set(name, property)
		_, hasDefault := d.Get("default")
		t, _ := d.Get("type")
		text, _ := t.(string)
		if !hasDefault && !strings.Contains(text, "optional") {
			required.Items = append(required.Items, name)
		}
	}
	out := jinja.NewDict()
	out.Set("type", "object")
	out.Set("properties", properties)
	if len(required.Items) > 0 {
		out.Set("required", required)
	}
	return out
}

// typeNames gives the types of Python the names that JSON Schema has for them.
var typeNames = map[string]string{
	"str": "string", "text": "string", "int": "integer", "long": "integer", "float": "number", "double": "number", "bool": "boolean",
	"dict": "object", "map": "object", "list": "array", "tuple": "array", "set": "array", "none": "null",
}

// schemaOf renames the types of a schema, at any depth, and leaves out what is null.
func schemaOf(v jinja.Value) jinja.Value {
	switch v := v.(type) {
	case *jinja.List:
		out := &jinja.List{}
		for _, item := range v.Items {
			out.Items = append(out.Items, schemaOf(item))
		}
		return out
	case *jinja.Dict:
		out := jinja.NewDict()
		for _, e := range v.Entries() {
			key := fmt.Sprint(e.Key)
			if e.Value == nil && (key == "required" || key == "enum" || key == "items" || key == "properties") {
				continue
			}
			if text, ok := e.Value.(string); ok && key == "type" {
				setType(out, text)
				continue
			}
			out.Set(key, schemaOf(e.Value))
		}
		return out
	default:
		return v
	}
}

// setType sets the type of a schema from words such as "str, optional" or List[int].
func setType(schema *jinja.Dict, text string) {
	name := strings.ToLower(strings.TrimSpace(text))
	name, _, _ = strings.Cut(name, ",")
	if inner, ok := strings.CutPrefix(name, "optional["); ok {
		name = strings.TrimSuffix(inner, "]")
	}
	if outer, inner, ok := strings.Cut(name, "["); ok {
		name = outer
		if known, isArray := typeNames[outer]; isArray && known == "array" {
			items := jinja.NewDict()
			setType(items, strings.TrimSuffix(inner, "]"))
			if len(items.Entries()) > 0 {
				schema.Set("type", "array")
				schema.Set("items", items)
				return
			}
		}
	}
	if known, ok := typeNames[name]; ok {
		name = known
	}
	switch name {
	case "string", "integer", "number", "boolean", "object", "array", "null":
		schema.Set("type", name)
	default: // any, union and the like: every value fits
	}
}
