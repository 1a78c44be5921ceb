package tokenizer

// The regular expressions of Split pre-tokenizers that this package follows.
// Each is matched by hand: Go's regexp has no lookahead.
const (
	// digitRegex is the pattern of tokenizers that Train makes.
	digitRegex  = "[0-9]"
	qwenRegex   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	llama3Regex = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt2Regex   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// splitter returns the length of the first piece of a text that is not empty.
// Merges never cross a piece.
type splitter interface {
	next(s string) int
}

// newSplitter returns the splitter of a pattern, nil for one that is not known.
func newSplitter(regex string) splitter {
	switch regex {
	case digitRegex:
		return digits{}
	case qwenRegex:
		return &words{newClasses(), 1}
	case llama3Regex:
		return &words{newClasses(), 3}
	case gpt2Regex:
		return &gpt2{newClasses()}
	default:
		return nil
	}
}

// digits makes each ASCII digit a piece, and everything between two digits one piece.
type digits struct{}

func (digits) next(s string) int {
	for i := range len(s) {
		if s[i] >= '0' && s[i] <= '9' {
			return max(i, 1)
		}
	}
	return len(s)
}

// words is qwenRegex and, with up to three numbers in a piece, llama3Regex.
type words struct {
	*classes
	maxNumbers int
}

func (w *words) next(s string) int {
	if n := contraction(s, true); n > 0 {
		return n
	}
	first, n := w.of(s)
	switch {
	case first == letter:
		return n + w.runLength(s[n:], letter)
	case first == number:
		return w.numbers(s)
	case !isNewline(s[0]):
		if run := w.runLength(s[n:], letter); run > 0 {
			return n + run
		}
	}
	at := 0
	if s[0] == ' ' {
		at = 1
	}
	if run := w.runLength(s[at:], other); run > 0 {
		at += run
		for at < len(s) && isNewline(s[at]) {
			at++
		}
		return at
	}
	return w.spaces(s, true)
}

func (w *words) numbers(s string) int {
	at := 0
	for range w.maxNumbers {
		k, n := w.of(s[at:])
		if k != number {
			break
		}
		at += n
	}
	return at
}

// gpt2 is gpt2Regex.
type gpt2 struct{ *classes }

func (g *gpt2) next(s string) int {
	if n := contraction(s, false); n > 0 {
		return n
	}
	at := 0
	if s[0] == ' ' {
		at = 1
	}
	if k, _ := g.of(s[at:]); k != space && at < len(s) {
		return at + g.runLength(s[at:], k)
	}
	return g.spaces(s, false)
}

// spaces matches whitespace: `\s+(?!\S)|\s+` is all of it but the last rune, which may
// begin the next piece. With lines, `\s*[\r\n]+` comes first and reaches to the last
// line end.
func (c *classes) spaces(s string, lines bool) int {
	at, last, line := 0, 0, 0
	for at < len(s) {
		k, n := c.of(s[at:])
		if k != space {
			break
		}
		last = at
		if isNewline(s[at]) {
			line = at + 1
		}
		at += n
	}
	switch {
	case lines && line > 0:
		return line
	case at == len(s) || last == 0:
		return at
	default:
		return last
	}
}

func isNewline(b byte) bool { return b == '\r' || b == '\n' }

// longS also matches an s when case is ignored. No other rune beyond ASCII folds to a
// letter of a contraction.
const longS = "\u017f"

// contraction returns the length of an English contraction at the start of s.
func contraction(s string, anyCase bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	lower := func(b byte) byte {
		if anyCase && b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	switch lower(s[1]) {
	case 's', 't', 'm', 'd':
		return 2
	case longS[0]:
		if anyCase && len(s) >= 3 && s[2] == longS[1] {
			return 3
		}
	case 'r', 'v':
		if len(s) >= 3 && lower(s[2]) == 'e' {
			return 3
		}
	case 'l':
		if len(s) >= 3 && lower(s[2]) == 'l' {
			return 3
		}
	}
	return 0
}
