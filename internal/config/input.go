package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// DecodeInput decodes the JSON object that a person wrote as the input of a workflow
// into the struct that v points to. It decodes what it can and reports the rest, so
// that the workflow begins, and refuses what is wrong in one line each: keys that the
// struct does not have, and values of another form.
func DecodeInput(data []byte, v any) Problems {
	return decodeObject(data, reflect.ValueOf(v).Elem(), "")
}

func decodeObject(data []byte, into reflect.Value, path string) (bad Problems) {
	var raw map[string]json.RawMessage
	if json.Unmarshal(data, &raw) != nil {
		want := "one JSON object with " + strings.Join(jsonKeys(into.Type()), ", ")
		return Problems{{Path: path, Msg: fmt.Sprintf("want %s; have %s", want, describeJSON(data))}}
	}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		field, known := fieldOf(into, key)
		if !known {
			bad = append(bad, Problem{Path: join(path, key), Msg: "unknown key" + knownJSON(key, into.Type())})
		}
		if field.IsValid() {
			bad = append(bad, decodeValue(raw[key], field, join(path, key))...)
		}
	}
	return bad
}

func decodeValue(data []byte, into reflect.Value, path string) Problems {
	if into.Kind() == reflect.Pointer && into.Type().Elem().Kind() == reflect.Struct && string(data) != "null" {
		into.Set(reflect.New(into.Type().Elem()))
		return decodeObject(data, into.Elem(), path)
	}
	if json.Unmarshal(data, into.Addr().Interface()) != nil {
		return Problems{{Path: path, Msg: fmt.Sprintf("want %s; have %s", formOf(into.Type()), describeJSON(data))}}
	}
	return nil
}

// fieldOf is the field of a key. One that is spelled with other capitals is not known, but
// decoded nevertheless, so that its value is checked, too.
func fieldOf(v reflect.Value, key string) (field reflect.Value, known bool) {
	for i := range v.NumField() {
		switch name := jsonKey(v.Type().Field(i)); {
		case name == "":
		case name == key:
			return v.Field(i), true
		case strings.EqualFold(name, key):
			field = v.Field(i)
		}
	}
	return field, false
}

// jsonKey is the key of a field, "" for one that is not part of the object.
func jsonKey(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if !f.IsExported() || name == "-" {
		return ""
	}
	return name
}

func jsonKeys(t reflect.Type) (keys []string) {
	for i := range t.NumField() {
		if key := jsonKey(t.Field(i)); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

func knownJSON(wrong string, t reflect.Type) string {
	keys := jsonKeys(t)
	slices.Sort(keys)
	text := " (known here: " + strings.Join(keys, ", ") + ")"
	if meant := Closest(wrong, keys); meant != "" {
		text = "; did you mean " + meant + "?" + text
	}
	return text
}

// formOf is the form of a value in words.
func formOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return formOf(t.Elem())
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Int:
		return "a whole number"
	case reflect.Slice:
		return "a list, each " + formOf(t.Elem())
	default:
		return `an object of keys and values, such as {"seed": 2}`
	}
}

// maxShown is how much of a wrong value an error shows.
const maxShown = 40

// describeJSON is a JSON value in words.
func describeJSON(data []byte) string {
	text := strings.TrimSpace(string(data))
	switch {
	case strings.HasPrefix(text, "{"):
		return "an object"
	case strings.HasPrefix(text, "["):
		return "a list"
	case len(text) > maxShown:
		return "a text of " + fmt.Sprint(len(text)-2) + " bytes"
	default:
		return text
	}
}
