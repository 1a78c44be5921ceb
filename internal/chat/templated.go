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
	"temper/internal/tokenizer"
)

// templated is the dialect of a chat template. What a policy says never reaches
// the template: between turns it sees a stand-in, so that no model text can change
// what the system writes. Text of users and tools reaches it with its control
// tokens broken.
type templated struct {
	tok  *tokenizer.Tokenizer
	tmpl *Template
	vars *jinja.Dict
	// tools and schemas are nil where there are none.
	tools   *Toolset
	schemas *jinja.List
	// end is the control token that ends an assistant turn.
	end string
	// opening is what the generation prompt says already of the turn, as <reason>.
	opening string
}

var _ dialect = (*templated)(nil)

// standIn is what the template sees of a turn's words: a noncharacter of Unicode,
// which no text of users or tools keeps.
const standIn = "\U0010FFFF"

// anyUser stands for the question where only what follows it is of interest.
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

// renderBetweenTurns renders a conversation whose one turn is a stand-in and returns what
// follows the end of that turn.
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
		turn.ToolCalls = append(turn.ToolCalls, d.toolCall(Call{Code: standIn, Stdin: standIn}))
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

// assistantTurns renders the dialogue up to each turn and up to the next one: what lies
// between is the turn, if the template only ever appends, and then what the loop
// itself puts between turns.
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

// cutTurn cuts a turn out of two renderings, of which the second has also what was
// added after it.
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

// cutLastTurn cuts the last turn out of two renderings. The text of an answer that
// the template would rewrite is the answer itself: nothing comes after it.
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

// openingError names the likely cause of a difference where the prompt opens the turn.
func (d *templated) openingError(err error) error {
	if d.opening == "" {
		return err
	}
	return fmt.Errorf("%w; each assistant message has to begin with %q, which the prompt of a turn ends with", err, d.opening)
}

func excerpt(s string) string { return strings.ToValidUTF8(s[:min(60, len(s))], "") }

// render renders messages; text of users and tools holds no control token and no stand-in.
func (d *templated) render(messages []Message, addGenerationPrompt bool) (string, error) {
	list, err := d.messageList(messages)
	if err != nil {
		return "", err
	}
	return d.tmpl.renderShielded(d.tok, Request{Messages: list, Tools: d.schemas, Vars: d.vars, AddGenerationPrompt: addGenerationPrompt})
}

// templateVariables are the values that texts stand for, in the order of their names.
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

// noncharacters keeps the marks of this package out of other people's text.
var noncharacters = strings.NewReplacer(shield, "\uFFFD", standIn, "\uFFFD")

// callName is the id of a call: nine letters and digits, as some templates want it.
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
		p.Calls = append(p.Calls, v.program())
	}
	return p
}

// toolCall is a call of the first tool, with all of its arguments that are required.
func (d *templated) toolCall(c Call) ToolCall {
	spec := d.tools.tools[0]
	arguments := `{"code": ` + quote(c.Code)
	if c.Stdin != "" || slices.Contains(spec.required, ToolArgInput) {
		arguments += `, "input": ` + quote(c.Stdin)
	}
	return ToolCall{Type: "function", Function: Function{Name: spec.name, Arguments: arguments + "}"}}
}

// adaptMessage names the tool, and begins the turn as its prompt does.
func (d *templated) adaptMessage(m Message) Message {
	m.ToolCalls = slices.Clone(m.ToolCalls)
	for i, c := range m.ToolCalls {
		if call := parseCall(c.callBody()); call.Malformed == "" && d.tools != nil {
			m.ToolCalls[i] = d.toolCall(call)
		}
	}
	if !strings.HasPrefix(m.Content, d.opening) {
		m.Content = d.withOpening(m.Content)
	}
	return m
}

// openTag is an opening that a closing tag has to follow.
var openTag = regexp.MustCompile(`<(\w+)>\s*$`)

// withOpening puts the opening of the generation prompt before the words of a turn, and
// closes what it opens.
func (d *templated) withOpening(words string) string {
	if m := openTag.FindStringSubmatch(d.opening); m != nil {
		return d.opening + "</" + m[1] + ">" + words
	}
	return d.opening + words
}
