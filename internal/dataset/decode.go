package dataset

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"temper/internal/config"
)

// decode reads one line into v, strictly: no unknown, repeated or missing field
// and nothing that is not UTF-8. Fields without omitempty are required. The error
// names the field.
func decode(line []byte, v any) error {
	err := json.Unmarshal(line, v, json.RejectUnknownMembers(true))
	var syntax *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &syntax):
		return explainSyntax(syntax, line)
	case errors.As(err, &semantic):
		return explainMisfit(semantic)
	case err != nil:
		return err
	}
	if fields := missing(reflect.ValueOf(v).Elem(), ""); len(fields) > 0 {
		return fmt.Errorf("missing or empty: %s", strings.Join(fields, ", "))
	}
	return nil
}

// explainSyntax names the field, the byte of the line from 1, and what is wrong.
func explainSyntax(e *jsontext.SyntacticError, line []byte) error {
	at := fieldPath(e.JSONPointer)
	switch {
	case errors.Is(e.Err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%sthe JSON object is cut short", prefix(at))
	case errors.Is(e.Err, jsontext.ErrDuplicateName):
		return fmt.Errorf("%s is given twice", at)
	case bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) && strings.Contains(e.Err.Error(), "after top-level value"):
		return errors.New("text after the JSON object: want one object a line")
	case strings.Contains(e.Err.Error(), "UTF-8"):
		return fmt.Errorf("%snot UTF-8 at byte %d", prefix(at), e.ByteOffset+1)
	}
	return fmt.Errorf("%sno JSON at byte %d: %w", prefix(at), e.ByteOffset+1, e.Err)
}

// explainMisfit names the field whose value does not fit, or the fields there are.
func explainMisfit(e *json.SemanticError) error {
	if errors.Is(e.Err, json.ErrUnknownName) {
		name, known := e.JSONPointer.LastToken(), fieldNames(e.GoType)
		text := fmt.Sprintf("%sunknown field %.40q: want %s", prefix(fieldPath(e.JSONPointer.Parent())), name, strings.Join(known, ", "))
		if meant := config.Closest(name, known); meant != "" {
			text += "; did you mean " + meant + "?"
		}
		return errors.New(text)
	}
	have := map[jsontext.Kind]string{
		'"': "a text", '0': "a number", 't': "true", 'f': "false", 'n': "null", '{': "an object", '[': "a list",
	}[e.JSONKind]
	if len(e.JSONValue) > 0 && len(e.JSONValue) <= 40 {
		have = string(e.JSONValue)
	}
	return fmt.Errorf("%swant %s, have %s", prefix(fieldPath(e.JSONPointer)), kindName(e.GoType), have)
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text in quotes"
	case reflect.Int:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	default:
		return "a JSON object {...}"
	}
}

// missing lists the required fields that are empty, by their path.
func missing(v reflect.Value, path string) []string {
	var out []string
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 { // JSON that is decoded later
			break
		}
		for i := range v.Len() {
			out = append(out, missing(v.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, optional := jsonName(v.Type().Field(i))
			at := strings.TrimPrefix(path+"."+name, ".")
			if v.Field(i).Kind() == reflect.Struct || !v.Field(i).IsZero() {
				out = append(out, missing(v.Field(i), at)...)
			} else if !optional {
				out = append(out, at)
			}
		}
	default: // a single value
	}
	return out
}

func jsonName(f reflect.StructField) (name string, optional bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
}

// fieldNames lists the fields of an object in the order of their declaration.
func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _ = jsonName(t.Field(i))
	}
	return names
}

// maxDepth bounds the parts of a path in an error; our formats have six at most.
const maxDepth = 8

// fieldPath turns "/messages/0/role" into "messages[0].role".
func fieldPath(p jsontext.Pointer) string {
	var b strings.Builder
	depth := 0
	for token := range p.Tokens() {
		if depth++; depth > maxDepth {
			b.WriteString("...")
			break
		}
		if token != "" && strings.Trim(token, "0123456789") == "" {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		quoted := fmt.Sprintf("%.40q", token)
		b.WriteString(strings.Trim(quoted, `"`))
	}
	return b.String()
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}
