package jinja

import (
	"errors"
	"fmt"
)

// expr is an expression of a template.
type expr interface {
	eval(st *state) (Value, error)
}

type (
	constExpr struct{ v Value }
	nameExpr  string
	captured  struct{} // the output of a block to which a filter is applied
	listExpr  struct {
		items []expr
		tuple bool
	}
	dictExpr struct{ keys, values []expr }
	attrExpr struct {
		x    expr
		name string
	}
	itemExpr  struct{ x, key expr }
	sliceExpr struct {
		x      expr
		bounds [3]expr
	}
	callExpr struct {
		f    expr
		args args
	}
	filterExpr struct {
		x    expr
		name string
		args args
	}
	testExpr struct {
		x    expr
		name string
		args args
	}
	condExpr  struct{ then, test, orElse expr }
	logicExpr struct {
		x, y expr
		or   bool
	}
	notExpr  struct{ x expr }
	signExpr struct {
		x     expr
		minus bool
	}
	binaryExpr struct {
		op   string
		x, y expr
	}
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
)

// capturedName cannot be written in a template.
const capturedName = "{}"

// args holds the arguments of a call; names belong to the last values.
type args struct {
	values []expr
	names  []string
}

func (st *state) eval(x expr) (Value, error) {
	if err := st.charge(0); err != nil {
		return nil, err
	}
	return x.eval(st)
}

func (st *state) evalAll(xs []expr) ([]Value, error) {
	out := make([]Value, len(xs))
	for i, x := range xs {
		var err error
		if out[i], err = st.eval(x); err != nil {
			return nil, err
		}
	}
	return out, st.charge(16 * len(xs))
}

func (x constExpr) eval(*state) (Value, error) { return x.v, nil }

func (x nameExpr) eval(st *state) (Value, error) {
	if v, ok := st.scope.get(string(x)); ok {
		return v, nil
	}
	if f, ok := st.lib.globals[string(x)]; ok {
		return f, nil
	}
	return undefined{fmt.Sprintf("'%s' is undefined", string(x))}, nil
}

func (captured) eval(st *state) (Value, error) { return nameExpr(capturedName).eval(st) }

func (x listExpr) eval(st *state) (Value, error) {
	items, err := st.evalAll(x.items)
	return &List{items, x.tuple}, err
}

func (x dictExpr) eval(st *state) (Value, error) {
	keys, err := st.evalAll(x.keys)
	if err != nil {
		return nil, err
	}
	values, err := st.evalAll(x.values)
	if err != nil {
		return nil, err
	}
	d := NewDict()
	for i, k := range keys {
		if !d.setKey(k, values[i]) {
			return nil, fmt.Errorf("unhashable type: '%s'", typeName(k))
		}
	}
	return d, nil
}

func (x attrExpr) eval(st *state) (Value, error) {
	v, err := st.eval(x.x)
	if err != nil {
		return nil, err
	}
	return getAttr(v, x.name)
}

func (x itemExpr) eval(st *state) (Value, error) {
	v, err := st.eval(x.x)
	if err != nil {
		return nil, err
	}
	key, err := st.eval(x.key)
	if err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		if err := st.charge(len(s)); err != nil {
			return nil, err
		}
	}
	return getItem(v, key)
}

func (x sliceExpr) eval(st *state) (Value, error) {
	v, err := st.eval(x.x)
	if err != nil {
		return nil, err
	}
	var bounds [3]Value
	for i, b := range x.bounds {
		if b == nil {
			continue
		}
		if bounds[i], err = st.eval(b); err != nil {
			return nil, err
		}
	}
	return slice(st, v, bounds)
}

// call evaluates the arguments of a call.
func (a args) call(st *state) (call, error) {
	values, err := st.evalAll(a.values)
	if err != nil {
		return call{}, err
	}
	n := len(values) - len(a.names)
	c := call{args: values[:n]}
	for i, name := range a.names {
		if c.named == nil {
			c.named = map[string]Value{}
		}
		if _, twice := c.named[name]; twice {
			return call{}, fmt.Errorf("keyword argument repeated: %s", name)
		}
		c.named[name] = values[n+i]
		c.names = append(c.names, name)
	}
	return c, nil
}

