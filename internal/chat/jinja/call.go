package jinja

import (
	"fmt"
	"maps"
	"slices"
)

// call holds the evaluated arguments of a call; names lists the named ones in order.
type call struct {
	args  []Value
	named map[string]Value
	names []string
}

// absent is the value of a parameter for which a call has no argument.
type absent struct{}

// bindArgs returns the arguments in the order of the parameters, absent where the
// call has none. An argument without a parameter is an error.
func (c call) bindArgs(params ...string) ([]Value, error) {
	if len(c.args) > len(params) {
		return nil, fmt.Errorf("takes at most %d arguments, got %d", len(params), len(c.args))
	}
	out := slices.Repeat([]Value{absent{}}, len(params))
	copy(out, c.args)
	for _, name := range c.names {
		i := slices.Index(params, name)
		switch {
		case i < 0:
			return nil, fmt.Errorf("unexpected keyword argument '%s'", name)
		case i < len(c.args):
			return nil, fmt.Errorf("multiple values for argument '%s'", name)
		}
		out[i] = c.named[name]
	}
	return out, nil
}

// bindRequired is bindArgs for a call that must give the first n arguments.
func (c call) bindRequired(n int, params ...string) ([]Value, error) {
	out, err := c.bindArgs(params...)
	if err != nil {
		return nil, err
	}
	for i, v := range out[:n] {
		if _, missing := v.(absent); missing {
			return nil, fmt.Errorf("argument '%s' is missing", params[i])
		}
	}
	return out, nil
}

// without returns the call without a named argument.
func (c call) without(name string) call {
	out := call{args: c.args, named: maps.Clone(c.named)}
	if out.named == nil {
		out.named = map[string]Value{}
	}
	delete(out.named, name)
	for _, n := range c.names {
		if n != name {
			out.names = append(out.names, n)
		}
	}
	return out
}

// argOr returns v, or def where v is absent.
func argOr(v, def Value) Value {
	if _, missing := v.(absent); missing {
		return def
	}
	return v
}

// asString and asInt check the type of an argument.
func asString(v Value) (string, error) {
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("must be str, not %s", typeName(v))
	}
	return s, nil
}

func asInt(v Value) (int64, error) {
	n, ok := toInt(v)
	if !ok {
		return 0, fmt.Errorf("'%s' object cannot be interpreted as an integer", typeName(v))
	}
	return n, nil
}

// loop is the variable "loop" inside a for.
type loop struct {
	items []Value
	index int
	last  *[]Value // the arguments of the last changed()
}

func (l *loop) attribute(name string) (Value, bool) {
	n, i := int64(len(l.items)), int64(l.index)
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return n - i, true
	case "revindex0":
		return n - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return i == n-1, true
	case "length":
		return n, true
	case "depth":
		return int64(1), true // only recursive loops go deeper
	case "depth0":
		return int64(0), true
	case "previtem":
		if i == 0 {
			return undefined{"there is no previous item"}, true
		}
		return l.items[i-1], true
	case "nextitem":
		if i == n-1 {
			return undefined{"there is no next item"}, true
		}
		return l.items[i+1], true
	case "cycle":
		return &function{"cycle", func(_ *state, c call) (Value, error) {
			if len(c.args) == 0 {
				return nil, fmt.Errorf("no items for cycling given")
			}
			return c.args[l.index%len(c.args)], nil
		}}, true
	case "changed":
		return &function{"changed", l.changed}, true
	}
	return nil, false
}

func (l *loop) changed(st *state, c call) (Value, error) {
	if l.last != nil {
		same, err := equal(st, &List{Items: *l.last}, &List{Items: c.args})
		if err != nil || same {
			return false, err
		}
	}
	l.last = &c.args
	return true, nil
}
