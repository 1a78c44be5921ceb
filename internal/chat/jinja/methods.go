package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// attribute returns an attribute of a Python object. Methods that change the object
// do not exist, as in Jinja2's immutable sandbox.
func attribute(v Value, name string) (Value, bool) {
	if strings.HasPrefix(name, "_") {
		return nil, false
	}
	switch x := v.(type) {
	case string:
		if f := stringMethod(x, name); f != nil {
			return &function{name, f}, true
		}
	case *Dict:
		if f := dictMethod(x, name); f != nil {
			return &function{name, f}, true
		}
	case *List:
		if f := listMethod(x, name); f != nil {
			return &function{name, f}, true
		}
	case *namespace:
		return x.lookUp(name)
	case *loop:
		return x.attribute(name)
	case *function:
		if name == "name" {
			return x.name, true
		}
	}
	return nil, false
}

type method = func(st *state, c call) (Value, error)

func dictMethod(d *Dict, name string) method {
	list := func(get func(e Entry) Value) method {
		return func(st *state, c call) (Value, error) {
			if _, err := c.bindArgs(); err != nil {
				return nil, err
			}
			out := &List{}
			for _, e := range d.entries {
				out.Items = append(out.Items, get(e))
			}
			return out, st.charge(32 * len(out.Items))
		}
	}
	switch name {
	case "items":
		return list(func(e Entry) Value { return &List{[]Value{e.Key, e.Value}, true} })
	case "keys":
		return list(func(e Entry) Value { return e.Key })
	case "values":
		return list(func(e Entry) Value { return e.Value })
	case "copy":
		return func(st *state, _ call) (Value, error) { return d.Clone(), st.charge(64 * d.Len()) }
	case "get":
		return func(_ *state, c call) (Value, error) {
			a, err := c.bindRequired(1, "key", "default")
			if err != nil {
				return nil, err
			}
			if v, ok := d.lookUp(a[0]); ok {
				return v, nil
			}
			return argOr(a[1], nil), nil
		}
	}
	return nil
}

func listMethod(l *List, name string) method {
	find := func(st *state, c call) (first int, n int64, err error) {
		a, err := c.bindRequired(1, "value")
		if err != nil {
			return -1, 0, err
		}
		first = -1
		for i, v := range l.Items {
			same, err := equal(st, v, a[0])
			if err != nil {
				return -1, 0, err
			}
			if same {
				if n++; first < 0 {
					first = i
				}
			}
		}
		return first, n, nil
	}
	switch name {
	case "index":
		return func(st *state, c call) (Value, error) {
			i, _, err := find(st, c)
			if err == nil && i < 0 {
				err = fmt.Errorf("value is not in list")
			}
			return int64(i), err
		}
	case "count":
		return func(st *state, c call) (Value, error) {
			_, n, err := find(st, c)
			return n, err
		}
	case "copy":
		return func(st *state, _ call) (Value, error) {
			return &List{append([]Value{}, l.Items...), l.tuple}, st.charge(16 * len(l.Items))
		}
	}
	return nil
}

// stringMethod returns the method of Python's str, nil when there is none.
func stringMethod(s, name string) method {
	if f := transform(name); f != nil {
		return func(st *state, c call) (Value, error) {
			_, err := c.bindArgs()
			return f(s), firstError(err, st.charge(len(s)))
		}
	}
	if f := predicate(name); f != nil {
		return func(st *state, c call) (Value, error) {
			_, err := c.bindArgs()
			return f(s), firstError(err, st.charge(len(s)))
		}
	}
	switch name {
	case "strip", "lstrip", "rstrip":
		return func(st *state, c call) (Value, error) { return strip(st, s, name, c) }
	case "split", "rsplit":
		return func(st *state, c call) (Value, error) { return split(st, s, name == "rsplit", c) }
	case "startswith", "endswith":
		return func(st *state, c call) (Value, error) { return affix(st, s, name == "startswith", c) }
	case "removeprefix", "removesuffix", "partition", "rpartition":
		return func(st *state, c call) (Value, error) { return withString(st, s, name, c) }
	case "find", "rfind", "index", "rindex", "count":
		return func(st *state, c call) (Value, error) { return search(st, s, name, c) }
	case "replace":
		return func(st *state, c call) (Value, error) { return replace(st, s, c) }
	case "splitlines":
		return func(st *state, c call) (Value, error) { return splitLines(st, s, c) }
	case "join":
		return func(st *state, c call) (Value, error) { return joinMethod(st, s, c) }
	case "ljust", "rjust", "center", "zfill":
		return func(st *state, c call) (Value, error) { return pad(st, s, name, c) }
	case "format":
		return func(st *state, c call) (Value, error) { return formatBraces(st, s, c) }
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func transform(name string) func(string) string {
	switch name {
	case "lower", "casefold":
		return strings.ToLower
	case "upper":
		return strings.ToUpper
	case "capitalize":
		return capitalize
	case "title":
		return title
	case "swapcase":
		return func(s string) string {
			return strings.Map(func(r rune) rune {
				if unicode.IsUpper(r) {
					return unicode.ToLower(r)
				}
				return unicode.ToUpper(r)
			}, s)
		}
	}
	return nil
}

func capitalize(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToTitle(r)) + strings.ToLower(s[n:])
}

// title starts each run of letters with a capital, as str.title does.
func title(s string) string {
	inside := false
	return strings.Map(func(r rune) rune {
		was := inside
		inside = unicode.IsLetter(r)
		if was {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

func predicate(name string) func(string) bool {
	all := func(f func(rune) bool) func(string) bool {
		return func(s string) bool {
			return s != "" && strings.IndexFunc(s, func(r rune) bool { return !f(r) }) < 0
		}
	}
	switch name {
	case "isspace":
		return all(isSpace)
	case "isdigit", "isdecimal":
		return all(unicode.IsDigit)
	case "isnumeric":
		return all(unicode.IsNumber)
	case "isalpha":
		return all(unicode.IsLetter)
	case "isalnum":
		return all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })
	case "isascii":
		return func(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r >= 0x80 }) < 0 }
	case "islower":
		return func(s string) bool { return isCased(s, unicode.IsLower, unicode.IsUpper) }
	case "isupper":
		return func(s string) bool { return isCased(s, unicode.IsUpper, unicode.IsLower) }
	}
	return nil
}
