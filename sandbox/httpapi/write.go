package httpapi

import (
	"encoding/base64"
	"io"
	"net/http"
	"unicode/utf8"

	"temper/sandbox"
)

// A text of control characters is six times as long in JSON. An answer that is not
// small is therefore written in parts, so that the longer form is never held as a
// whole, and a caller that supports it gets such a text in base64.

const (
	// smallAnswer is the size up to which an answer is encoded at once.
	smallAnswer = 32 << 10
	// textPart is the number of bytes of a text to encode at a time: a multiple of 3 for
	// base64.
	textPart = 24 << 10
	// packedText is the length from which a text may come in base64.
	packedText = 1 << 10
)

// textHeader of a request states that its caller supports texts in base64: then
// stdout_base64 may stand for stdout, and stderr_base64 for stderr.
const (
	textHeader = "Temper-Text"
	textBase64 = "base64"
)

// packs reports whether the caller of r supports texts in base64.
func packs(r *http.Request) bool { return r.Header.Get(textHeader) == textBase64 }

// encoder writes one answer after the other.
type encoder struct {
	to     io.Writer // nil keeps everything in buf
	packed bool      // the caller supports base64
	buf    []byte
	err    error
}

// flush writes the encoded bytes.
func (e *encoder) flush() error {
	if e.err == nil && len(e.buf) > 0 {
		_, e.err = e.to.Write(e.buf)
	}
	e.buf = e.buf[:0]
	return e.err
}

// answer encodes the member of an Answer.
func (e *encoder) answer(a *Answer) {
	if a.Error != nil {
		e.buf = appendFailure(append(e.buf, `"error":`...), a.Error)
		return
	}
	e.buf = append(e.buf, `"result":`...)
	e.result(a.Result)
}

func (e *encoder) result(r *sandbox.Result) {
	e.buf = appendResultHead(e.buf, r)
	e.text(`,"stdout`, r.Stdout)
	if r.Stderr != "" {
		e.text(`,"stderr`, r.Stderr)
	}
	e.buf = appendResultTail(e.buf, r)
}

// text encodes a member; name comes without its last quote.
func (e *encoder) text(name, s string) {
	if e.packed && grows(s) {
		e.buf = append(append(e.buf, name...), `_base64":"`...)
		for len(s) > 0 && e.err == nil {
			n := min(len(s), textPart)
			e.buf = base64.StdEncoding.AppendEncode(e.buf, []byte(s[:n]))
			s = s[n:]
			e.overflow()
		}
		e.buf = append(e.buf, '"')
		return
	}
	e.buf = append(append(e.buf, name...), `":"`...)
	for len(s) > 0 && e.err == nil {
		n := wholeRunes(s, textPart)
		quoted := len(e.buf)
		e.buf = appendString(e.buf, s[:n])
		// Drop the quotes: each part is encoded as a whole string.
		e.buf = append(e.buf[:quoted], e.buf[quoted+1:len(e.buf)-1]...)
		s = s[n:]
		e.overflow()
	}
	e.buf = append(e.buf, '"')
}

// overflow writes the encoded bytes when there are many.
func (e *encoder) overflow() {
	if e.to != nil && len(e.buf) > smallAnswer {
		_ = e.flush() // e keeps the error
	}
}

// wholeRunes returns the length of the longest prefix of s with at most n bytes that does
// not cut a character.
func wholeRunes(s string, n int) int {
	if len(s) <= n {
		return len(s)
	}
	for at := n; at > n-utf8.UTFMax; at-- {
		if utf8.RuneStart(s[at]) {
			return at
		}
	}
	return n // not valid UTF-8
}

// grows reports whether s is shorter in base64 than in JSON, and is valid UTF-8: JSON
// replaces invalid bytes, base64 does not.
func grows(s string) bool {
	if len(s) < packedText {
		return false
	}
	more := 0
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n' || c == '\t' || c == '\r' || c == '\b' || c == '\f' || c == '"' || c == '\\':
			more++
		case c < ' ':
			more += 5
		}
	}
	return more > len(s)/3 && utf8.ValidString(s)
}

// sizeOf estimates the memory of a result.
func sizeOf(r *sandbox.Result) int {
	n := len(r.ID) + len(r.Stdout) + len(r.Stderr) + len(r.Value) + len(r.Reason)
	if p := r.Error; p != nil {
		n += len(p.Type) + len(p.Message) + len(p.Source)
	}
	return n
}

// size estimates the memory of an answer.
func (a *Answer) size() int {
	if a.Result == nil {
		return 0
	}
	return sizeOf(a.Result)
}

// packedResult is a Result whose streams may be in base64.
type packedResult struct {
	sandbox.Result
	StdoutBase64 []byte `json:"stdout_base64,omitempty"`
	StderrBase64 []byte `json:"stderr_base64,omitempty"`
}

// unpack returns the original Result.
func (p *packedResult) unpack() *sandbox.Result {
	if p == nil {
		return nil
	}
	if p.StdoutBase64 != nil {
		p.Result.Stdout, p.StdoutBase64 = string(p.StdoutBase64), nil
	}
	if p.StderrBase64 != nil {
		p.Result.Stderr, p.StderrBase64 = string(p.StderrBase64), nil
	}
	return &p.Result
}

// packedAnswer is an Answer whose streams may be in base64.
type packedAnswer struct {
	Result *packedResult `json:"result,omitempty"`
	Error  *Failure      `json:"error,omitempty"`
}
