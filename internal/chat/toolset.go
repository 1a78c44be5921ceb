package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"temper/internal/chat/jinja"
)

// Toolset holds the tools of a conversation, known by their JSON schemas.
type Toolset struct {
	tools  []toolSpec
	places map[string]int // in tools, by name
}

type toolSpec struct {
	name       string
	required   []string
	properties *jinja.Dict
	// strict calls fit the schema in all; others may have more arguments, and what is
	// no text is not checked.
	strict bool
}

// Invocation is one call that a turn makes of a Toolset.
type Invocation struct {
	Name      string
	Arguments *jinja.Dict
	// Refused is the tool response to a call that cannot run; empty when it can. The
	// released rStar2-Agent code has the same wording.
	Refused string
	// raw is the arguments as JSON without space.
	raw string
}

// ParsedText is the content of a turn that was read as text.
type ParsedText struct {
	// Content is the text outside of calls.
	Content string
	Calls   []Invocation
}

// maxClosers bounds how many closing tags are tried for one call.
const maxClosers = 64

// NewToolset reads the schemas of tools: objects with a function, or functions.
func NewToolset(schemas *jinja.List) (*Toolset, error) {
	ts := &Toolset{}
	for i, v := range schemas.Items {
		spec, err := readSpec(v)
		if err != nil {
			return nil, fmt.Errorf("tool %d: %w", i, err)
		}
		if ts.findTool(spec.name) != nil {
			return nil, fmt.Errorf("tool %d: a second %q", i, spec.name)
		}
		ts.addTool(spec)
	}
	return ts, nil
}

func readSpec(v jinja.Value) (toolSpec, error) {
	var spec toolSpec
	f, _ := v.(*jinja.Dict)
	if f == nil {
		return spec, errors.New("schema is no object")
	}
	if inner, ok := f.Get("function"); ok {
		if f, ok = inner.(*jinja.Dict); !ok {
			return spec, errors.New("function is no object")
		}
	}
	name, _ := f.Get("name")
	spec.name, _ = name.(string)
	if spec.name == "" {
		return spec, errors.New("function has no name")
	}
	spec.properties = jinja.NewDict()
	parameters, _ := f.Get("parameters")
	p, ok := parameters.(*jinja.Dict)
	if !ok {
		return spec, nil
	}
	if properties, ok := p.Get("properties"); ok {
		if spec.properties, ok = properties.(*jinja.Dict); !ok {
			return spec, errors.New("properties is no object")
		}
	}
	required, _ := p.Get("required")
	if names, ok := required.(*jinja.List); ok {
		for _, n := range names.Items {
			s, ok := n.(string)
			if !ok {
				return spec, errors.New("required holds something that is no name")
			}
			spec.required = append(spec.required, s)
		}
	}
	return spec, nil
}

func (ts *Toolset) findTool(name string) *toolSpec {
	i, ok := ts.places[name]
	if !ok {
		return nil
	}
	return &ts.tools[i]
}

// firstProgram returns the place of the first tool that runs programs, -1 for none.
func (ts *Toolset) firstProgram() int {
	if ts == nil {
		return -1
	}
	return slices.IndexFunc(ts.tools, func(t toolSpec) bool { return !t.strict })
}

func (ts *Toolset) addTool(spec toolSpec) {
	if ts.places == nil {
		ts.places = map[string]int{}
	}
	ts.places[spec.name] = len(ts.tools)
	ts.tools = append(ts.tools, spec)
}

// Parse reads the text of one turn. A call ends at the first closing tag after which
// its body is valid JSON, so that a tag inside a string of the code is code. Where no
// closing tag makes it valid, the call ends at the first one. A call that is not
// closed is refused. Parse never fails.
func (ts *Toolset) Parse(text string) ParsedText {
	var said ParsedText
	var content strings.Builder
	for {
		before, rest, found := strings.Cut(text, TokenToolCall)
		content.WriteString(before)
		if !found {
			break
		}
		body, after, closed := cutCall(rest)
		if !closed {
			said.Calls = append(said.Calls, undecodableCall("the call is not closed by "+TokenToolCallEnd))
			break
		}
		said.Calls = append(said.Calls, ts.invocation(body))
		text = after
	}
	said.Content = content.String()
	return said
}

func cutCall(text string) (body, after string, closed bool) {
	end := 0
	for range maxClosers {
		i := strings.Index(text[end:], TokenToolCallEnd)
		if i < 0 {
			break
		}
		end += i
		if json.Valid([]byte(text[:end])) {
			return text[:end], text[end+len(TokenToolCallEnd):], true
		}
		end += len(TokenToolCallEnd)
	}
	return strings.Cut(text, TokenToolCallEnd)
}

func undecodableCall(why string) Invocation {
	return Invocation{Refused: "Failed to decode tool call: " + why}
}

