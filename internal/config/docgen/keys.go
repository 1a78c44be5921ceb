package main

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"

	"temper/internal/config"
)

// section is a struct of the configuration at its place.
type section struct {
	path  string // "" for the whole
	about string
	keys  []key
}

// key is one key of a section.
type key struct {
	name, path string
	about      string
	field      reflect.StructField
	// value is the default.
	value reflect.Value
	// below is the section that the key holds, or of which it holds a list.
	below *section
}

// sections returns every section in the order of the declarations, parents first.
func (c comments) sections() ([]*section, error) {
	var out []*section
	_, err := c.section(&out, "", reflect.ValueOf(config.Default()))
	return out, err
}

func (c comments) section(all *[]*section, path string, v reflect.Value) (*section, error) {
	about, err := c.ofType(v.Type())
	if err != nil {
		return nil, err
	}
	s := &section{path: path, about: about}
	*all = append(*all, s)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		k := key{name: name, path: strings.TrimPrefix(path+"."+name, "."), field: f, value: v.Field(i)}
		if k.about, err = c.ofField(v.Type(), f); err != nil {
			return nil, err
		}
		at, inside := k.path, v.Field(i)
		if f.Type.Kind() == reflect.Slice {
			at, inside = at+"[]", element(f.Type.Elem())
		}
		if f.Type == toolsType {
			at, inside = k.path+".NAME", reflect.ValueOf(config.ToolOptions{})
		}
		if inside.Kind() == reflect.Struct {
			if k.below, err = c.section(all, at, inside); err != nil {
				return nil, err
			}
		}
		s.keys = append(s.keys, k)
	}
	return s, nil
}

// toolsType has two forms, a list and a mapping.
var toolsType = reflect.TypeFor[config.Tools]()

// element returns the default of a list's element.
func element(t reflect.Type) reflect.Value {
	if t == reflect.TypeFor[config.Stage]() {
		return reflect.ValueOf(config.DefaultStage())
	}
	return reflect.New(t).Elem()
}

// kind is the type of a value in words.
func (k key) kind() string {
	switch t := k.field.Type; {
	case t == toolsType:
		return "list of names, or mapping to options"
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[config.Bytes]():
		return "size"
	case t.Kind() == reflect.Struct:
		return "section"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return "list of sections"
	case t.Kind() == reflect.Slice:
		return "list of " + wordOf(t.Elem()) + "s"
	case t.Kind() == reflect.Map:
		return "mapping of texts"
	default:
		return wordOf(t)
	}
}

func wordOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Float64:
		return "number"
	default:
		return "whole number"
	}
}

// typeAndUnit is the type with the unit, for example "whole number (tokens)".
func (k key) typeAndUnit() string {
	if unit := k.field.Tag.Get("unit"); unit != "" {
		return k.kind() + " (" + unit + ")"
	}
	return k.kind()
}

// standard is the default as a configuration would state it, "" for an empty one.
func (k key) standard() string {
	if k.below != nil || k.field.Tag.Get("required") == "yes" {
		return ""
	}
	if meaning := k.field.Tag.Get("empty"); k.value.IsZero() && meaning != "" {
		return meaning
	}
	if text, ok := k.value.Interface().(encoding.TextMarshaler); ok {
		b, err := text.MarshalText()
		return cmp.Or(string(b), fmt.Sprint(err))
	}
	switch k.value.Kind() {
	case reflect.Slice:
		return strings.ReplaceAll(fmt.Sprint(k.value.Interface()), " ", ", ")
	case reflect.Map:
		return "{}"
	default:
		return fmt.Sprint(k.value.Interface())
	}
}

// allowed is the range or the values in words.
func (k key) allowed() string {
	if values, ok := config.EnumOf(k.field.Tag); ok {
		return strings.Join(values, ", ")
	}
	if r, ok := config.RangeOf(k.field.Tag); ok {
		return r.String()
	}
	if k.field.Tag.Get("form") == "name" {
		return "1 to 40 of a-z, 0-9, -"
	}
	if k.field.Type.Kind() == reflect.Uint64 {
		return "at least 0"
	}
	return ""
}

// amendable reports whether the key can change during a run.
func (k key) amendable() bool {
	return config.Amendable(strings.ReplaceAll(k.path, "[]", "[0]")) == nil
}
