package chat

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"temper/internal/chat/jinja"
	"temper/internal/chat/tokenizer"
	"temper/internal/tool/builtin"
)

// templated is the dialect of a chat template. The template never sees the text of a
// policy: between turns it gets a stand-in, so that no model text can change what
// the system writes. It sees the text of users and tools with control tokens broken.
type templated struct {
	tok  *tokenizer.Tokenizer
	tmpl *Template
	vars *jinja.Dict
	// tools and schemas are nil when the run has no tools.
	tools   *Toolset
	schemas *jinja.List
	// end is the control token that ends an assistant turn.
	end string
	// opening is the beginning of the turn that the generation prompt already
	// contains, such as <reason>.
	opening string
}

var _ dialect = (*templated)(nil)

// standIn replaces the text of a turn in what the template sees. It is a noncharacter
// of Unicode, which is removed from the text of users and tools.
const standIn = "\U0010FFFF"

// anyUser is the question of a render in which only the text after it matters.
const anyUser = "What is asked?"

func (d *templated) prompt(system, user string) ([]int32, error) {
	text, err := d.render(withSystem(system, []Message{{Role: RoleUser, Content: user}}), true)
	if err != nil {
		return nil, err
	}
	return encodeShielded(d.tok, text), nil
}

func (d *templated) textBetweenTurns(added []Message) ([]int32, error) {
	text, err := d.renderBetweenTurns(added)
	if err != nil {
		return nil, err
	}
	return encodeShielded(d.tok, text), nil
}

// renderBetweenTurns renders a conversation whose only turn is a stand-in, and returns
// the text after the end of that turn.
func (d *templated) renderBetweenTurns(added []Message) (string, error) {
	numCalls := 0
	for _, m := range added {
		if m.Role == RoleTool {
			numCalls++
		}
	}
	if numCalls > 0 && d.tools == nil {
		return "", errors.New("a tool result, but the run has no tools: rollout.tools is none")
	}
	turn := Message{Role: RoleAssistant, Content: d.withOpening(standIn)}
	for range numCalls {
		turn.ToolCalls = append(turn.ToolCalls, d.toolCall(builtin.Program{Code: standIn, Input: standIn}))
	}
	text, err := d.render(append([]Message{{Role: RoleUser, Content: anyUser}, turn}, added...), true)
	if err != nil {
		return "", err
	}
	at := strings.LastIndex(text, standIn)
	if at < 0 {
		return "", errors.New("it leaves out what the assistant said")
	}
	_, rest, ended := strings.Cut(text[at:], d.end)
	if !ended {
		return "", fmt.Errorf("a turn before another does not end with %s", d.end)
	}
	return rest, nil
}

// assistantTurns renders the dialogue up to each turn and up to the next one. If the
// template only appends, the difference is the turn and the text between turns.
func (d *templated) assistantTurns(dialogue Dialogue) ([][]int32, error) {
	messages := dialogue.Messages
	at := nextAssistant(messages, 0)
	before, err := d.render(messages[:at], true)
	if err != nil {
		return nil, err
	}
	var out [][]int32
	for at < len(messages) {
		next := nextAssistant(messages, at+1)
		after, err := d.render(messages[:next], next < len(messages))
		if err != nil {
			return nil, err
		}
		var text string
		if next == len(messages) {
			text, err = d.cutLastTurn(before, after, messages)
		} else {
			text, err = d.cutTurn(before, after, messages[at+1:next], next)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d.tok.EncodeSpecial(text))
		before, at = after, next
	}
	return out, nil
}

// cutTurn returns the turn by which two renderings differ. The second one also
// contains the messages that were added after the turn.
func (d *templated) cutTurn(before, after string, added []Message, n int) (string, error) {
	if err := d.tmpl.checkExtends(before, after, n); err != nil {
		return "", d.openingError(err)
	}
	follows, err := d.renderBetweenTurns(added)
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(after[len(before):], follows)
	if !ok || !strings.HasSuffix(text, d.end) {
		return "", fmt.Errorf("with %d messages the text after a turn is not the %q that it is elsewhere", n, excerpt(follows))
	}
	return text, nil
}

// cutLastTurn returns the last turn, by which two renderings differ. When the template
// would rewrite the answer, the turn is the unchanged answer: nothing follows it.
func (d *templated) cutLastTurn(before, after string, messages []Message) (string, error) {
	if text, ok := strings.CutPrefix(after, before); ok {
		at := strings.LastIndex(text, d.end)
		if at < 0 {
			return "", fmt.Errorf("the last turn does not end with %s", d.end)
		}
		return text[:at+len(d.end)], nil
	}
	growth := d.tmpl.checkExtends(before, after, len(messages))
	last := messages[len(messages)-1]
	text, ok := strings.CutPrefix(last.Content, d.opening)
	if !ok || len(last.ToolCalls) > 0 {
		return "", d.openingError(growth)
	}
	return text + d.end, nil
}

