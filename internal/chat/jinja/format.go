package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// formatPercent is the operator % of a Python string, for %s, %d, %r, %f and %%.
func formatPercent(st *state, format string, v Value) (Value, error) {
	args := []Value{v}
	if l, ok := v.(*List); ok && l.tuple {
		args = l.Items
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			break
		}
		b.WriteString(format[:i])
		format = format[i+1:]
		n := strings.IndexAny(format, "sdrfi%")
		if n < 0 {
			return nil, fmt.Errorf("incomplete or unsupported format")
		}
		spec, verb := format[:n], format[n]
		format = format[n+1:]
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		if len(args) == 0 {
			return nil, fmt.Errorf("not enough arguments for format string")
		}
		text, err := formatOne(spec, verb, args[0])
		if err != nil {
			return nil, err
		}
		args = args[1:]
		b.WriteString(text)
		if err := st.charge(len(text)); err != nil {
			return nil, err
		}
	}
	if _, mapping := v.(*Dict); len(args) > 0 && !mapping {
		return nil, fmt.Errorf("not all arguments converted during string formatting")
	}
	b.WriteString(format)
	return b.String(), st.charge(b.Len())
}

func formatOne(spec string, verb byte, v Value) (string, error) {
	if strings.Trim(spec, "0123456789.-+ ") != "" || len(spec) > 6 {
		return "", fmt.Errorf("format %%%s%c is not supported", spec, verb)
	}
	width, _, _ := strings.Cut(strings.TrimLeft(spec, "-+ 0"), ".")
	if n, err := strconv.Atoi(width); width != "" && (err != nil || n > 1000) {
		return "", fmt.Errorf("format width %s is over 1000", width)
	}
	switch verb {
	case 's':
		return fmt.Sprintf("%"+spec+"s", str(v)), nil
	case 'r':
		return fmt.Sprintf("%"+spec+"s", repr(v)), nil
	}
	if !isNumber(v) {
		return "", fmt.Errorf("%%%c format: a real number is required, not %s", verb, typeName(v))
	}
	if verb == 'f' {
		return fmt.Sprintf("%"+spec+"f", toFloat(v)), nil
	}
	n, ok := toInt(v)
	if !ok {
		n = int64(toFloat(v))
	}
	return fmt.Sprintf("%"+spec+"d", n), nil
}

// formatBraces is str.format for {}, {0} and {name}, without format
// specifications, attributes or items.
func formatBraces(st *state, s string, c call) (Value, error) {
	var parts []string
	next := 0
	for {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			return join(st, append(parts, s), "")
		}
		parts = append(parts, s[:i])
		if len(s) > i+1 && s[i+1] == s[i] {
			parts, s = append(parts, s[i:i+1]), s[i+2:]
			continue
		}
		field, rest, found := strings.Cut(s[i+1:], "}")
		if s[i] == '}' || !found {
			return nil, fmt.Errorf("single brace in format string")
		}
		if field == "" {
			field = strconv.Itoa(next)
			next++
		}
		v, ok := c.named[field]
		if n, err := strconv.Atoi(field); err == nil && n >= 0 && n < len(c.args) {
			v, ok = c.args[n], true
		}
		if !ok {
			return nil, fmt.Errorf("format field {%s} has no argument or is not supported", field)
		}
		parts, s = append(parts, str(v)), rest
		if err := st.charge(len(parts[len(parts)-1])); err != nil {
			return nil, err
		}
	}
}

// strftime formats a time as C does in the C locale.
func strftime(t time.Time, format string) (string, error) {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'b': "Jan", 'h': "Jan", 'B': "January", 'a': "Mon",
		'A': "Monday", 'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'F': "2006-01-02",
		'T': "15:04:05", 'D': "01/02/06", 'R': "15:04", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		unpadded := i < len(format) && format[i] == '-'
		if unpadded {
			i++
		}
		if i == len(format) {
			return "", fmt.Errorf("format ends within a directive")
		}
		layout, known := layouts[format[i]]
		switch {
		case known && unpadded:
			b.WriteString(strings.TrimLeft(t.Format(layout), "0 "))
		case known:
			b.WriteString(t.Format(layout))
		case format[i] == '%':
			b.WriteByte('%')
		default:
			return "", fmt.Errorf("unsupported directive %%%c", format[i])
		}
	}
	return b.String(), nil
}
