package chat

import "strings"

// Adapt writes a dialogue of the built-in teachers, who speak the small ChatML, in
// the words of the format: its tool, its form of answers, and what its generation
// prompt opens a turn with.
func (f *Format) Adapt(d Dialogue) Dialogue {
	out := Dialogue{Messages: make([]Message, len(d.Messages))}
	for i, m := range d.Messages {
		if m.Role == RoleAssistant {
			if f.boxed {
				m.Content = boxAnswers(m.Content)
			}
			m = f.dialect.adaptMessage(m)
		}
		out.Messages[i] = m
	}
	return out
}

// boxAnswers puts each answer between the tags into \boxed{}.
func boxAnswers(text string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, TokenAnswer)
		answer, after, closed := strings.Cut(rest, TokenAnswerEnd)
		if !found || !closed {
			return b.String() + text
		}
		b.WriteString(before + TokenAnswer + `\boxed{` + answer + "}" + TokenAnswerEnd)
		text = after
	}
}
