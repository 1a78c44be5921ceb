package main

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"math"
	"reflect"
	"strconv"
	"time"

	"temper/internal/config"
)

// object is a JSON object that keeps the order of its members.
type object []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(m.name) + ":") // names are plain ASCII
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// schemaOf is the JSON Schema of a configuration. Ranges of one key are in it, rules
// over several keys are not: temper config check knows those.
func schemaOf(whole *section) ([]byte, error) {
	head := object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "Configuration of a Temper run"}}
	data, err := json.Marshal(append(head, sectionSchema(whole)...))
	if err != nil {
		return nil, err
	}
	value := jsontext.Value(data)
	if err := value.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, err
	}
	return append(value, '\n'), nil
}

func sectionSchema(s *section) object {
	var properties object
	var required []string
	for _, k := range s.keys {
		properties = append(properties, member{k.name, keySchema(k)})
		if k.field.Tag.Get("required") == "yes" {
			required = append(required, k.name)
		}
	}
	out := object{{"description", s.about}, {"type", "object"}, {"properties", properties}, {"additionalProperties", false}}
	if len(required) > 0 {
		out = append(out, member{"required", required})
	}
	return out
}

func keySchema(k key) object {
	about := member{"description", k.description()}
	if k.field.Type == toolsType {
		return append(object{about}, toolsSchema(k)...)
	}
	if k.below != nil && k.field.Type.Kind() == reflect.Slice {
		out := object{about, {"type", "array"}, {"items", sectionSchema(k.below)}}
		if k.field.Tag.Get("required") == "yes" {
			out = append(out, member{"minItems", 1})
		}
		return out
	}
	if k.below != nil {
		return append(object{about}, sectionSchema(k.below)[1:]...)
	}
	out := append(object{about}, valueSchema(k)...)
	if k.standard() != "" && (!k.value.IsZero() || k.field.Tag.Get("empty") == "") {
		out = append(out, member{"default", k.defaultValue()})
	}
	return out
}

// toolsSchema allows a list of names and files, and a mapping from names to options, in
// which a name that is not built in belongs to a file.
func toolsSchema(k key) object {
	names, _ := config.EnumOf(k.field.Tag)
	var properties object
	for _, name := range names {
		properties = append(properties, member{name, sectionSchema(k.below)})
	}
	file := append(sectionSchema(k.below), member{"required", []string{"path"}})
	return object{{"anyOf", []object{
		{{"type", "array"}, {"items", object{{"anyOf", []object{{{"type", "string"}, {"enum", names}}, file}}}}, {"uniqueItems", true}},
		{{"type", "object"}, {"properties", properties}, {"additionalProperties", file}},
	}}}
}

// description adds what a schema has no words for.
func (k key) description() string {
	text := k.about
	if unit := k.field.Tag.Get("unit"); unit != "" {
		text += " Unit: " + unit + "."
	}
	if meaning := k.field.Tag.Get("empty"); meaning != "" {
		text += " Left out: " + meaning + "."
	}
	if k.below == nil && k.amendable() {
		text += " Can be amended during a run."
	}
	return text
}

// valueSchema is the type and the range of a value.
func valueSchema(k key) object {
	t := k.field.Type
	values, limited := config.EnumOf(k.field.Tag)
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return object{{"type", "string"}, {"pattern", `^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$`}}
	case t == reflect.TypeFor[config.Bytes]():
		return object{{"type", []string{"string", "integer"}}, {"pattern", `^[0-9]+ *(B|KiB|MiB|GiB)?$`}, {"minimum", 0}}
	case t.Kind() == reflect.Map:
		return object{{"type", "object"}, {"additionalProperties", object{{"type", []string{"string", "number", "boolean"}}}}}
	case t.Kind() == reflect.Slice && limited:
		return object{{"type", "array"}, {"items", object{{"type", "string"}, {"enum", values}}}, {"uniqueItems", true}}
	case t.Kind() == reflect.Slice:
		return object{{"type", "array"}, {"items", object{{"type", typeName(t.Elem())}}}}
	case limited && k.field.Tag.Get("empty") != "":
		return object{{"type", "string"}, {"enum", append(values, "")}}
	case limited:
		return object{{"type", "string"}, {"enum", values}}
	case k.field.Tag.Get("form") == "name":
		return object{{"type", "string"}, {"pattern", config.NamePattern}}
	}
	return append(object{{"type", typeName(t)}}, limits(k)...)
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Float64:
		return "number"
	default:
		return "integer"
	}
}

// limits are the ends of a range; 0 besides makes it a choice of two.
func limits(k key) object {
	r, ok := config.RangeOf(k.field.Tag)
	if !ok {
		if k.field.Type.Kind() == reflect.Uint64 {
			return object{{"minimum", 0}}
		}
		return nil
	}
	var out object
	low, high := r.Bounds(k.field.Type)
	if !math.IsInf(low, 0) {
		out = append(out, member{"minimum", low})
	}
	if !math.IsInf(high, 0) {
		out = append(out, member{"maximum", high})
	}
	if r.Zero {
		return object{{"anyOf", []object{{{"const", 0}}, out}}}
	}
	return out
}

// defaultValue is the default as JSON.
func (k key) defaultValue() any {
	switch t := k.field.Type; {
	case t == reflect.TypeFor[time.Duration](), t == reflect.TypeFor[config.Bytes](), t == reflect.TypeFor[config.Secret]():
		return k.standard()
	case t.Kind() == reflect.Map:
		return object{}
	case t.Kind() == reflect.Slice && k.value.IsNil():
		return []string{}
	default:
		return k.value.Interface()
	}
}
