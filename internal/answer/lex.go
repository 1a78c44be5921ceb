package answer

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// errFormula is the error of every text that is no formula.
var errFormula = errors.New("not a formula")

func noFormula(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errFormula, fmt.Sprintf(format, args...))
}

// kind is the kind of a token.
type kind int

const (
	tokEnd kind = iota
	tokNum
	tokName // a letter, a word that names something, or a command without its backslash
	tokMark // one byte of punctuation, or "\{" and "\}"
)

type token struct {
	kind  kind
	text  string
	num   *big.Rat
	whole bool // a number without point and exponent
}

// Bounds of a formula.
const (
	maxText       = 4096
	maxTokens     = 2048
	maxDepth      = 64
	maxTenPower   = 4000
	thousandGroup = 3
)

// isFunction reports whether a word is the name of a function.
func isFunction(name string) bool {
	switch name {
	case "sqrt", "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan",
		"sinh", "cosh", "tanh", "log", "ln", "lg", "exp", "abs":
		return true
	}
	return false
}

// lexer splits a cleaned text into tokens.
type lexer struct {
	text string
	at   int
	// open is the number of open brackets: inside them a comma separates elements and never
	// thousands.
	open   int
	tokens []token
}

func lex(text string) ([]token, error) {
	l := &lexer{text: text}
	for l.at < len(l.text) {
		if err := l.one(); err != nil {
			return nil, err
		}
		if len(l.tokens) > maxTokens {
			return nil, noFormula("more than %d tokens", maxTokens)
		}
	}
	return append(l.tokens, token{}), nil
}

func (l *lexer) add(k kind, text string) {
	l.tokens = append(l.tokens, token{kind: k, text: text})
}

func (l *lexer) one() error {
	c := l.text[l.at]
	switch {
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		l.at++
	case isDigit(c) || c == '.' && l.at+1 < len(l.text) && isDigit(l.text[l.at+1]):
		return l.number()
	case isLetter(c):
		l.name()
	case c == '\\':
		return l.command()
	case strings.IndexByte("+-*/^_!%()[]{}|,;:=<>&", c) >= 0:
		l.mark(string(c))
		l.at++
	default:
		return noFormula("byte %d is %q", l.at, c)
	}
	return nil
}

func (l *lexer) mark(text string) {
	switch text {
	case "(", "[", `\{`:
		l.open++
	case ")", "]", `\}`:
		l.open--
	}
	l.add(tokMark, text)
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// run returns the end of the bytes from i on for which is returns true.
func (l *lexer) run(i int, is func(byte) bool) int {
	for i < len(l.text) && is(l.text[i]) {
		i++
	}
	return i
}

// command reads \name, \{ and \}.
func (l *lexer) command() error {
	end := l.run(l.at+1, isLetter)
	if end > l.at+1 {
		switch name := l.text[l.at+1 : end]; name {
		case "lbrace":
			l.mark(`\{`)
		case "rbrace":
			l.mark(`\}`)
		default:
			l.add(tokName, name)
		}
		l.at = end
		return nil
	}
	if end < len(l.text) && (l.text[end] == '{' || l.text[end] == '}') {
		l.mark(l.text[l.at : end+1])
		l.at = end + 1
		return nil
	}
	return noFormula("a backslash before no name")
}

// name reads a known word, or one letter.
func (l *lexer) name() {
	end := l.run(l.at, isLetter)
	if w := l.text[l.at:end]; isFunction(w) || w == "pi" {
		l.add(tokName, w)
		l.at = end
		return
	}
	l.add(tokName, l.text[l.at:l.at+1])
	l.at++
}

// number reads digits, thousands, a fraction and a power of ten.
func (l *lexer) number() error {
	start := l.at
	l.at = l.run(l.at, isDigit)
	digits := l.text[start:l.at]
	if l.open == 0 && len(digits) >= 1 && len(digits) <= thousandGroup {
		for sep := byte(0); l.thousands(sep); {
			sep = l.text[l.at]
			digits += l.text[l.at+1 : l.at+1+thousandGroup]
			l.at += 1 + thousandGroup
		}
	}
	whole := true
	if l.at < len(l.text) && l.text[l.at] == '.' {
		end := l.run(l.at+1, isDigit)
		places := end - l.at - 1
		digits += l.text[l.at:end]
		l.at, whole = end, false
		if again := l.repeated(); again != "" {
			return l.addRepeating(digits, places, again)
		}
	} else if base := l.base(); base != "" {
		return l.ofBase(digits, base)
	}
	exponent, err := l.exponent()
	if err != nil {
		return err
	}
	value, ok := new(big.Rat).SetString(strings.TrimSuffix(digits, ".") + exponent)
	if !ok {
		return noFormula("number %.20q", digits)
	}
	l.tokens = append(l.tokens, token{kind: tokNum, num: value, whole: whole && exponent == ""})
	return nil
}

// thousands reports whether a separator and exactly three digits come next: a comma, or a
// blank if no fraction follows the digits. sep is the separator that was used before, 0 for
// none.
func (l *lexer) thousands(sep byte) bool {
	if l.at >= len(l.text) || sep != 0 && l.text[l.at] != sep {
		return false
	}
	end := l.at + 1 + thousandGroup
	switch {
	case l.run(l.at+1, isDigit) != end:
		return false
	case l.text[l.at] == ',':
		return true
	case l.text[l.at] != ' ':
		return false
	}
	rest := strings.TrimLeft(l.text[end:], " ")
	return !strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, `\frac`)
}