// invocation reads the JSON object of a call.
func (ts *Toolset) invocation(body string) Invocation {
	v, err := jinja.Decode([]byte(body))
	if err != nil {
		return undecodableCall("invalid JSON: " + oneLine(err.Error()))
	}
	call, ok := v.(*jinja.Dict)
	if !ok {
		return undecodableCall("not a JSON object")
	}
	name, ok := call.Get("name")
	if !ok {
		return undecodableCall("'name' is missing")
	}
	given, ok := call.Get("arguments")
	if !ok {
		return undecodableCall("'arguments' is missing")
	}
	if text, ok := given.(string); ok {
		if given, err = jinja.Decode([]byte(text)); err != nil {
			return undecodableCall("arguments are a string that is no JSON: " + oneLine(err.Error()))
		}
	}
	args, ok := given.(*jinja.Dict)
	if !ok {
		return undecodableCall("arguments must be an object")
	}
	s, ok := name.(string)
	if !ok {
		return undecodableCall("name must be a string")
	}
	out := Invocation{Name: s, Arguments: args, raw: rawArguments(body)}
	if why := ts.checkArguments(s, args); why != "" {
		out.Refused = "Error when executing tool: " + why
	}
	return out
}

// checkArguments reports why a tool cannot take the arguments; empty when it can. It
// accepts arguments that the schema does not name.
func (ts *Toolset) checkArguments(name string, args *jinja.Dict) string {
	spec := ts.findTool(name)
	if spec == nil {
		return "no tool is named " + quote(name)
	}
	for _, r := range spec.required {
		if _, ok := args.Get(r); !ok {
			return "argument '" + r + "' is missing"
		}
	}
	if spec.strict {
		return spec.checkStrictly(args)
	}
	for _, e := range args.Entries() {
		key, _ := e.Key.(string)
		schema, _ := spec.properties.Get(key)
		property, ok := schema.(*jinja.Dict)
		if !ok {
			continue
		}
		want, _ := property.Get("type")
		if _, isText := e.Value.(string); want == "string" && !isText {
			return "argument '" + key + "' must be a string"
		}
	}
	return ""
}

// oneLine replaces line ends, so that a policy cannot put any into a refusal.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// parseCall reads the JSON object of a call.
func (ts *Toolset) parseCall(body string) Call { return ts.invocation(body).call() }

// ReadCall reads a call whose name and arguments stand apart, as clients of OpenAI's API
// get them. Arguments are a JSON object.
func (ts *Toolset) ReadCall(name, arguments string) Call {
	return ts.parseCall(`{"name": ` + quote(name) + `, "arguments": ` + arguments + `}`)
}

// call returns the call that an invocation asks for.
func (v Invocation) call() Call {
	if v.Refused != "" {
		return Call{Malformed: v.Refused}
	}
	return Call{Name: v.Name, Arguments: v.raw}
}

// FunctionTool is a tool beside the built-in ones: a name and the JSON schema that the
// prompt shows. Its calls must fit the schema.
type FunctionTool struct {
	Name   string `json:"name"`
	Schema string `json:"schema"`
}

// functionSchemas decodes the schemas of functions.
func functionSchemas(functions []FunctionTool) (*jinja.List, error) {
	out := &jinja.List{}
	for _, f := range functions {
		v, err := jinja.Decode([]byte(f.Schema))
		if err != nil {
			return nil, fmt.Errorf("schema of tool %s: %w", f.Name, err)
		}
		out.Items = append(out.Items, v)
	}
	return out, nil
}

// addFunctions adds tools whose calls must fit their schemas.
func (ts *Toolset) addFunctions(schemas *jinja.List) error {
	more, err := NewToolset(schemas)
	if err != nil {
		return err
	}
	for _, spec := range more.tools {
		if ts.findTool(spec.name) != nil {
			return fmt.Errorf("a second tool %q", spec.name)
		}
		spec.strict = true
		ts.addTool(spec)
	}
	return nil
}

// checkStrictly reports why arguments do not fit the schema; empty when they do.
func (spec *toolSpec) checkStrictly(args *jinja.Dict) string {
	for _, e := range args.Entries() {
		key, _ := e.Key.(string)
		rule, _ := spec.properties.Get(key)
		property, ok := rule.(*jinja.Dict)
		if !ok {
			var known []string
			for _, p := range spec.properties.Entries() {
				known = append(known, fmt.Sprintf("'%v'", p.Key))
			}
			return fmt.Sprintf("unknown argument %s, want some of %s", quote(key), strings.Join(known, ", "))
		}
		if want := Mismatch(e.Value, property); want != "" {
			return "argument '" + key + "' must be " + want
		}
	}
	return ""
}

// rawArguments returns the arguments of a call as JSON without space. The body is one
// that invocation could read.
func rawArguments(body string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &members) != nil {
		return "{}"
	}
	arguments := []byte(members["arguments"])
	var text string
	if json.Unmarshal(arguments, &text) == nil {
		arguments = []byte(text)
	}
	var out bytes.Buffer
	if json.Compact(&out, arguments) != nil {
		return "{}"
	}
	return out.String()
}

// sampleArguments are arguments that fit the schema; words stands in each text.
func (spec *toolSpec) sampleArguments(words string) string {
	var members []string
	for _, e := range spec.properties.Entries() {
		name := fmt.Sprint(e.Key)
		property, _ := e.Value.(*jinja.Dict)
		if slices.Contains(spec.required, name) {
			members = append(members, quote(name)+": "+Sample(property, words))
		}
	}
	return "{" + strings.Join(members, ", ") + "}"
}