// openingError adds the likely cause of a difference when the prompt opens the turn.
func (d *templated) openingError(err error) error {
	if d.opening == "" {
		return err
	}
	return fmt.Errorf("%w; each assistant message has to begin with %q, which the prompt of a turn ends with", err, d.opening)
}

func excerpt(s string) string { return strings.ToValidUTF8(s[:min(60, len(s))], "") }

// render renders messages. Text of users and tools contains no control token and no
// stand-in then.
func (d *templated) render(messages []Message, addGenerationPrompt bool) (string, error) {
	list, err := d.messageList(messages)
	if err != nil {
		return "", err
	}
	return d.tmpl.renderShielded(d.tok, Request{Messages: list, Tools: d.schemas, Vars: d.vars, AddGenerationPrompt: addGenerationPrompt})
}

// templateVariables turns texts into values, in the order of their names.
func templateVariables(texts map[string]string) *jinja.Dict {
	vars := jinja.NewDict()
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		var value jinja.Value = text
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			value = n
		} else if text == "true" || text == "false" {
			value = text == "true"
		}
		vars.Set(name, value)
	}
	return vars
}

// messageList writes messages as values of the template, in the form that Hugging Face's
// apply_chat_template takes: arguments are objects, calls and results have ids.
func (d *templated) messageList(messages []Message) (*jinja.List, error) {
	out := &jinja.List{}
	called, answered := 0, 0
	for _, m := range messages {
		v := jinja.NewDict()
		v.Set("role", m.Role)
		v.Set("content", m.Content)
		switch m.Role {
		case RoleUser, RoleTool:
			v.Set("content", noncharacters.Replace(m.Content))
		case RoleAssistant:
			answered = called
		}
		if m.Role == RoleTool {
			v.Set("tool_call_id", callName(answered))
			answered++
		}
		if len(m.ToolCalls) > 0 {
			calls := &jinja.List{}
			for _, c := range m.ToolCalls {
				call, err := callValue(c, called)
				if err != nil {
					return nil, err
				}
				calls.Items = append(calls.Items, call)
				called++
			}
			v.Set("tool_calls", calls)
		}
		out.Items = append(out.Items, v)
	}
	return out, nil
}

// noncharacters removes the marks of this package from the text of users and tools.
var noncharacters = strings.NewReplacer(shield, "\uFFFD", standIn, "\uFFFD")

// callName returns the id of a call: nine letters and digits, as some templates demand.
func callName(i int) string { return fmt.Sprintf("call%05d", i) }

func callValue(c ToolCall, i int) (jinja.Value, error) {
	arguments, err := jinja.Decode([]byte(c.Function.Arguments))
	if err != nil {
		return nil, fmt.Errorf("arguments of a call: %w", err)
	}
	function, call := jinja.NewDict(), jinja.NewDict()
	function.Set("name", c.Function.Name)
	function.Set("arguments", arguments)
	call.Set("id", callName(i))
	call.Set("type", "function")
	call.Set("function", function)
	return call, nil
}

func (d *templated) parseCall(body string) Call {
	if d.tools == nil {
		return malformedCall("there are no tools")
	}
	return d.tools.parseCall(body)
}

func (d *templated) parseText(text string) ParsedTurn {
	if d.tools == nil {
		return ParsedTurn{Content: text}
	}
	said := d.tools.Parse(text)
	p := ParsedTurn{Content: said.Content}
	for _, v := range said.Calls {
		p.Calls = append(p.Calls, v.call())
	}
	return p
}

// toolCall returns a call of the first tool that runs the program, or of the first tool
// with some words of the program where no tool runs programs.
func (d *templated) toolCall(p builtin.Program) ToolCall {
	at := d.tools.firstProgram()
	spec := d.tools.tools[max(0, at)]
	arguments := p.Arguments(spec.required...)
	if at < 0 {
		arguments = spec.sampleArguments(p.Code)
	}
	return ToolCall{Type: "function", Function: Function{Name: spec.name, Arguments: arguments}}
}

// adaptMessage renames the tool of a program and begins the turn with the opening of the prompt.
func (d *templated) adaptMessage(m Message) Message {
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i, c := range m.ToolCalls {
		if program, err := builtin.ProgramOf(c.Function.Arguments); err == nil && c.Function.Name == builtin.Python && d.tools.firstProgram() >= 0 {
			m.ToolCalls[i] = d.toolCall(program)
		}
	}
	if !strings.HasPrefix(m.Content, d.opening) {
		m.Content = d.withOpening(m.Content)
	}
	return m
}

// openTag matches an opening that needs a closing tag.
var openTag = regexp.MustCompile(`<(\w+)>\s*$`)

// withOpening puts the opening of the generation prompt before the words of a turn and
// closes the tag that it opens, unless the words do.
func (d *templated) withOpening(words string) string {
	if m := openTag.FindStringSubmatch(d.opening); m != nil {
		closing := "</" + m[1] + ">"
		if before, _, closed := strings.Cut(words, closing); closed && !strings.Contains(before, "<"+m[1]+">") {
			return d.opening + words
		}
		return d.opening + closing + words
	}
	return d.opening + words
}