// repeated reads the digits under a bar after a decimal point.
func (l *lexer) repeated() string {
	for _, mark := range [...]string{`\overline{`, `\bar{`, `\dot{`} {
		if !strings.HasPrefix(l.text[l.at:], mark) {
			continue
		}
		start := l.at + len(mark)
		end := l.run(start, isDigit)
		if end > start && end < len(l.text) && l.text[end] == '}' {
			l.at = end + 1
			return l.text[start:end]
		}
	}
	return ""
}

// addRepeating adds a decimal number whose last digits repeat without end.
func (l *lexer) addRepeating(digits string, places int, again string) error {
	if places+len(again) > maxTenPower {
		return noFormula("more than %d digits", maxTenPower)
	}
	value, ok := new(big.Rat).SetString(strings.TrimSuffix(digits, "."))
	part, okPart := new(big.Int).SetString(again, 10)
	if !ok || !okPart {
		return noFormula("number %.20q", digits)
	}
	ten := func(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }
	nines := new(big.Int).Sub(ten(len(again)), big.NewInt(1))
	value.Add(value, new(big.Rat).SetFrac(part, nines.Mul(nines, ten(places))))
	l.tokens = append(l.tokens, token{kind: tokNum, num: value})
	return nil
}

// base reads the base of a number, its subscript; "" if there is none.
func (l *lexer) base() string {
	start := l.at + 1
	if l.at >= len(l.text) || l.text[l.at] != '_' {
		return ""
	}
	braced := start < len(l.text) && l.text[start] == '{'
	if braced {
		start++
	}
	end := l.run(start, isDigit)
	if end == start || braced && (end >= len(l.text) || l.text[end] != '}') {
		return ""
	}
	if l.at = end; braced {
		l.at++
	}
	return l.text[start:end]
}

// ofBase adds a whole number in another base.
func (l *lexer) ofBase(digits, base string) error {
	b, err := strconv.Atoi(base)
	if err != nil || b < 2 || b > 36 {
		return noFormula("base %.20q, want 2 to 36", base)
	}
	value, ok := new(big.Int).SetString(digits, b)
	if !ok {
		return noFormula("%.20q is no number of base %d", digits, b)
	}
	l.tokens = append(l.tokens, token{kind: tokNum, num: new(big.Rat).SetInt(value), whole: true})
	return nil
}

// exponent reads the power of ten of a number such as 1.5e-3.
func (l *lexer) exponent() (string, error) {
	if l.at >= len(l.text) || l.text[l.at]|0x20 != 'e' {
		return "", nil
	}
	i := l.at + 1
	if i < len(l.text) && (l.text[i] == '-' || l.text[i] == '+') {
		i++
	}
	end := l.run(i, isDigit)
	if end == i {
		return "", nil // Euler's number
	}
	n, err := strconv.Atoi(l.text[i:end])
	if err != nil || n > maxTenPower {
		return "", noFormula("power of ten beyond %d", maxTenPower)
	}
	text := l.text[l.at:end]
	l.at = end
	return text, nil
}
