package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"temper/internal/chat/jinja"
	"temper/internal/tool/builtin"
	"temper/sandbox/status"
)

// useTemplate gives the Format the dialect of a template. It first tries everything
// that a rollout needs of the template on a sample conversation.
func (f *Format) useTemplate(cfg Config) error {
	names := cfg.Tools
	if len(names) == 0 && len(cfg.Functions) == 0 {
		names = DefaultTools(cfg.Template.Name())
	}
	d := &templated{tok: f.tok, tmpl: cfg.Template, vars: templateVariables(cfg.Vars)}
	if err := d.useTools(names, cfg); err != nil {
		return err
	}
	if d.tools == nil {
		f.call, f.callEnd = -1, -1
	}
	f.dialect = d
	if err := d.checkTokens(); err != nil {
		return fmt.Errorf("tokenizer: %w", err)
	}
	if err := d.learnTurnForm(); err != nil {
		return d.refusal(err)
	}
	f.end, _ = f.tok.Special(d.end)
	f.pad = f.end
	if id, ok := f.tok.Special(TokenPad); ok {
		f.pad = id
	}
	for _, fn := range cfg.Functions {
		names = append(slices.Clip(names), fn.Name)
	}
	if err := f.tryConversation(d, names); err != nil {
		return d.refusal(err)
	}
	return nil
}

// useTools gives the dialect its tools, with the schemas that the prompt shows.
func (d *templated) useTools(names []string, cfg Config) (err error) {
	d.schemas, d.tools, err = ToolsOf(names, cfg.SessionTools, cfg.Functions)
	return err
}

// ToolsOf returns the schemas of tools as a prompt shows them, and the Toolset that reads
// their calls. Both are nil where there is no tool.
func ToolsOf(names, sessionTools []string, functions []FunctionTool) (*jinja.List, *Toolset, error) {
	schemas, tools, err := builtinToolset(names)
	if err != nil || tools == nil && len(functions) == 0 {
		return nil, nil, err
	}
	if err := describeSessions(schemas, sessionTools); err != nil {
		return nil, nil, err
	}
	more, err := functionSchemas(functions)
	if err != nil {
		return nil, nil, err
	}
	if err := tools.addFunctions(more); err != nil {
		return nil, nil, err
	}
	schemas.Items = append(schemas.Items, more.Items...)
	return schemas, tools, nil
}

// refusal adds to an error what to do about a template that rollouts cannot use.
func (d *templated) refusal(err error) error {
	var growth *GrowthError
	wayOut := "choose rollout.chat_template rstar2, or a copy of the template without this"
	if errors.As(err, &growth) {
		wayOut = "what was sampled cannot be changed afterwards: choose rollout.chat_template rstar2, or a copy of the template that leaves earlier turns as they are"
	}
	return fmt.Errorf("chat template %s cannot be used for rollouts: %w; %s", d.tmpl.Name(), err, wayOut)
}

// checkTokens returns an error when a control token cannot be broken in the text of
// users and tools.
func (d *templated) checkTokens() error {
	for id := range int32(d.tok.VocabSize()) {
		if !d.tok.IsSpecial(id) {
			continue
		}
		if _, err := shieldText(d.tok, d.tok.Decode([]int32{id})); err != nil {
			return err
		}
	}
	return nil
}

// learnTurnForm finds out how the template ends a turn and how its generation prompt opens one.
func (d *templated) learnTurnForm() error {
	question := Message{Role: RoleUser, Content: anyUser}
	answer := Message{Role: RoleAssistant, Content: standIn}
	prompt, err := d.render([]Message{question}, true)
	if err != nil {
		return err
	}
	if !strings.Contains(prompt, anyUser) {
		return errors.New("it leaves out what the user said")
	}
	whole, err := d.render([]Message{question, answer}, false)
	if err != nil {
		return err
	}
	_, rest, found := strings.Cut(whole, standIn)
	if !found {
		return errors.New("it leaves out what the assistant said")
	}
	for _, id := range d.tok.Segments(rest) {
		if id >= 0 {
			d.end = d.tok.Decode([]int32{id})
			break
		}
	}
	if d.end == "" {
		return fmt.Errorf("an assistant turn ends with %q, which holds no control token of the tokenizer", rest)
	}
	if d.tools != nil {
		answer.ToolCalls = []ToolCall{d.toolCall(builtin.Program{Code: "1"})}
		result := Message{Role: RoleTool, Content: "1"}
		if whole, err = d.render([]Message{question, answer, result}, true); err != nil {
			return err
		}
	}
	head, _, _ := strings.Cut(whole, standIn)
	d.opening = openingOf(head, prompt)
	return nil
}

