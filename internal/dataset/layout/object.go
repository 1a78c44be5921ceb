package layout

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Object is a row as the members of a JSON object, whose values are not decoded yet. Its
// zero value is ready. It is not safe for concurrent use.
type Object struct {
	members []member
	dec     *jsontext.Decoder
	in      bytes.Buffer
	// names holds the names that were seen, so that each is allocated once.
	names map[string]string
}

type member struct {
	name  string
	value jsontext.Value
}

// maxNames bounds the names that an Object remembers.
const maxNames = 1 << 12

// Parse reads a row. The object refers to data until the next call. The error is a
// *Reject that says what is malformed.
func (o *Object) Parse(data []byte) error {
	o.members = o.members[:0]
	if o.dec == nil {
		o.dec = jsontext.NewDecoder(&o.in)
		o.names = map[string]string{}
	}
	o.in = *bytes.NewBuffer(data)
	o.dec.Reset(&o.in)
	if o.dec.PeekKind() != '{' {
		if _, err := o.dec.ReadValue(); err != nil && !errors.Is(err, io.EOF) {
			return notJSON(err)
		}
		return reject(NotObject, "want an object {...}")
	}
	if _, err := o.dec.ReadToken(); err != nil {
		return notJSON(err)
	}
	for o.dec.PeekKind() != '}' {
		name, err := o.dec.ReadToken()
		if err != nil {
			return notJSON(err)
		}
		key := name.String()
		value, err := o.dec.ReadValue()
		if err != nil {
			return notJSON(err)
		}
		end := int(o.dec.InputOffset())
		o.members = append(o.members, member{o.intern(key), data[end-len(value) : end]})
	}
	if _, err := o.dec.ReadToken(); err != nil {
		return notJSON(err)
	}
	if len(bytes.TrimSpace(data[o.dec.InputOffset():])) > 0 {
		return reject(NotJSON, "text after the JSON object: want one object a line")
	}
	return nil
}

func (o *Object) intern(name string) string {
	if known, ok := o.names[name]; ok {
		return known
	}
	if len(o.names) < maxNames {
		o.names[name] = name
	}
	return name
}

// notJSON names what is wrong with the text of a row.
func notJSON(err error) *Reject {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return reject(NotJSON, "the JSON object is cut short")
	case !errors.As(err, &syntax):
		return reject(NotJSON, "%v", err)
	case errors.Is(err, jsontext.ErrDuplicateName):
		return reject(DuplicateField, "%s is given twice", strings.TrimPrefix(string(syntax.JSONPointer), "/"))
	case strings.Contains(syntax.Err.Error(), "UTF-8"):
		return reject(NotUTF8, "not UTF-8 at byte %d", syntax.ByteOffset+1)
	}
	return reject(NotJSON, "no JSON at byte %d: %v", syntax.ByteOffset+1, syntax.Err)
}

// Get returns the value of a member that is there and not null.
func (o *Object) Get(name string) (jsontext.Value, bool) {
	for i := range o.members {
		if o.members[i].name == name {
			v := o.members[i].value
			return v, v.Kind() != 'n'
		}
	}
	return nil, false
}

// Has reports whether all members are there and not null.
func (o *Object) Has(names ...string) bool {
	for _, name := range names {
		if _, ok := o.Get(name); !ok {
			return false
		}
	}
	return true
}

// kind is the kind of the value of a member, 0 where it is missing.
func (o *Object) kind(name string) jsontext.Kind {
	v, ok := o.Get(name)
	if !ok {
		return 0
	}
	return v.Kind()
}

// Names lists the members in their order.
func (o *Object) Names() []string {
	out := make([]string, len(o.members))
	for i, m := range o.members {
		out[i] = m.name
	}
	return out
}

// At returns the value at a path such as reward_model.ground_truth or prompt.0.content.
func (o *Object) At(path string) (jsontext.Value, bool) {
	if v, ok := o.Get(path); ok {
		return v, true
	}
	head, rest, deeper := strings.Cut(path, ".")
	v, ok := o.Get(head)
	if !ok || !deeper {
		return nil, false
	}
	return valueAt(v, rest)
}

func valueAt(v jsontext.Value, path string) (jsontext.Value, bool) {
	head, rest, deeper := strings.Cut(path, ".")
	var inner jsontext.Value
	switch v.Kind() {
	case '{':
		var o Object
		if o.Parse(v) != nil {
			return nil, false
		}
		inner, _ = o.Get(head)
	case '[':
		i, err := strconv.Atoi(head)
		items, listErr := elements(v)
		if err != nil || listErr != nil || i < 0 || i >= len(items) {
			return nil, false
		}
		inner = items[i]
	case '"':
		text, _ := textOf(v) // JSON within a text
		if decoded := jsontext.Value(text); decoded.IsValid() && decoded.Kind() != '"' {
			return valueAt(decoded, path)
		}
	default: // a single value has nothing below it
	}
	if inner == nil || inner.Kind() == 'n' {
		return nil, false
	}
	if deeper {
		return valueAt(inner, rest)
	}
	return inner, true
}

// elements are the values of a JSON list, which is valid JSON.
func elements(v jsontext.Value) ([]jsontext.Value, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(v))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var out []jsontext.Value
	for dec.PeekKind() != ']' {
		value, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		end := int(dec.InputOffset())
		out = append(out, v[end-len(value):end])
	}
	return out, nil
}

// textOf decodes a JSON string; ok is false for another kind.
func textOf(v jsontext.Value) (text string, ok bool) {
	if v.Kind() != '"' {
		return "", false
	}
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	out, err := jsontext.AppendUnquote(nil, v)
	return string(out), err == nil
}
