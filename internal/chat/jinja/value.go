package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Value is a value of a template: nil (None), bool, int64, *big.Int (an integer that
// does not fit int64 and can only be printed), float64, string, *List, *Dict, and
// the values of the language itself.
type Value any

// List is a Python list or tuple.
type List struct {
	Items []Value
	tuple bool
}

// Entry is one pair of a Dict.
type Entry struct {
	Key   Value
	Value Value
}

// Dict keeps its pairs in the order of their first insertion, as Python does.
type Dict struct {
	entries []Entry
	index   map[Value]int
}

// undefined is the value of a name, attribute or item that does not exist.
type undefined struct{ what string }

func (u undefined) err() error { return fmt.Errorf("%s", u.what) }

// namespace is the only value that a template can change.
type namespace struct{ *Dict }

// function is a callable.
type function struct {
	name string
	call func(st *state, c call) (Value, error)
}

// NewDict returns an empty Dict.
func NewDict() *Dict { return &Dict{index: map[Value]int{}} }

// Len is the number of pairs.
func (d *Dict) Len() int { return len(d.entries) }

// Entries returns the pairs in order; the caller must not change them.
func (d *Dict) Entries() []Entry { return d.entries }

// Get returns the value of a string key.
func (d *Dict) Get(key string) (Value, bool) { return d.lookUp(key) }

// Set sets the value of a string key. A new key goes to the end.
func (d *Dict) Set(key string, v Value) { d.setKey(key, v) }

// Clone returns a Dict with the same pairs.
func (d *Dict) Clone() *Dict {
	out := NewDict()
	for _, e := range d.entries {
		out.setKey(e.Key, e.Value)
	}
	return out
}

func (d *Dict) lookUp(key Value) (Value, bool) {
	k, ok := hashable(key)
	if !ok {
		return nil, false
	}
	i, ok := d.index[k]
	if !ok {
		return nil, false
	}
	return d.entries[i].Value, true
}

func (d *Dict) setKey(key, v Value) bool {
	k, ok := hashable(key)
	if !ok {
		return false
	}
	if i, ok := d.index[k]; ok {
		d.entries[i].Value = v
		return true
	}
	d.index[k] = len(d.entries)
	d.entries = append(d.entries, Entry{key, v})
	return true
}

func (d *Dict) keys() []Value {
	out := make([]Value, len(d.entries))
	for i, e := range d.entries {
		out[i] = e.Key
	}
	return out
}

// hashable returns a value that is the same for equal keys: True, 1 and 1.0 are one key.
func hashable(v Value) (Value, bool) {
	switch x := v.(type) {
	case nil, string, int64:
		return v, true
	case bool, float64:
		if f := toFloat(x); f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return int64(f), true
		}
		return v, true
	default:
		return nil, false
	}
}

// integer returns n as int64 where it fits.
func integer(n *big.Int) Value {
	if n.IsInt64() {
		return n.Int64()
	}
	return n
}

// isNumber reports whether v is a number in Python, where a bool is one.
func isNumber(v Value) bool {
	switch v.(type) {
	case bool, int64, float64, *big.Int:
		return true
	default:
		return false
	}
}

func toFloat(v Value) float64 {
	switch x := v.(type) {
	case bool:
		if x {
			return 1
		}
	case int64:
		return float64(x)
	case float64:
		return x
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f
	}
	return 0
}

// toInt returns the integer of an int or bool.
func toInt(v Value) (int64, bool) {
	switch x := v.(type) {
	case bool:
		return int64(toFloat(x)), true
	case int64:
		return x, true
	default:
		return 0, false
	}
}

// typeName is Python's name of the type of v.
func typeName(v Value) string {
	switch x := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		if x.tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	default:
		return "function"
	}
}

// truth is Python's bool(v).
func truth(v Value) bool {
	switch x := v.(type) {
	case nil, undefined:
		return false
	case bool, int64, float64:
		return toFloat(x) != 0
	case string:
		return x != ""
	case *List:
		return len(x.Items) > 0
	case *Dict:
		return x.Len() > 0
	default:
		return true
	}
}

// str is Python's str(v).
func str(v Value) string {
	switch x := v.(type) {
	case string:
		return x
	case undefined:
		return ""
	default:
		return repr(v)
	}
}

// repr is Python's repr(v).
func repr(v Value) string {
	var b strings.Builder
	writeRepr(&b, v, 0)
	return b.String()
}

func writeRepr(b *strings.Builder, v Value, depth int) {
	if depth > maxDepth || b.Len() > MaxOutput { // a render that uses the text exceeds its budget
		b.WriteString("...")
		return
	}
	switch x := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[x])
	case int64:
		b.WriteString(strconv.FormatInt(x, 10))
	case *big.Int:
		b.WriteString(x.String())
	case float64:
		b.WriteString(formatFloat(x))
	case string:
		writeQuoted(b, x)
	case *List:
		writeItems(b, x, depth)
	case *Dict:
		b.WriteByte('{')
		for i, e := range x.entries {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, e.Key, depth+1)
			b.WriteString(": ")
			writeRepr(b, e.Value, depth+1)
		}
		b.WriteByte('}')
	case undefined:
		b.WriteString("Undefined")
	default:
		b.WriteString("<" + typeName(v) + ">")
	}
}

func writeItems(b *strings.Builder, l *List, depth int) {
	open, end := "[", "]"
	if l.tuple {
		open, end = "(", ")"
		if len(l.Items) == 1 {
			end = ",)"
		}
	}
	b.WriteString(open)
	for i, item := range l.Items {
		if i > 0 {
			b.WriteString(", ")
		}
		writeRepr(b, item, depth+1)
	}
	b.WriteString(end)
}

// formatFloat is Python's repr of a float: the shortest digits that give the same
// number, with an exponent below 1e-4 and from 1e16 on.
func formatFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(f, 'g', -1, 64)), "+")
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:]) // strconv wrote it
	if exponent < -4 || exponent >= 16 {
		return s
	}
	if s = strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// writeQuoted writes a string literal as Python's repr does.
func writeQuoted(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
}

// lengthOf returns the length of v in Python, false when it has none.
func lengthOf(v Value) (int, bool) {
	switch x := v.(type) {
	case string:
		return utf8.RuneCountInString(x), true
	case *List:
		return len(x.Items), true
	case *Dict:
		return x.Len(), true
	case undefined:
		return 0, true
	default:
		return 0, false
	}
}

// iterate returns the items of v: those of a list, the keys of a dict, the
// characters of a string.
func iterate(st *state, v Value) ([]Value, error) {
	switch x := v.(type) {
	case *List:
		return x.Items, st.charge(8 * len(x.Items))
	case *Dict:
		return x.keys(), st.charge(8 * x.Len())
	case undefined:
		return nil, nil
	case string:
		if err := st.charge(8 * len(x)); err != nil {
			return nil, err
		}
		var out []Value
		for _, r := range x {
			out = append(out, string(r))
		}
		return out, nil
	default:
		return nil, fmt.Errorf("'%s' object is not iterable", typeName(v))
	}
}