// applied evaluates what a call, filter or test is applied to, and then its arguments.
func (st *state) applied(to expr, a args) (Value, call, error) {
	v, err := st.eval(to)
	if err != nil {
		return nil, call{}, err
	}
	c, err := a.call(st)
	return v, c, err
}

func (x callExpr) eval(st *state) (Value, error) {
	f, c, err := st.applied(x.f, x.args)
	if err != nil {
		return nil, err
	}
	return invoke(st, f, c)
}

func invoke(st *state, f Value, c call) (Value, error) {
	switch f := f.(type) {
	case *function:
		v, err := f.call(st, c)
		if own := (*Exception)(nil); err != nil && !errors.As(err, &own) {
			err = fmt.Errorf("%s: %w", f.name, err)
		}
		return v, err
	case undefined:
		return nil, f.err()
	default:
		return nil, fmt.Errorf("'%s' object is not callable", typeName(f))
	}
}

func (x filterExpr) eval(st *state) (Value, error) {
	f, ok := st.lib.filters[x.name]
	if !ok {
		return nil, fmt.Errorf("no filter named '%s'", x.name)
	}
	v, c, err := st.applied(x.x, x.args)
	if err != nil {
		return nil, err
	}
	v, err = f(st, v, c)
	if err != nil {
		return nil, fmt.Errorf("filter %s: %w", x.name, err)
	}
	return v, nil
}

func (x testExpr) eval(st *state) (Value, error) {
	v, c, err := st.applied(x.x, x.args)
	if err != nil {
		return nil, err
	}
	return st.test(x.name, v, c)
}

func (x condExpr) eval(st *state) (Value, error) {
	test, err := st.eval(x.test)
	if err != nil {
		return nil, err
	}
	switch {
	case truth(test):
		return st.eval(x.then)
	case x.orElse != nil:
		return st.eval(x.orElse)
	default:
		return undefined{"the inline if-expression evaluated to false and no else section was defined"}, nil
	}
}

func (x logicExpr) eval(st *state) (Value, error) {
	v, err := st.eval(x.x)
	if err != nil || truth(v) == x.or {
		return v, err
	}
	return st.eval(x.y)
}

func (x notExpr) eval(st *state) (Value, error) {
	v, err := st.eval(x.x)
	return !truth(v), err
}

func (x signExpr) eval(st *state) (Value, error) {
	v, err := st.eval(x.x)
	if err != nil {
		return nil, err
	}
	if u, ok := v.(undefined); ok {
		return nil, u.err()
	}
	if !isNumber(v) {
		return nil, fmt.Errorf("bad operand type for a sign: '%s'", typeName(v))
	}
	if f, ok := v.(float64); ok && x.minus {
		return -f, nil
	}
	op := "+"
	if x.minus {
		op = "-"
	}
	return arith(st, op, int64(0), v)
}

func (x binaryExpr) eval(st *state) (Value, error) {
	a, err := st.eval(x.x)
	if err != nil {
		return nil, err
	}
	b, err := st.eval(x.y)
	if err != nil {
		return nil, err
	}
	return arith(st, x.op, a, b)
}

// eval evaluates a chain: a < b < c means a < b and b < c.
func (x compareExpr) eval(st *state) (Value, error) {
	left, err := st.eval(x.first)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		right, err := st.eval(x.rest[i])
		if err != nil {
			return nil, err
		}
		ok, err := compareHolds(st, op, left, right)
		if err != nil || !ok {
			return false, err
		}
		left = right
	}
	return true, nil
}

func compareHolds(st *state, op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return equal(st, a, b)
	case "!=":
		same, err := equal(st, a, b)
		return !same, err
	case "in":
		return contains(st, b, a)
	case "not in":
		in, err := contains(st, b, a)
		return !in, err
	}
	n, err := compare(st, a, b)
	switch op {
	case "<":
		return n < 0, err
	case "<=":
		return n <= 0, err
	case ">":
		return n > 0, err
	default:
		return n >= 0, err
	}
}
