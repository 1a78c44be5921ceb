package tokenizer

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// added is a token that is found in trusted text before it is split.
type added struct {
	id      int32
	content string
	// singleWord means that it is not found beside a letter, digit or underscore.
	singleWord bool
	// lstrip and rstrip make the whitespace beside the token part of it.
	lstrip, rstrip bool
	// normalized means that it is looked for in the normalized text, not in the text
	// as it was given.
	normalized bool
	// control is true for a token that files call special: it is not part of a text for
	// people.
	control bool
	// inVocab means that the vocabulary of the model lists it too.
	inVocab bool
}

// matcher finds added tokens in one pass.
type matcher struct {
	// byFirst lists the tokens by their first byte, the longest first, because the
	// longest wins where several match.
	byFirst [256][]*added
	// only is the first byte of all tokens, if they share it.
	only     byte
	hasOnly  bool
	isFilled bool
	// unknown holds word runes that the reference library does not know.
	unknown *unicode.RangeTable
}

func newMatcher(tokens []*added) *matcher {
	m := &matcher{isFilled: len(tokens) > 0, hasOnly: len(tokens) > 0, unknown: sinceUnicode17()}
	slices.SortStableFunc(tokens, func(a, b *added) int { return cmp.Compare(len(b.content), len(a.content)) })
	for _, tok := range tokens {
		first := tok.content[0]
		m.byFirst[first] = append(m.byFirst[first], tok)
		m.hasOnly = m.hasOnly && first == tokens[0].content[0]
		m.only = first
	}
	return m
}

// find returns the first match in text at or after from.
func (m *matcher) find(text string, from int) (at int, found *added) {
	for at := from; at < len(text); at++ {
		if m.hasOnly {
			skip := strings.IndexByte(text[at:], m.only)
			if skip < 0 {
				break
			}
			at += skip
		}
		for _, tok := range m.byFirst[text[at]] {
			if strings.HasPrefix(text[at:], tok.content) {
				return at, tok
			}
		}
	}
	return len(text), nil
}

// cut calls yield for each added token of text with the plain text before it,
// and with a nil token for the text after the last one if there is any. It
// reports whether yield wanted all of it.
func (m *matcher) cut(text string, yield func(string, *added) bool) bool {
	if !m.isFilled {
		return text == "" || yield(text, nil)
	}
	done := 0
	for from := 0; ; {
		start, tok := m.find(text, from)
		if tok == nil {
			break
		}
		end := start + len(tok.content)
		from = end
		if tok.singleWord && (m.endsWithWord(text[:start]) || m.startsWithWord(text[end:])) {
			continue
		}
		if tok.lstrip {
			start = max(len(strings.TrimRightFunc(text[:start], unicode.IsSpace)), done)
		}
		if tok.rstrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if !yield(text[done:max(done, start)], tok) {
			return false
		}
		done = end
	}
	return done >= len(text) || yield(text[done:], nil)
}

func (m *matcher) endsWithWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && m.isWord(r)
}

func (m *matcher) startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && m.isWord(r)
}

// isWord is \w of Unicode Technical Standard 18, annex C.
func (m *matcher) isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control) &&
		!unicode.Is(m.unknown, r)
}
