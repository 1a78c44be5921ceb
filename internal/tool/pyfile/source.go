package pyfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// MaxSource bounds the text of a file, because it goes with each call.
const MaxSource = 64 << 10

// Source is a file of the user's as a run keeps it.
type Source struct {
	// Path is where the file was when the run took it.
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Text   string `json:"text"`
}

// NewSource makes a Source. The problem says why the text can be no source.
func NewSource(path string, data []byte) (Source, *Problem) {
	sum := sha256.Sum256(data)
	s := Source{Path: path, SHA256: hex.EncodeToString(sum[:]), Text: string(data)}
	switch {
	case len(data) > MaxSource:
		return s, &Problem{0, fmt.Sprintf("has %d bytes, above the limit of %d: it goes with each call", len(data), MaxSource)}
	case !utf8.Valid(data):
		return s, &Problem{0, "is not valid UTF-8"}
	case strings.ContainsRune(s.Text, 0):
		return s, &Problem{0, "holds a zero byte"}
	}
	return s, nil
}

// Name is the name of the file without its folder.
func (s Source) Name() string { return filepath.Base(s.Path) }

// Lines is the number of lines of the text.
func (s Source) Lines() int { return strings.Count(strings.TrimSuffix(s.Text, "\n"), "\n") + 1 }

// Place names a line of the file for people; a line outside of it is left out.
func (s Source) Place(line int) string {
	if line < 1 || line > s.Lines() {
		return s.Path
	}
	return fmt.Sprintf("%s:%d", s.Path, line)
}

// Functions parses the text and says which names are defined twice.
func (s Source) Functions() ([]Function, []Problem) {
	functions, problem := Parse(s.Text)
	if problem != nil {
		return nil, []Problem{*problem}
	}
	var out []Problem
	first := map[string]int{}
	for _, f := range functions {
		if before, twice := first[f.Name]; twice {
			out = append(out, Problem{f.Line, fmt.Sprintf("defines %s a second time, after line %d", f.Name, before)})
			continue
		}
		first[f.Name] = f.Line
	}
	return functions, out
}

// Program returns the text with end appended. The line numbers of the file stay valid.
func (s Source) Program(end string) string { return strings.TrimSuffix(s.Text, "\n") + "\n" + end }

// Module is the name of the module that a file is.
const Module = "user_file"

// silencer keeps what a file prints while it is imported from the result. The end of a
// Program gives standard output back.
//
// The file is no main program: what it does under "if __name__ == '__main__'" is left out.
const silencer = "__import__('sys').stdout = __import__('io').StringIO()\n__name__ = '" + Module + "'\n"

// Silence is the fixture of a Program: what runs before the file.
func (s Source) Silence(fixture string) string {
	if fixture == "" {
		return silencer
	}
	return strings.TrimSuffix(fixture, "\n") + "\n" + silencer
}
