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
	// singleWord: not beside a letter, digit or underscore.
	singleWord bool
	// lstrip and rstrip take the whitespace beside the token with it.
	lstrip, rstrip bool
	// normalized: found in the normalized text, not in the text as it is given.
	normalized bool
	// control is what files call special: no part of the text when decoding for people.
	control bool
	// inVocab: the model's vocabulary lists it too.
	inVocab bool
}

// matcher finds added tokens in one pass.
type matcher struct {
	// byFirst lists the tokens by their first byte, the longest first: of several
	// at one place it wins.
	byFirst [256][]needle
	// only is the one first byte, if there is only one.
	only     byte
	hasOnly  bool
	isFilled bool
}

// needle is the text to find a token by.
type needle struct {
	text string
	tok  *added
}

// newMatcher returns a matcher for the texts of the tokens; of equal texts the
// first wins, and control tokens come before others.
func newMatcher(needles []needle) *matcher {
	m := &matcher{isFilled: len(needles) > 0, hasOnly: len(needles) > 0}
	slices.SortStableFunc(needles, func(a, b needle) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.tok.order(), b.tok.order()))
	})
	for _, n := range needles {
		m.byFirst[n.text[0]] = append(m.byFirst[n.text[0]], n)
		m.hasOnly = m.hasOnly && n.text[0] == needles[0].text[0]
		m.only = n.text[0]
	}
	return m
}

// order is 0 for control tokens, which come first, 1 for others.
func (a *added) order() int {
	if a.control {
		return 0
	}
	return 1
}

// find returns the first match in text at or after from.
func (m *matcher) find(text string, from int) (at int, found *needle) {
	for at := from; at < len(text); at++ {
		if m.hasOnly {
			skip := strings.IndexByte(text[at:], m.only)
			if skip < 0 {
				break
			}
			at += skip
		}
		candidates := m.byFirst[text[at]]
		for i := range candidates {
			if strings.HasPrefix(text[at:], candidates[i].text) {
				return at, &candidates[i]
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
		start, p := m.find(text, from)
		if p == nil {
			break
		}
		end := start + len(p.text)
		from = end
		if p.tok.singleWord && (endsWithWord(text[:start]) || startsWithWord(text[end:])) {
			continue
		}
		if p.tok.lstrip {
			start = max(len(strings.TrimRightFunc(text[:start], unicode.IsSpace)), done)
		}
		if p.tok.rstrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if !yield(text[done:max(done, start)], p.tok) {
			return false
		}
		done = end
	}
	return done >= len(text) || yield(text[done:], nil)
}

func endsWithWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

// isWord is \w of Unicode Technical Standard 18, annex C.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Join_Control)
}
