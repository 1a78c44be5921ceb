package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"temper/internal/series"
	"temper/workflows"
)

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

// openAPI describes the routes as OpenAPI 3.1.
func openAPI() ([]byte, error) {
	t := newTypes()
	paths := map[string]map[string]any{}
	for _, r := range routes(&Server{}) {
		params := []any{}
		for _, m := range pathParam.FindAllStringSubmatch(r.Path, -1) {
			params = append(params, map[string]any{"name": m[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"}})
		}
		for _, q := range r.Query {
			params = append(params, map[string]any{"name": q.Name, "in": "query", "description": q.Meaning, "schema": map[string]any{"type": "string"}})
		}
		content := map[string]any{r.Content: map[string]any{}}
		if r.Answer != nil {
			content = map[string]any{"application/json": map[string]any{"schema": t.schema(r.Answer)}}
		}
		op := map[string]any{
			"summary": r.Summary, "parameters": params,
			"responses": map[string]any{
				"200":     map[string]any{"description": "the answer", "content": content},
				"default": map[string]any{"description": "one line says what is wrong", "content": map[string]any{"application/problem+json": map[string]any{}}},
			},
		}
		if r.Body != nil {
			op["requestBody"] = map[string]any{"required": true, "content": map[string]any{"application/json": map[string]any{"schema": t.schema(r.Body)}}}
		}
		if r.Token {
			op["security"] = []any{map[string]any{"token": []any{}}}
		}
		if paths[r.Path] == nil {
			paths[r.Path] = map[string]any{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = op
	}
	doc := map[string]any{
		"openapi": "3.1.0", "info": map[string]any{"title": "Temper dashboard", "version": "1"}, "paths": paths,
		"components": map[string]any{"schemas": t.schemas, "securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer"}}},
	}
	data, err := json.MarshalIndent(doc, "", " ")
	return append(data, '\n'), err
}

// types collects the types of answers by name.
type types struct {
	schemas map[string]any
	script  map[string]string
}

func newTypes() *types { return &types{schemas: map[string]any{}, script: map[string]string{}} }

// special are types whose JSON is not what their kind says.
func special(t reflect.Type) (schema map[string]any, script string, ok bool) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}, "string", true
	case reflect.TypeFor[Number]():
		return map[string]any{"type": []string{"number", "string"}}, "number | string", true
	case reflect.TypeFor[series.Values]():
		return map[string]any{"type": "object", "additionalProperties": map[string]any{"type": []string{"number", "string"}}}, "Record<string, number | string>", true
	case reflect.TypeFor[workflows.Checkpoint]():
		return map[string]any{"type": "string"}, "string", true
	}
	return nil, "", false
}

// schema is the JSON Schema of a type; that of a struct is a reference.
func (t *types) schema(of reflect.Type) map[string]any {
	if s, _, ok := special(of); ok {
		return s
	}
	switch of.Kind() {
	case reflect.Pointer:
		return t.schema(of.Elem())
	case reflect.Struct:
		t.add(of)
		return map[string]any{"$ref": "#/components/schemas/" + of.Name()}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": t.schema(of.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": t.schema(of.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Interface:
		return map[string]any{}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	default:
		return map[string]any{"type": "integer"}
	}
}

// name is the TypeScript type of a type.
func (t *types) name(of reflect.Type) string {
	if _, s, ok := special(of); ok {
		return s
	}
	switch of.Kind() {
	case reflect.Pointer:
		return t.name(of.Elem())
	case reflect.Struct:
		t.add(of)
		return of.Name()
	case reflect.Slice, reflect.Array:
		inner := t.name(of.Elem())
		if of.Elem().Kind() == reflect.Pointer {
			inner += " | null"
		}
		if strings.Contains(inner, "|") {
			inner = "(" + inner + ")"
		}
		return inner + "[]"
	case reflect.Map:
		return "Record<string, " + t.name(of.Elem()) + ">"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Interface:
		return "unknown"
	default:
		return "number"
	}
}

// add describes a struct once.
func (t *types) add(of reflect.Type) {
	if _, ok := t.schemas[of.Name()]; ok {
		return
	}
	props, required := map[string]any{}, []string{}
	t.schemas[of.Name()] = map[string]any{"type": "object", "properties": props}
	var lines []string
	for name, f := range fieldsOf(of) {
		props[name] = t.schema(f.Type)
		mark := ""
		switch tag := f.Tag.Get("json"); {
		case strings.Contains(tag, ",omitempty"), strings.Contains(tag, ",omitzero"):
			mark = "?"
		default:
			required = append(required, name)
		}
		lines = append(lines, fmt.Sprintf("  %s%s: %s;", name, mark, t.name(f.Type)))
	}
	slices.Sort(lines)
	slices.Sort(required)
	t.schemas[of.Name()] = map[string]any{"type": "object", "properties": props, "required": required}
	t.script[of.Name()] = "export interface " + of.Name() + " {\n" + strings.Join(lines, "\n") + "\n}\n"
}

// fieldsOf are the fields of a struct by their names in JSON; outer ones win.
func fieldsOf(of reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			for inner, g := range fieldsOf(f.Type) {
				if _, ok := out[inner]; !ok {
					out[inner] = g
				}
			}
		case f.IsExported() && name != "" && name != "-":
			out[name] = f
		}
	}
	return out
}

// serveOpenAPI answers with the description of the routes.
func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	data, err := openAPI()
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the client has gone when this fails
}
