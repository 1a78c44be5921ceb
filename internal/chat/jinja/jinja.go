// Package jinja renders the chat templates of checkpoints as Jinja2 does under
// the environment of Hugging Face's apply_chat_template: trim_blocks,
// lstrip_blocks, loop controls, the generation tag, and a tojson that writes what
// json.dumps(ensure_ascii=False) writes. Values are JSON values with Python's text,
// order and equality. It owns the language; package chat decides which messages a
// template gets.
//
// Templates and their input are hostile: there are no includes, imports, files or
// attributes of Go values, and one budget of work bounds time, memory and output.
// Invariant: a render is a pure function of template, variables and Options.
package jinja

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits of every render and template.
const (
	// MaxSource is the longest template, in bytes.
	MaxSource = 1 << 20
	// MaxWork is the budget of one render: the number of evaluated nodes plus an eighth
	// of the bytes that they make or read. It keeps a render below a second.
	MaxWork = 5_000_000
	// MaxOutput is the longest rendered text, in bytes.
	MaxOutput = 8 << 20
	// maxDepth bounds the nesting of syntax, of macro calls and of values.
	maxDepth = 100
	// maxRange is the longest range(), as in Jinja2's sandbox.
	maxRange = 100_000
)

// ErrBudget means that a render needs more than MaxWork or MaxOutput.
var ErrBudget = errors.New("template exceeds its budget")

// Exception is an error that a template raised with raise_exception.
type Exception struct{ Message string }

// Error returns the message of the template.
func (e *Exception) Error() string { return "template raised: " + e.Message }

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct {
	body []stmt
	lib  *library
}

// Options holds what a render depends on besides its variables.
type Options struct {
	// Now is the time that strftime_now formats. With the zero value a template that
	// asks for the date fails: a run must not depend on the day.
	Now time.Time
}

// Result is a rendered text.
type Result struct {
	Text string
	// Generated are the byte ranges inside {% generation %} blocks, in order.
	Generated [][2]int
}

// Parse reads a template. Errors name the line.
func Parse(source string) (*Template, error) {
	if len(source) > MaxSource {
		return nil, fmt.Errorf("template of %d bytes, at most %d", len(source), MaxSource)
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, err := p.statements()
	if err != nil {
		return nil, err
	}
	if p.peek().kind != tokenEOF {
		return nil, p.fail("unexpected %s", p.peek())
	}
	return &Template{body: body, lib: newLibrary()}, nil
}

// Render runs the template over vars.
func (t *Template) Render(vars *Dict, opts Options) (Result, error) {
	st := &state{lib: t.lib, now: opts.Now, scope: &scope{vars: map[string]Value{}}, out: &output{main: true}}
	for _, e := range vars.entries {
		name, ok := e.Key.(string)
		if !ok {
			return Result{}, fmt.Errorf("variable name %s is no string", repr(e.Key))
		}
		st.scope.vars[name] = e.Value
	}
	if _, err := st.exec(t.body); err != nil {
		return Result{}, err
	}
	return Result{Text: st.out.text.String(), Generated: st.out.generated}, nil
}

// output is where statements write: the text of the render, or the text of a macro
// or a block that becomes a value.
type output struct {
	text      strings.Builder
	main      bool
	generated [][2]int
}

// scope holds the names of one block. A lookup continues in the blocks around it.
type scope struct {
	vars   map[string]Value
	parent *scope
}

func (s *scope) get(name string) (Value, bool) {
	for ; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// state is one render in progress.
type state struct {
	lib   *library
	now   time.Time
	scope *scope
	out   *output
	work  int
	depth int
}

// charge subtracts the cost of one node and n bytes from the budget.
func (st *state) charge(n int) error {
	st.work += 1 + n/8
	if n < 0 || st.work > MaxWork || st.work < 0 {
		return fmt.Errorf("%w of %d units of work", ErrBudget, MaxWork)
	}
	return nil
}

// deeper bounds recursion. The caller defers shallower.
func (st *state) deeper() error {
	st.depth++
	if st.depth > maxDepth {
		st.depth--
		return fmt.Errorf("%w: nested deeper than %d", ErrBudget, maxDepth)
	}
	return nil
}

func (st *state) shallower() { st.depth-- }

// write appends to the current output.
func (st *state) write(text string) error {
	if err := st.charge(len(text)); err != nil {
		return err
	}
	if st.out.text.Len()+len(text) > MaxOutput {
		return fmt.Errorf("%w of %d bytes of output", ErrBudget, MaxOutput)
	}
	st.out.text.WriteString(text)
	return nil
}

// capture runs body in a new scope with names and returns what it wrote.
func (st *state) capture(body []stmt, parent *scope, names map[string]Value) (string, error) {
	if err := st.deeper(); err != nil {
		return "", err
	}
	defer st.shallower()
	saved, out := st.scope, st.out
	st.scope, st.out = &scope{vars: names, parent: parent}, &output{}
	_, err := st.exec(body)
	text := st.out.text.String()
	st.scope, st.out = saved, out
	return text, err
}
