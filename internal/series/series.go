package series

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"sync"
	"time"
)

// Ratio is part by whole, 0 where there is no whole.
func Ratio(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// PerSecond is a rate, 0 where no time has passed.
func PerSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Values are numbers by the names of their series. In JSON a number that is not
// finite is the string NaN, +Inf or -Inf: JSON has no other way to write it, and a
// step whose numbers went wrong must still leave its record.
type Values map[string]float64

// MarshalJSON implements json.Marshaler.
func (v Values) MarshalJSON() ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}
	out := make(map[string]any, len(v))
	for name, x := range v {
		if out[name] = x; math.IsNaN(x) || math.IsInf(x, 0) {
			out[name] = strconv.FormatFloat(x, 'g', -1, 64)
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Values) UnmarshalJSON(data []byte) error {
	if out, ok := plainValues(data); ok {
		*v = out
		return nil
	}
	var numbers map[string]number
	if err := json.Unmarshal(data, &numbers); err != nil {
		return err
	}
	*v = make(Values, len(numbers))
	for name, x := range numbers {
		(*v)[name] = float64(x)
	}
	return nil
}

// plainValues reads an object as MarshalJSON writes it, which a page does for each of thousands of records. It
// leaves what has escapes, and anything else, to encoding/json.
func plainValues(data []byte) (Values, bool) {
	rest, ok := bytes.CutPrefix(bytes.TrimSpace(data), []byte("{"))
	if !ok || bytes.IndexByte(rest, '\\') >= 0 {
		return nil, false
	}
	out := make(Values, bytes.Count(rest, []byte(":")))
	for {
		if rest = bytes.TrimSpace(rest); len(rest) == 1 && rest[0] == '}' {
			return out, true
		}
		if len(out) > 0 {
			rest, _ = bytes.CutPrefix(rest, []byte(","))
		}
		name, text, after, ok := member(rest)
		if !ok {
			return nil, false
		}
		x, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return nil, false
		}
		key, known := names()[string(name)]
		if !known {
			key = string(name)
		}
		out[key], rest = x, after
	}
}

// member reads a name and a number, or a string in place of one.
func member(data []byte) (name, text, rest []byte, ok bool) {
	if name, rest, ok = quoted(bytes.TrimSpace(data)); !ok {
		return nil, nil, nil, false
	}
	if rest, ok = bytes.CutPrefix(bytes.TrimSpace(rest), []byte(":")); !ok {
		return nil, nil, nil, false
	}
	rest = bytes.TrimSpace(rest)
	if text, after, ok := quoted(rest); ok {
		return name, text, after, true
	}
	end := bytes.IndexAny(rest, ",} \t\r\n")
	if end < 0 {
		return nil, nil, nil, false
	}
	return name, rest[:end], rest[end:], true
}

// quoted reads a string without escapes.
func quoted(data []byte) (text, rest []byte, ok bool) {
	if data, ok = bytes.CutPrefix(data, []byte(`"`)); !ok {
		return nil, nil, false
	}
	return bytes.Cut(data, []byte(`"`))
}

// names holds the names of all series, so that records share the strings.
var names = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for _, m := range All() {
		out[m.Name] = m.Name
	}
	return out
})

// number is a float64 that may be written as a string.
type number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	text := string(data)
	if quoted, err := strconv.Unquote(text); err == nil {
		text = quoted
	}
	x, err := strconv.ParseFloat(text, 64)
	*n = number(x)
	return err
}