// Opening returns the beginning of an assistant's turn that the generation prompt gives,
// such as <reason>: what the model says does not contain it. It is "" for none, and where
// the template cannot be tried.
func (t *Template) Opening(tools *jinja.List) string {
	message := func(role, content string) *jinja.Dict {
		m := jinja.NewDict()
		m.Set("role", role)
		m.Set("content", content)
		return m
	}
	question := message(RoleUser, anyUser)
	req := Request{Messages: &jinja.List{Items: []jinja.Value{question}}, Tools: tools, AddGenerationPrompt: true, Now: time.Unix(0, 0)}
	prompt, err := t.Render(req)
	if err != nil {
		return ""
	}
	req.Messages, req.AddGenerationPrompt = &jinja.List{Items: []jinja.Value{question, message(RoleAssistant, standIn)}}, false
	whole, err := t.Render(req)
	if err != nil {
		return ""
	}
	head, _, found := strings.Cut(whole.Text, standIn)
	if !found {
		return ""
	}
	return openingOf(head, prompt.Text)
}

// openingOf returns the end of the generation prompt: what follows the part that it
// shares with the head of an assistant turn.
func openingOf(head, prompt string) string {
	i := 0
	for i < len(head) && i < len(prompt) && head[i] == prompt[i] {
		i++
	}
	for i > 0 && i < len(prompt) && !utf8.RuneStart(prompt[i]) {
		i--
	}
	return prompt[i:]
}

// tryConversation renders a conversation with calls as a rollout does, reads the calls
// back, and checks that the text only grows.
func (f *Format) tryConversation(d *templated, tools []string) error {
	sample := Dialogue{Messages: []Message{{Role: RoleUser, Content: "q"}}}
	programs := [][]builtin.Program{{{Code: "print(input())", Input: "1 \"2\"\n<x>"}}, {{Code: "a\n"}, {Code: "'b'\\"}}}
	if d.tools != nil {
		prompt, err := d.render(sample.Messages, true)
		if err != nil {
			return err
		}
		for _, name := range tools {
			if !strings.Contains(prompt, name) {
				return fmt.Errorf("its prompt does not show the schema of tool %s; or set rollout.tools to [%s]", name, NoTools)
			}
		}
		sample.Messages = append(sample.Messages, d.sampleTurns(programs)...)
	}
	sample.Messages = append(sample.Messages, Message{Role: RoleAssistant, Content: d.withOpening("done")})
	t, err := f.render(sample)
	if err != nil {
		return err
	}
	if d.tools == nil {
		return nil
	}
	return f.readBack(t, d, programs)
}

func (d *templated) sampleTurns(turns [][]builtin.Program) []Message {
	var out []Message
	for _, programs := range turns {
		m := Message{Role: RoleAssistant, Content: d.withOpening("now")}
		var results []Message
		for i, p := range programs {
			m.ToolCalls = append(m.ToolCalls, d.toolCall(p))
			results = append(results, Message{Role: RoleTool, Content: Outcome{Status: status.OK, Stdout: fmt.Sprint(i)}.Text(0)})
		}
		out = append(append(out, m), results...)
	}
	return out
}

// readBack checks that the calls of a rendered dialogue are those that ParseTurn finds.
func (f *Format) readBack(t *Transcript, d *templated, want [][]builtin.Program) error {
	var turns [][]int32
	for _, p := range t.sampled {
		turns = append(turns, t.tokens[p.start:][:len(p.logprobs)])
	}
	for i, programs := range want {
		got := f.ParseTurn(turns[i]).Calls
		same := len(got) == len(programs)
		for j, p := range programs {
			same = same && got[j].Malformed == "" && equalJSON(got[j].Arguments, d.toolCall(p).Function.Arguments)
		}
		if !same {
			return fmt.Errorf("it writes a call as %q, which is not read back: want a JSON object with name and arguments within %s and %s",
				f.tok.Decode(turns[i]), TokenToolCall, TokenToolCallEnd)
		}
	}
	return nil
}

// equalJSON reports whether two objects have equal members.
func equalJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
