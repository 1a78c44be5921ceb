package httpapi

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestLinesKeepTheirLeastRoom: whoever reads on needs room for that, also after a long line and
// when others have taken all that there is.
func TestLinesKeepTheirLeastRoom(t *testing.T) {
	full := false
	held := leastLines
	l := &lines{
		r:     io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20)+"\n"), strings.NewReader("next\n")),
		limit: maxCallBody, buf: make([]byte, leastLines),
		grow: func(n int) error {
			if n > 0 && full {
				return errors.New("full")
			}
			held += n
			return nil
		},
	}
	if line, _, err := l.next(); err != nil || len(line) != 2<<20 {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	full = true
	if line, _, err := l.next(); err != nil || string(line) != "next" {
		t.Errorf("got %.20q, %v", line, err)
	}
	if held != len(l.buf) || held > leastLines {
		t.Errorf("%d bytes are charged for a buffer of %d", held, len(l.buf))
	}
	if l.shrink(0); held != 0 {
		t.Errorf("%d bytes are charged at the end", held)
	}
}
