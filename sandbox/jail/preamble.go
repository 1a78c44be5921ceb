package jail

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"sync"
	"time"

	"temper/sandbox"
)

// preambles caches the compiled preambles that clients put before a program in base64, so
// that a call need not compile a preamble that earlier calls had too. A separate program
// compiles it in a jail, with the text as data, and the code is used only for exactly that
// text: no call runs code that another call has made.
type preambles struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]*preamble
}

type preamble struct {
	seen int
	code []byte // for callFile; nil before it is compiled, or if it cannot be
}

// Bounds of the preambles. A text is compiled on its third use.
const (
	minPreamble     = 512
	maxPreamble     = 64 << 10
	maxPreambleCode = 256 << 10
	maxPreambles    = 32
	compileAt       = 3
)

// preambleOf returns the whole lines of a text before the first base64 literal. It is empty
// when there are none, or when they are too short or too long to be cached.
func preambleOf(text string) string {
	at := strings.Index(text, "b64decode(")
	for at >= 0 {
		rest := text[at+len("b64decode("):]
		if rest != "" && (rest[0] == '"' || rest[0] == '\'') && len(rest) > shortestHidden && base64Digit(rest[1]) {
			head := text[:strings.LastIndexByte(text[:at], '\n')+1]
			if len(head) >= minPreamble && len(head) <= maxPreamble {
				return head
			}
			return ""
		}
		next := strings.Index(rest, "b64decode(")
		if next < 0 {
			return ""
		}
		at += len("b64decode(") + next
	}
	return ""
}

// find returns the compiled preamble of req, or nil when there is none.
func (p *preambles) find(ctx context.Context, z *zygote, req sandbox.Request) []byte {
	head := preambleOf(req.Code)
	if head == "" || z.jail.cfg.Fresh != nil {
		return nil
	}
	key := sha256.Sum256([]byte(head))
	p.mu.Lock()
	if p.known == nil || len(p.known) >= maxPreambles && p.known[key] == nil {
		p.known = make(map[[sha256.Size]byte]*preamble) // texts in use return
	}
	entry := p.known[key]
	if entry == nil {
		entry = new(preamble)
		p.known[key] = entry
	}
	entry.seen++
	code, turn := entry.code, entry.seen == compileAt
	p.mu.Unlock()
	if !turn {
		return code
	}
	code, err := z.compile(ctx, head)
	p.mu.Lock()
	defer p.mu.Unlock()
	entry.code = code
	if err != nil { // not an error of the text: the next calls try again
		entry.seen = 0
	}
	return code
}

// compiler is a program that prints the compiled code of its standard input.
const compiler = `import base64, marshal, sys
print(base64.b64encode(marshal.dumps(compile(sys.stdin.read(), "main.py", "exec", 0, True))).decode())`

// compile returns a preamble for callFile: the length of its text, then the code. It
// returns nil when the preamble alone does not compile.
func (z *zygote) compile(ctx context.Context, head string) ([]byte, error) {
	limits := sandbox.Limits{Wall: time.Second, CPU: time.Second, Output: 2 * maxPreambleCode}
	res, err := z.run(ctx, sandbox.Request{Code: compiler, Stdin: head, Limits: limits})
	if err != nil || res.Status != sandbox.StatusOK {
		return nil, err
	}
	code, err := base64.StdEncoding.DecodeString(strings.TrimSpace(res.Stdout))
	if err != nil || len(code) > maxPreambleCode {
		return nil, nil // the code was too long and got cut
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(head))), code...), nil
}
