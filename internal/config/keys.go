package config

import (
	_ "embed"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/grpo"
	"temper/internal/tool/builtin"
)

// The tags of a field hold all facts about its key:
//
//	yaml, json  the name of the key
//	range       the values of a number, for example "1..64", "1.." or "0|2.."
//	enum        the values of a text, for example "paper|released"; of a list, those of its
//	            elements; "environments", "estimators" and "tools" stand for the names in
//	            packages env, grpo and builtin
//	empty       what the empty text means; without it an empty text must be in the enum
//	form        "name" for names that become parts of run ids and keys of the store
//	path        "yes" for a place on disk, "jinja" for one only when it ends in .jinja
//	unit        what a number counts, for the documentation
//	required    "yes" for a key without a usable default, for the documentation
//	amend       whether the key can change during a run; see Amendable
//
// The checks below, Amendable, docs/configuration.md and the JSON Schema all read
// these tags, so that each fact is stated once.

// schema is written by docgen.
//
//go:embed schema.json
var schema string

// Schema is the JSON Schema (draft 2020-12) of a Run, for editors. Rules over
// several keys are not in it; Validate has all.
func Schema() string { return schema }

// Range is the set of values that the tag "range" allows: Low to High, and 0
// besides when Zero is set. Both ends are in the form of the tag, "" for no end.
type Range struct {
	Low, High string
	Zero      bool
}

// RangeOf reads the tag of a field; ok is false when there is none.
func RangeOf(tag reflect.StructTag) (r Range, ok bool) {
	text, ok := tag.Lookup("range")
	text, r.Zero = strings.CutPrefix(text, "0|")
	r.Low, r.High, _ = strings.Cut(text, "..")
	return r, ok
}

// String is the range in words, for example "1 to 64" or "0, or at least 2".
func (r Range) String() string {
	text := r.Low + " to " + r.High
	if r.High == "" {
		text = "at least " + r.Low
	}
	if r.Zero {
		text = "0, or " + text
	}
	return text
}

// EnumOf reads the tag of a field; ok is false when there is none.
func EnumOf(tag reflect.StructTag) (values []string, ok bool) {
	text, ok := tag.Lookup("enum")
	switch text {
	case "environments":
		return env.Names(), true
	case "estimators":
		return grpo.EstimatorNames(), true
	case "tools":
		return append(builtin.Names(), chat.NoTools), true
	}
	return strings.Split(text, "|"), ok
}

// nameForm is what the tag form:"name" asks for.
var nameForm = regexp.MustCompile(NamePattern)

// NamePattern is the regular expression of names; see the tag "form".
const NamePattern = `^[a-z0-9][a-z0-9-]{0,39}$`

// byTags checks every value below v against the tags of its field. It leaves out
// the paths that skip names.
func (c *checker) byTags(path string, v reflect.Value, skip func(path string) bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		at := join(path, keyOf(f))
		if skip != nil && skip(at) {
			continue
		}
		c.field(at, v.Field(i), f.Tag, skip)
	}
}

func (c *checker) field(path string, v reflect.Value, tag reflect.StructTag, skip func(string) bool) {
	switch v.Kind() {
	case reflect.Struct:
		if tool, ok := v.Interface().(Tool); ok {
			if tool.Options.Path == "" {
				c.field(path, reflect.ValueOf(tool.Name), tag, skip)
			}
			return
		}
		c.byTags(path, v, skip)
		return
	case reflect.Slice:
		for i := range v.Len() {
			c.field(fmt.Sprintf("%s[%d]", path, i), v.Index(i), tag, skip)
		}
		return
	default: // a single value
	}
	if r, ok := RangeOf(tag); ok {
		c.inRange(path, v, r)
	}
	if values, ok := EnumOf(tag); ok && (v.String() != "" || tag.Get("empty") == "") {
		c.oneOf(path, v.String(), values)
	}
	if tag.Get("form") == "name" && !nameForm.MatchString(v.String()) {
		c.add(path, "is %q, want 1 to 40 of a-z, 0-9 and '-', not starting with '-'", v.String())
	}
}

// inRange checks a number, a duration or a size.
func (c *checker) inRange(path string, v reflect.Value, r Range) {
	have := number(v)
	if r.Zero && have == 0 {
		return
	}
	if low, high := r.Bounds(v.Type()); math.IsNaN(have) || have < low || have > high {
		c.add(path, "is %v, want %s", v.Interface(), r)
	}
}

// Bounds are the ends of the range as numbers of a type: nanoseconds of a
// duration, bytes of a size. An open end is infinite.
func (r Range) Bounds(t reflect.Type) (low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	if r.Low != "" {
		low = parseBound(r.Low, t)
	}
	if r.High != "" {
		high = parseBound(r.High, t)
	}
	return low, high
}

// parseBound reads one end of a range. A tag that cannot be read is a mistake in
// this package.
func parseBound(text string, t reflect.Type) float64 {
	var out float64
	var size Bytes
	var err error
	switch t {
	case durationType:
		var d time.Duration
		d, err = time.ParseDuration(text)
		out = float64(d)
	case reflect.TypeFor[Bytes]():
		err = size.UnmarshalText([]byte(text))
		out = float64(size)
	default:
		out, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		panic(fmt.Sprintf("config: a range of type %v has the end %q: %v", t, text, err))
	}
	return out
}

func number(v reflect.Value) float64 {
	switch {
	case v.CanFloat():
		return v.Float()
	case v.CanUint():
		return float64(v.Uint())
	default:
		return float64(v.Int())
	}
}

// fieldByKey finds the field of a struct by the name of its key.
func fieldByKey(v reflect.Value, key string) (reflect.Value, bool) {
	f, ok := typeByKey(v.Type(), key)
	if !ok {
		return reflect.Value{}, false
	}
	return v.FieldByIndex(f.Index), true
}

func typeByKey(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); keyOf(f) == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func keysOf(t reflect.Type) []string {
	keys := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		keys = append(keys, keyOf(t.Field(i)))
	}
	slices.Sort(keys)
	return keys
}

// known ends the error about an unknown key of a section. A key that had another name names it in the tag was, and an
// error about the old name says the new one.
func known(wrong string, section reflect.Type) string {
	for i := range section.NumField() {
		if f := section.Field(i); wrong != "" && f.Tag.Get("was") == wrong {
			return ": it is called " + keyOf(f) + " now"
		}
	}
	keys := keysOf(section)
	text := " (known here: " + strings.Join(keys, ", ") + ")"
	if meant := Closest(wrong, keys); meant != "" {
		text = "; did you mean " + meant + "?" + text
	}
	return text
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

var indexPart = regexp.MustCompile(`^([a-z0-9_]*)\[(\d+)\]$`)

// splitIndex splits "stages[2]" into its key and its index, -1 where there is none.
func splitIndex(part string) (key string, index int) {
	m := indexPart.FindStringSubmatch(part)
	if m == nil {
		return part, -1
	}
	index, err := strconv.Atoi(m[2])
	if err != nil {
		index = math.MaxInt // beyond any list
	}
	return m[1], index
}
