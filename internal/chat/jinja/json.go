package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxJSONDepth is the deepest nesting that Decode accepts.
const MaxJSONDepth = maxDepth / 2

// Decode reads one JSON value. Objects keep the order of their members. Where a name
// occurs twice, the first decides the place and the last the value, as in Python.
// Numbers with a point or an exponent are floats, the others integers.
func Decode(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("invalid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("text after the JSON value")
	}
	return v, nil
}

func decodeValue(dec *json.Decoder, depth int) (Value, error) {
	if depth > MaxJSONDepth {
		return nil, fmt.Errorf("nested deeper than %d", MaxJSONDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	switch t := tok.(type) {
	case json.Number:
		return decodeNumber(t.String())
	case json.Delim:
		if t == '[' {
			return decodeArray(dec, depth)
		}
		return decodeObject(dec, depth)
	default:
		return t, nil // nil, bool or string
	}
}

func decodeNumber(s string) (Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // a number out of range is an infinity, as in Python
			return nil, fmt.Errorf("number %s: %w", s, err)
		}
		return f, nil
	}
	if len(s) > 4300 {
		return nil, fmt.Errorf("integer of %d digits, at most 4300", len(s))
	}
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, fmt.Errorf("bad number %s", s)
	}
	return integer(n), nil
}

func decodeArray(dec *json.Decoder, depth int) (Value, error) {
	l := &List{}
	for dec.More() {
		v, err := decodeValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
	}
	_, err := dec.Token()
	return l, err
}

func decodeObject(dec *json.Decoder, depth int) (Value, error) {
	d := NewDict()
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		v, err := decodeValue(dec, depth+1)
		if err != nil {
			return nil, err
		}
		d.setKey(key, v)
	}
	_, err := dec.Token()
	return d, err
}

// encoder writes JSON as Python's json.dumps does.
type encoder struct {
	b          strings.Builder
	st         *state
	ascii      bool
	sorted     bool
	indent     string
	pretty     bool
	item, pair string // separators
}

func (e *encoder) write(v Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: nested deeper than %d", ErrBudget, maxDepth)
	}
	if err := e.st.charge(16); err != nil {
		return err
	}
	if e.b.Len() > MaxOutput {
		return fmt.Errorf("%w of %d bytes of output", ErrBudget, MaxOutput)
	}
	switch x := v.(type) {
	case nil:
		e.b.WriteString("null")
	case bool:
		fmt.Fprint(&e.b, x)
	case int64, *big.Int:
		e.b.WriteString(repr(x))
	case float64:
		e.b.WriteString(jsonFloat(x))
	case string:
		writeJSONString(&e.b, x, e.ascii)
		return e.st.charge(len(x))
	case *List:
		return e.list(x, depth)
	case *Dict:
		return e.dict(x, depth)
	default:
		return fmt.Errorf("object of type %s is not JSON serializable", typeName(v))
	}
	return nil
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	default:
		return formatFloat(f)
	}
}

// next writes the separator and the line end before the i-th item or member.
func (e *encoder) next(i, depth int) error {
	if i > 0 {
		if err := e.st.charge(len(e.item) + len(e.pair)); err != nil {
			return err
		}
		e.b.WriteString(e.item)
	}
	return e.newline(depth)
}

// newline starts a new line when the text is indented.
func (e *encoder) newline(depth int) error {
	if !e.pretty {
		return nil
	}
	if err := e.st.charge(len(e.indent) * depth); err != nil {
		return err
	}
	e.b.WriteString("\n" + strings.Repeat(e.indent, depth))
	return nil
}

func (e *encoder) list(l *List, depth int) error {
	if len(l.Items) == 0 {
		e.b.WriteString("[]")
		return nil
	}
	e.b.WriteByte('[')
	for i, item := range l.Items {
		if err := e.next(i, depth+1); err != nil {
			return err
		}
		if err := e.write(item, depth+1); err != nil {
			return err
		}
	}
	if err := e.newline(depth); err != nil {
		return err
	}
	e.b.WriteByte(']')
	return nil
}

func (e *encoder) dict(d *Dict, depth int) error {
	if d.Len() == 0 {
		e.b.WriteString("{}")
		return nil
	}
	entries := append([]Entry{}, d.entries...)
	if e.sorted {
		sort.SliceStable(entries, func(i, j int) bool { return jsonKey(entries[i].Key) < jsonKey(entries[j].Key) })
	}
	e.b.WriteByte('{')
	for i, m := range entries {
		if err := e.next(i, depth+1); err != nil {
			return err
		}
		writeJSONString(&e.b, jsonKey(m.Key), e.ascii)
		e.b.WriteString(e.pair)
		if err := e.write(m.Value, depth+1); err != nil {
			return err
		}
	}
	if err := e.newline(depth); err != nil {
		return err
	}
	e.b.WriteByte('}')
	return nil
}

func jsonKey(key Value) string {
	switch k := key.(type) {
	case string:
		return k
	case nil:
		return "null"
	case bool:
		return fmt.Sprint(k)
	case float64:
		return jsonFloat(k)
	default:
		return repr(key)
	}
}

func writeJSONString(b *strings.Builder, s string, ascii bool) {
	b.WriteByte('"')
	for _, r := range s {
		if i := strings.IndexRune("\"\\\n\r\t\b\f", r); i >= 0 {
			b.WriteString(`\` + string(`"\nrtbf`[i]))
			continue
		}
		switch {
		case r < 0x20 || ascii && r >= 0x7f && r < 0x10000 && r != 0x7f:
			fmt.Fprintf(b, `\u%04x`, r)
		case ascii && r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

// Encode returns a value as JSON in one line, as Python's json.dumps writes it without
// escaping other scripts.
func Encode(v Value) (string, error) {
	e := &encoder{st: &state{}, item: ", ", pair: ": "}
	err := e.write(v, 0)
	return e.b.String(), err
}

// filterToJSON is Hugging Face's tojson: no HTML escapes, members in order.
func filterToJSON(st *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	e := &encoder{st: st, ascii: truth(argOr(a[0], false)), sorted: truth(argOr(a[3], false)), item: ", ", pair: ": "}
	switch indent := argOr(a[1], nil).(type) {
	case nil:
	case string:
		e.pretty, e.indent, e.item = true, indent, ","
	default:
		n, err := asInt(indent)
		if err != nil || n > 64 {
			return nil, fmt.Errorf("indent must be None, a string or an integer of at most 64")
		}
		e.pretty, e.indent, e.item = true, strings.Repeat(" ", int(max(n, 0))), ","
	}
	if s, ok := argOr(a[2], nil).(*List); ok {
		if len(s.Items) != 2 {
			return nil, fmt.Errorf("separators must be two strings")
		}
		var err error
		if e.item, err = asString(s.Items[0]); err != nil {
			return nil, err
		}
		if e.pair, err = asString(s.Items[1]); err != nil {
			return nil, err
		}
	}
	err = e.write(v, 0)
	return e.b.String(), err
}
