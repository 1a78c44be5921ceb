package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"temper/internal/chat/jinja"
	"temper/internal/chat/tokenizer"
)

// shield breaks the control tokens that a user or a tool wrote: it follows their
// first character while the template runs. It is a noncharacter of Unicode.
const shield = "\U0010FFFE"

// GrowthError means that a template changes text that it has already rendered. The
// tokens of a trajectory would then differ from what the template renders.
type GrowthError struct {
	Template string
	Messages int // the first rendering that differs has this many messages
	Offset   int // of the first difference, in bytes
	Had, Got string
}

// Error names the place and shows both texts.
func (e *GrowthError) Error() string {
	return fmt.Sprintf("chat template %s is not append-only: with %d messages the text changes at byte %d from %q to %q",
		e.Template, e.Messages, e.Offset, e.Had, e.Got)
}

// CheckAppendOnly renders the conversation as it grows during a rollout: up to each
// question or tool result with the generation prompt, then with the answer. It
// returns a *GrowthError unless each text extends the one before. With a tokenizer,
// which may be nil, the tokens of each question and tool result must extend the
// tokens before them too. Use it on a sample conversation before a run.
func CheckAppendOnly(t *Template, tok *tokenizer.Tokenizer, req Request) error {
	if req.Messages == nil || len(req.Messages.Items) == 0 {
		return errors.New("append-only check: no messages")
	}
	before := ""
	var ids []int32
	for n := 1; n <= len(req.Messages.Items); n++ {
		if n < len(req.Messages.Items) && roleAt(req.Messages, n) != RoleAssistant && roleAt(req.Messages, n-1) != RoleAssistant {
			continue // another message of the same turn follows
		}
		step := req
		step.Messages = &jinja.List{Items: req.Messages.Items[:n]}
		step.AddGenerationPrompt = roleAt(req.Messages, n-1) != RoleAssistant
		out, err := t.Render(step)
		if err != nil {
			return err
		}
		if err := t.checkExtends(before, out.Text, n); err != nil {
			return err
		}
		if tok != nil {
			next := tok.EncodeSpecial(out.Text)
			if i := commonTokens(ids, next); step.AddGenerationPrompt && i < len(ids) {
				return fmt.Errorf("chat template %s: with %d messages token %d changes from %d to %d", t.name, n, i, ids[i], next[min(i, len(next)-1)])
			}
			ids = next
		}
		before = out.Text
	}
	return nil
}

func roleAt(messages *jinja.List, i int) string {
	m, ok := messages.Items[i].(*jinja.Dict)
	if !ok {
		return ""
	}
	role, _ := m.Get("role")
	s, _ := role.(string)
	return s
}

func (t *Template) checkExtends(before, after string, messages int) error {
	if strings.HasPrefix(after, before) {
		return nil
	}
	i := 0
	for i < len(before) && i < len(after) && before[i] == after[i] {
		i++
	}
	excerpt := func(s string) string { return strings.ToValidUTF8(s[i:min(i+40, len(s))], "") }
	return &GrowthError{t.name, messages, i, excerpt(before), excerpt(after)}
}

func commonTokens(a, b []int32) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i
}

// Tokens renders a request and returns its token ids. In messages of users and tools the
// names of control tokens are text.
func (t *Template) Tokens(tok *tokenizer.Tokenizer, req Request) ([]int32, error) {
	text, err := t.renderShielded(tok, req)
	if err != nil {
		return nil, err
	}
	return encodeShielded(tok, text), nil
}

// renderShielded renders the request after breaking the control tokens in messages
// of users and tools.
func (t *Template) renderShielded(tok *tokenizer.Tokenizer, req Request) (string, error) {
	if req.Messages == nil {
		return "", fmt.Errorf("chat template %s: no messages", t.name)
	}
	out := &jinja.List{Items: make([]jinja.Value, len(req.Messages.Items))}
	for i, v := range req.Messages.Items {
		role := roleAt(req.Messages, i)
		out.Items[i] = v
		if role == RoleSystem || role == RoleAssistant {
			continue
		}
		safe, err := shieldValue(tok, v)
		if err != nil {
			return "", fmt.Errorf("message %d: %w", i, err)
		}
		out.Items[i] = safe
	}
	req.Messages = out
	r, err := t.Render(req)
	return r.Text, err
}

func shieldValue(tok *tokenizer.Tokenizer, v jinja.Value) (jinja.Value, error) {
	switch x := v.(type) {
	case string:
		return shieldText(tok, x)
	case *jinja.List:
		out := &jinja.List{Items: make([]jinja.Value, len(x.Items))}
		for i, item := range x.Items {
			var err error
			if out.Items[i], err = shieldValue(tok, item); err != nil {
				return nil, err
			}
		}
		return out, nil
	case *jinja.Dict:
		out := jinja.NewDict()
		for _, e := range x.Entries() {
			value, err := shieldValue(tok, e.Value)
			if err != nil {
				return nil, err
			}
			out.Set(fmt.Sprint(e.Key), value)
		}
		return out, nil
	default:
		return v, nil
	}
}

// shieldText breaks every control token in text.
func shieldText(tok *tokenizer.Tokenizer, text string) (string, error) {
	if strings.Contains(text, shield) {
		return "", errors.New("text holds the noncharacter U+10FFFE")
	}
	for {
		found := ""
		for _, id := range tok.Segments(text) {
			if id >= 0 {
				found = tok.Decode([]int32{id})
				break
			}
		}
		if found == "" {
			return text, nil
		}
		_, first := utf8.DecodeRuneInString(found)
		if first == len(found) || !strings.Contains(text, found) {
			return "", fmt.Errorf("control token %q cannot be told from text", found)
		}
		text = strings.ReplaceAll(text, found, found[:first]+shield+found[first:])
	}
}

// encodeShielded cuts text at its control tokens and encodes the rest as plain
// text, without the shields.
func encodeShielded(tok *tokenizer.Tokenizer, text string) []int32 {
	var ids []int32
	for plain, id := range tok.Segments(text) {
		ids = append(ids, tok.Encode(strings.ReplaceAll(plain, shield, ""))...)
		if id >= 0 {
			ids = append(ids, id)
		}
	}
	return ids
}
