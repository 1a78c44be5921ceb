package jinja

import (
	"fmt"
	"strings"
	"unicode"
)

type filterFunc func(st *state, v Value, c call) (Value, error)

// library holds the functions, filters and tests that templates may call.
type library struct {
	filters map[string]filterFunc
	tests   map[string]filterFunc
	globals map[string]Value
}

func newLibrary() *library {
	l := &library{filters: textFilters(), tests: tests(), globals: map[string]Value{}}
	for name, f := range listFilters() {
		l.filters[name] = f
	}
	for _, f := range []*function{
		{"range", globalRange}, {"dict", globalDict}, {"namespace", globalNamespace},
		{"raise_exception", globalRaise}, {"strftime_now", globalStrftime},
	} {
		l.globals[f.name] = f
	}
	return l
}

func globalRange(st *state, c call) (Value, error) {
	a, err := c.bindRequired(1, "start", "stop", "step")
	if err != nil {
		return nil, err
	}
	var n [3]int64
	for i, v := range []Value{a[0], argOr(a[1], int64(0)), argOr(a[2], int64(1))} {
		if n[i], err = asInt(v); err != nil {
			return nil, err
		}
	}
	start, stop, step := n[0], n[1], n[2]
	if _, one := a[1].(absent); one {
		start, stop = 0, n[0]
	}
	if step == 0 {
		return nil, fmt.Errorf("step must not be zero")
	}
	out := &List{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out.Items) == maxRange {
			return nil, fmt.Errorf("%w: range of more than %d items", ErrBudget, maxRange)
		}
		out.Items = append(out.Items, i)
		if next := i + step; (step > 0) != (next > i) {
			break // past the end of int64
		}
	}
	return out, st.charge(16 * len(out.Items))
}

func globalDict(_ *state, c call) (Value, error) {
	d := NewDict()
	if len(c.args) == 1 {
		from, ok := c.args[0].(*Dict)
		if !ok {
			return nil, fmt.Errorf("argument must be a dict")
		}
		d = from.Clone()
	} else if len(c.args) > 1 {
		return nil, fmt.Errorf("takes at most 1 argument")
	}
	for _, name := range c.names {
		d.Set(name, c.named[name])
	}
	return d, nil
}

func globalNamespace(st *state, c call) (Value, error) {
	v, err := globalDict(st, c)
	if err != nil {
		return nil, err
	}
	d := v.(*Dict)
	for _, e := range d.entries {
		if name, ok := e.Key.(string); ok && strings.HasPrefix(name, "_") {
			return nil, fmt.Errorf("cannot store attribute '%s' on a namespace", name)
		}
	}
	return &namespace{d}, nil
}

func globalRaise(_ *state, c call) (Value, error) {
	a, err := c.bindRequired(1, "message")
	if err != nil {
		return nil, err
	}
	return nil, &Exception{str(a[0])}
}

func globalStrftime(st *state, c call) (Value, error) {
	a, err := c.bindRequired(1, "format")
	if err != nil {
		return nil, err
	}
	format, err := asString(a[0])
	if err != nil {
		return nil, err
	}
	if st.now.IsZero() {
		return nil, fmt.Errorf("the template asks for the date; set one, for a run must not depend on the day")
	}
	return strftime(st.now, format)
}

func (st *state) test(name string, v Value, c call) (Value, error) {
	f, ok := st.lib.tests[name]
	if !ok {
		return nil, fmt.Errorf("no test named '%s'", name)
	}
	out, err := f(st, v, c)
	if err != nil {
		return nil, fmt.Errorf("test %s: %w", name, err)
	}
	return truth(out), nil
}

// tests returns the tests of Jinja2 that need no environment.
func tests() map[string]filterFunc {
	is := func(f func(v Value) bool) filterFunc {
		return func(_ *state, v Value, c call) (Value, error) {
			_, err := c.bindArgs()
			return f(v), err
		}
	}
	out := map[string]filterFunc{
		"defined":   is(func(v Value) bool { _, u := v.(undefined); return !u }),
		"undefined": is(func(v Value) bool { _, u := v.(undefined); return u }),
		"none":      is(func(v Value) bool { return v == nil }),
		"boolean":   is(func(v Value) bool { _, ok := v.(bool); return ok }),
		"true":      is(func(v Value) bool { return v == true }),
		"false":     is(func(v Value) bool { return v == false }),
		"integer":   is(func(v Value) bool { return typeName(v) == "int" }),
		"float":     is(func(v Value) bool { _, ok := v.(float64); return ok }),
		"number":    is(isNumber),
		"string":    is(func(v Value) bool { _, ok := v.(string); return ok }),
		"mapping":   is(func(v Value) bool { _, ok := v.(*Dict); return ok }),
		"sequence":  is(func(v Value) bool { _, ok := lengthOf(v); return ok }),
		"iterable":  is(func(v Value) bool { _, ok := lengthOf(v); return ok }),
		"callable":  is(func(v Value) bool { _, ok := v.(*function); return ok }),
		"lower":     is(func(v Value) bool { return isCased(str(v), unicode.IsLower, unicode.IsUpper) }),
		"upper":     is(func(v Value) bool { return isCased(str(v), unicode.IsUpper, unicode.IsLower) }),
		"odd":       modTest("odd"),
		"even":      modTest("even"),
		"in": func(st *state, v Value, c call) (Value, error) {
			a, err := c.bindRequired(1, "seq")
			if err != nil {
				return nil, err
			}
			return contains(st, a[0], v)
		},
		"divisibleby": func(_ *state, v Value, c call) (Value, error) {
			a, err := c.bindRequired(1, "num")
			if err != nil {
				return nil, err
			}
			rest, err := arithNumbers("%", v, a[0])
			return rest == int64(0) || rest == 0.0, err
		},
		"sameas": func(_ *state, v Value, c call) (Value, error) {
			a, err := c.bindRequired(1, "other")
			return err == nil && identical(v, a[0]), err
		},
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, "<": {"lt", "lessthan"}, "<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"},
	} {
		f := compareTest(op)
		out[op] = f
		for _, name := range names {
			out[name] = f
		}
	}
	out["filter"] = nameTest(func(l *library, name string) bool { return l.filters[name] != nil })
	out["test"] = nameTest(func(l *library, name string) bool { return l.tests[name] != nil })
	return out
}

// identical is Python's `is` as far as CPython defines it. Equal numbers or strings
// need not be one object.
func identical(a, b Value) bool {
	switch x := a.(type) {
	case nil, bool, *List, *Dict, *namespace, *loop, *function:
		return a == b
	case int64:
		return a == b && x >= -5 && x <= 256
	default:
		return false
	}
}

func modTest(name string) filterFunc {
	want := map[string]int64{"even": 0, "odd": 1}[name]
	return func(_ *state, v Value, _ call) (Value, error) {
		n, err := asInt(v)
		return n&1 == want, err
	}
}

func compareTest(op string) filterFunc {
	return func(st *state, v Value, c call) (Value, error) {
		a, err := c.bindRequired(1, "other")
		if err != nil {
			return nil, err
		}
		return compareHolds(st, op, v, a[0])
	}
}

func nameTest(known func(*library, string) bool) filterFunc {
	return func(st *state, v Value, _ call) (Value, error) {
		name, ok := v.(string)
		return ok && known(st.lib, name), nil
	}
}

// isCased is Python's islower and isupper: there is a character of the wanted case
// and none of the other.
func isCased(s string, want, other func(rune) bool) bool {
	return strings.IndexFunc(s, want) >= 0 && strings.IndexFunc(s, other) < 0
}
