package jinja

import (
	"errors"
	"fmt"
)

// stmt is a statement of a template.
type stmt interface {
	exec(st *state) (jump, error)
}

// jump tells the statements around a statement how to continue after it.
type jump int

const (
	proceed jump = iota
	breakLoop
	continueLoop
)

type (
	text      string
	printStmt struct {
		x    expr
		line int
	}
	setStmt struct {
		target target
		x      expr
		line   int
	}
	setBlock struct {
		target target
		x      expr // over captured
		body   []stmt
		line   int
	}
	ifArm struct {
		test expr
		body []stmt
	}
	ifStmt struct {
		arms   []ifArm
		orElse []stmt
	}
	forStmt struct {
		target     target
		over, test expr
		body       []stmt
		orElse     []stmt
		line       int
	}
	param struct {
		name string
		def  expr
	}
	macroStmt struct {
		name   string
		params []param
		body   []stmt
	}
	callStmt struct {
		call   callExpr
		params []param
		body   []stmt
		line   int
	}
	filterStmt struct {
		x    expr // over captured
		body []stmt
		line int
	}
	withStmt struct {
		targets []string
		values  []expr
		body    []stmt
		line    int
	}
	generationStmt struct{ body []stmt }
)

// target is what an assignment sets: a name, the names of a tuple, or an attribute
// of a namespace.
type target struct {
	names []string
	attr  string
	tuple bool
}

func (st *state) exec(body []stmt) (jump, error) {
	for _, s := range body {
		if err := st.charge(0); err != nil {
			return proceed, err
		}
		if j, err := s.exec(st); j != proceed || err != nil {
			return j, err
		}
	}
	return proceed, nil
}

// inScope runs body in a scope below the current one.
func (st *state) inScope(names map[string]Value, body []stmt) (jump, error) {
	saved := st.scope
	st.scope = &scope{vars: names, parent: saved}
	j, err := st.exec(body)
	st.scope = saved
	return j, err
}

func atLine(line int, err error) error {
	if err == nil {
		return nil
	}
	if placed := (*lineError)(nil); errors.As(err, &placed) {
		return err
	}
	return &lineError{line, err}
}

// lineError adds the line to an error. The innermost line counts.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

func (j jump) exec(*state) (jump, error) { return j, nil }

func (t text) exec(st *state) (jump, error) { return proceed, st.write(string(t)) }

func (s printStmt) exec(st *state) (jump, error) {
	v, err := st.eval(s.x)
	if err == nil {
		err = st.write(str(v))
	}
	return proceed, atLine(s.line, err)
}

func (s setStmt) exec(st *state) (jump, error) {
	v, err := st.eval(s.x)
	if err == nil {
		err = s.target.assign(st, st.scope.vars, v)
	}
	return proceed, atLine(s.line, err)
}

func (s setBlock) exec(st *state) (jump, error) {
	v, err := st.filtered(s.x, s.body)
	if err == nil {
		err = s.target.assign(st, st.scope.vars, v)
	}
	return proceed, atLine(s.line, err)
}

// filtered evaluates x with the output of body as its input.
func (st *state) filtered(x expr, body []stmt) (Value, error) {
	text, err := st.capture(body, st.scope, map[string]Value{})
	if err != nil {
		return nil, err
	}
	saved := st.scope
	st.scope = &scope{vars: map[string]Value{capturedName: text}, parent: saved}
	v, err := st.eval(x)
	st.scope = saved
	return v, err
}

func (t target) assign(st *state, vars map[string]Value, v Value) error {
	switch {
	case t.attr != "":
		ns, _ := st.scope.get(t.names[0])
		n, ok := ns.(*namespace)
		if !ok {
			return fmt.Errorf("cannot assign attribute on non-namespace object")
		}
		if t.attr[0] == '_' {
			return fmt.Errorf("cannot store attribute '%s' on a namespace", t.attr)
		}
		n.Set(t.attr, v)
		return nil
	case !t.tuple:
		vars[t.names[0]] = v
		return nil
	}
	items, err := iterate(st, v)
	if err != nil {
		return err
	}
	if len(items) != len(t.names) {
		return fmt.Errorf("%d values to unpack into %d names", len(items), len(t.names))
	}
	for i, name := range t.names {
		vars[name] = items[i]
	}
	return nil
}

func (s ifStmt) exec(st *state) (jump, error) {
	for _, arm := range s.arms {
		v, err := st.eval(arm.test)
		if err != nil {
			return proceed, err
		}
		if truth(v) {
			return st.exec(arm.body)
		}
	}
	return st.exec(s.orElse)
}

