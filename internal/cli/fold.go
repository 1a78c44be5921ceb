package cli

import (
	"strings"
	"unicode/utf8"
)

// folder breaks text into lines of a width: between fields, which are two spaces
// apart, or within a field that is longer than a line between words.
type folder struct {
	width       int
	first, rest string // indentation of the first line and of the others
	// cut breaks words that are longer than a line, which otherwise stay whole: a
	// terminal lets people open an address only in one piece.
	cut bool

	lines []string
	line  string
	empty bool // line is indentation alone
}

func (f *folder) fold(text string) []string {
	f.lines, f.line, f.empty = nil, f.first, true
	for field := range strings.SplitSeq(strings.TrimSpace(text), "  ") {
		field = strings.TrimSpace(field)
		switch {
		case field == "":
		case f.fits("  ", field):
			f.add("  ", field)
		case utf8.RuneCountInString(f.rest+field) <= f.width:
			f.next()
			f.add("  ", field)
		default:
			f.words(field)
		}
	}
	return append(f.lines, f.line)
}

// words adds a field that no line can hold.
func (f *folder) words(field string) {
	gap := "  "
	for word := range strings.FieldsSeq(field) {
		for !f.fits(gap, word) {
			if !f.empty {
				f.next()
				continue
			}
			room := f.width - utf8.RuneCountInString(f.line)
			if !f.cut || room < 1 {
				break
			}
			runes := []rune(word)
			f.add("", string(runes[:room]))
			word = string(runes[room:])
			f.next()
		}
		f.add(gap, word)
		gap = " "
	}
}

func (f *folder) fits(gap, text string) bool {
	if f.empty {
		gap = ""
	}
	return utf8.RuneCountInString(f.line+gap+text) <= f.width
}

func (f *folder) add(gap, text string) {
	if f.empty {
		gap = ""
	}
	f.line, f.empty = f.line+gap+text, false
}

func (f *folder) next() {
	f.lines = append(f.lines, f.line)
	f.line, f.empty = f.rest, true
}
