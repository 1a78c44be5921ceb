package chat

import "strings"

// Adapt rewrites a dialogue of the built-in teachers for this format. The teachers
// write the small ChatML; the result uses the tool of the format, its form of
// answers, and the words with which its generation prompt opens a turn.
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