func (s forStmt) exec(st *state) (jump, error) {
	items, err := s.items(st)
	if err != nil {
		return proceed, atLine(s.line, err)
	}
	if len(items) == 0 {
		return st.inScope(map[string]Value{}, s.orElse)
	}
	l := &loop{items: items}
	for i, item := range items {
		if err := st.charge(64); err != nil { // the scope of an iteration
			return proceed, err
		}
		l.index = i
		vars := map[string]Value{"loop": l}
		if err := s.target.assign(st, vars, item); err != nil {
			return proceed, atLine(s.line, err)
		}
		j, err := st.inScope(vars, s.body)
		if err != nil {
			return proceed, err
		}
		if j == breakLoop {
			break
		}
	}
	return proceed, nil
}

// items returns the items of the loop that pass its test.
func (s forStmt) items(st *state) ([]Value, error) {
	v, err := st.eval(s.over)
	if err != nil {
		return nil, err
	}
	items, err := iterate(st, v)
	if err != nil || s.test == nil {
		return items, err
	}
	var kept []Value
	saved := st.scope
	defer func() { st.scope = saved }()
	for _, item := range items {
		st.scope = &scope{vars: map[string]Value{}, parent: saved}
		if err := s.target.assign(st, st.scope.vars, item); err != nil {
			return nil, err
		}
		v, err := st.eval(s.test)
		if err != nil {
			return nil, err
		}
		if truth(v) {
			kept = append(kept, item)
		}
	}
	return kept, nil
}

func (s macroStmt) exec(st *state) (jump, error) {
	st.scope.vars[s.name] = closure(st.scope, s.name, s.params, s.body)
	return proceed, nil
}

// closure returns a macro. Its body runs in a scope below that of its definition.
func closure(defined *scope, name string, params []param, body []stmt) *function {
	return &function{name, func(st *state, c call) (Value, error) {
		vars := map[string]Value{}
		if caller, ok := c.named["caller"]; ok {
			vars["caller"] = caller
			c = c.without("caller")
		}
		names := make([]string, len(params))
		for i, p := range params {
			names[i] = p.name
		}
		values, err := c.bindArgs(names...)
		if err != nil {
			return nil, err
		}
		inner := &scope{vars: vars, parent: defined}
		for i, p := range params {
			switch v := values[i].(type) {
			case absent:
				vars[p.name] = undefined{fmt.Sprintf("parameter '%s' was not provided", p.name)}
				if p.def == nil {
					continue
				}
				if vars[p.name], err = st.evalIn(inner, p.def); err != nil {
					return nil, err
				}
			default:
				vars[p.name] = v
			}
		}
		return st.capture(body, defined, vars)
	}}
}

func (st *state) evalIn(s *scope, x expr) (Value, error) {
	saved := st.scope
	st.scope = s
	v, err := st.eval(x)
	st.scope = saved
	return v, err
}

func (s callStmt) exec(st *state) (jump, error) {
	f, err := st.eval(s.call.f)
	if err != nil {
		return proceed, atLine(s.line, err)
	}
	c, err := s.call.args.call(st)
	if err != nil {
		return proceed, atLine(s.line, err)
	}
	c = c.without("caller")
	c.named["caller"] = closure(st.scope, "caller", s.params, s.body)
	c.names = append(c.names, "caller")
	v, err := invoke(st, f, c)
	if err == nil {
		err = st.write(str(v))
	}
	return proceed, atLine(s.line, err)
}

func (s filterStmt) exec(st *state) (jump, error) {
	v, err := st.filtered(s.x, s.body)
	if err == nil {
		err = st.write(str(v))
	}
	return proceed, atLine(s.line, err)
}

func (s withStmt) exec(st *state) (jump, error) {
	values, err := st.evalAll(s.values)
	if err != nil {
		return proceed, atLine(s.line, err)
	}
	vars := map[string]Value{}
	for i, name := range s.targets {
		vars[name] = values[i]
	}
	return st.inScope(vars, s.body)
}

// exec records which bytes of the rendered text the block writes.
func (s generationStmt) exec(st *state) (jump, error) {
	start := st.out.text.Len()
	_, err := st.inScope(map[string]Value{}, s.body)
	if st.out.main {
		st.out.generated = append(st.out.generated, [2]int{start, st.out.text.Len()})
	}
	return proceed, err
}
