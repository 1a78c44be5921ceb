package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// textFilters are the filters that make text and numbers.
func textFilters() map[string]filterFunc {
	method := func(name string) filterFunc {
		return func(st *state, v Value, c call) (Value, error) { return stringMethod(str(v), name)(st, c) }
	}
	out := map[string]filterFunc{
		"tojson": filterToJSON,
		"string": func(st *state, v Value, _ call) (Value, error) { s := str(v); return s, st.charge(len(s)) },
		"safe":   func(_ *state, v Value, _ call) (Value, error) { return v, nil },
		"trim": func(st *state, v Value, c call) (Value, error) {
			return stringMethod(str(v), "strip")(st, c)
		},
		"replace": func(st *state, v Value, c call) (Value, error) { return replace(st, str(v), c) },
		"default": filterDefault,
		"d":       filterDefault,
		"length":  filterLength,
		"count":   filterLength,
		"int":     filterInt,
		"float":   filterFloat,
		"abs":     filterAbs,
		"round":   filterRound,
		"indent":  filterIndent,
		"center":  method("center"),
		"format": func(st *state, v Value, c call) (Value, error) {
			return formatPercent(st, str(v), &List{c.args, true})
		},
		"wordcount": func(st *state, v Value, _ call) (Value, error) {
			s := str(v)
			return int64(len(strings.Fields(s))), st.charge(len(s))
		},
	}
	for _, name := range []string{"lower", "upper", "capitalize", "title"} {
		out[name] = method(name)
	}
	return out
}

func filterDefault(_ *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("default_value", "boolean")
	if err != nil {
		return nil, err
	}
	if _, missing := v.(undefined); missing || truth(argOr(a[1], false)) && !truth(v) {
		return argOr(a[0], ""), nil
	}
	return v, nil
}

func filterLength(st *state, v Value, _ call) (Value, error) {
	n, ok := lengthOf(v)
	if !ok {
		return nil, fmt.Errorf("object of type '%s' has no len()", typeName(v))
	}
	return int64(n), st.charge(0)
}

func filterInt(_ *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("default", "base")
	if err != nil {
		return nil, err
	}
	switch x := v.(type) {
	case bool, int64:
		n, _ := toInt(x)
		return n, nil
	case float64:
		if math.Abs(x) < 1<<62 {
			return int64(x), nil
		}
	case string:
		s := strings.TrimFunc(x, isSpace)
		base, err := asInt(argOr(a[1], int64(10)))
		if err != nil {
			return nil, err
		}
		if n, err := strconv.ParseInt(s, int(max(min(base, 36), 0)), 64); err == nil {
			return n, nil
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(f) < 1<<62 {
			return int64(f), nil
		}
	}
	return argOr(a[0], int64(0)), nil
}

func filterFloat(_ *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("default")
	if err != nil {
		return nil, err
	}
	if isNumber(v) {
		return toFloat(v), nil
	}
	if s, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(s, isSpace), 64); err == nil {
			return f, nil
		}
	}
	return argOr(a[0], 0.0), nil
}

func filterAbs(st *state, v Value, _ call) (Value, error) {
	n, err := compare(st, v, int64(0))
	if err != nil || n >= 0 {
		return v, err
	}
	return signExpr{constExpr{v}, true}.eval(st)
}

func filterRound(_ *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("precision", "method")
	if err != nil {
		return nil, err
	}
	places, err := asInt(argOr(a[0], int64(0)))
	if err != nil {
		return nil, err
	}
	if !isNumber(v) || places < 0 || places > 15 {
		return nil, fmt.Errorf("needs a number and a precision of 0 to 15")
	}
	switch scale := math.Pow10(int(places)); argOr(a[1], "common") {
	case "common":
		f, _ := strconv.ParseFloat(strconv.FormatFloat(toFloat(v), 'f', int(places), 64), 64) // strconv wrote it
		return f, nil
	case "ceil":
		return math.Ceil(toFloat(v)*scale) / scale, nil
	case "floor":
		return math.Floor(toFloat(v)*scale) / scale, nil
	default:
		return nil, fmt.Errorf("method must be common, ceil or floor")
	}
}

func filterIndent(st *state, v Value, c call) (Value, error) {
	a, err := c.bindArgs("width", "first", "blank")
	if err != nil {
		return nil, err
	}
	prefix, isText := argOr(a[0], int64(4)).(string)
	if !isText {
		width, err := asInt(argOr(a[0], int64(4)))
		if err != nil || width > 1000 {
			return nil, fmt.Errorf("width must be a string or an integer of at most 1000")
		}
		prefix = strings.Repeat(" ", int(max(width, 0)))
	}
	lines := strings.Split(str(v), "\n")
	if err := st.charge(32 * len(lines)); err != nil {
		return nil, err
	}
	if len(prefix) > 0 && len(lines) > MaxOutput/len(prefix) {
		return nil, fmt.Errorf("%w of %d bytes of output", ErrBudget, MaxOutput)
	}
	for i := range lines {
		if (i > 0 || truth(argOr(a[1], false))) && (lines[i] != "" || truth(argOr(a[2], false))) {
			lines[i] = prefix + lines[i]
		}
	}
	return join(st, lines, "\n")
}
