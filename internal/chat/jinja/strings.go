package jinja

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

func strip(st *state, s, name string, c call) (Value, error) {
	a, err := c.bindArgs("chars")
	if err != nil {
		return nil, err
	}
	cut := isSpace
	if argOr(a[0], nil) != nil {
		chars, err := asString(a[0])
		if err != nil {
			return nil, err
		}
		if err := st.charge(len(s) * min(len(chars), 64)); err != nil {
			return nil, err
		}
		cut = func(r rune) bool { return strings.ContainsRune(chars, r) }
	}
	if name != "rstrip" {
		s = strings.TrimLeftFunc(s, cut)
	}
	if name != "lstrip" {
		s = strings.TrimRightFunc(s, cut)
	}
	return s, st.charge(len(s))
}

func split(st *state, s string, fromRight bool, c call) (Value, error) {
	a, err := c.bindArgs("sep", "maxsplit")
	if err != nil {
		return nil, err
	}
	limit, err := asInt(argOr(a[1], int64(-1)))
	if err != nil {
		return nil, err
	}
	if limit < 0 || limit > int64(len(s)) {
		limit = int64(len(s)) + 1
	}
	var parts []string
	if argOr(a[0], nil) == nil {
		parts = splitSpace(s, int(limit), fromRight)
	} else {
		sep, err := asString(a[0])
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, fmt.Errorf("empty separator")
		}
		parts = splitSep(s, sep, int(limit), fromRight)
	}
	out := &List{Items: make([]Value, len(parts))}
	for i, p := range parts {
		out.Items[i] = p
	}
	return out, st.charge(len(s) + 32*len(parts))
}

func splitSep(s, sep string, limit int, fromRight bool) []string {
	if !fromRight {
		return strings.SplitN(s, sep, limit+1)
	}
	var out []string
	for range limit {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		out = append(out, s[i+len(sep):])
		s = s[:i]
	}
	out = append(out, s)
	slices.Reverse(out)
	return out
}

// splitSpace splits at runs of white space. When the number of splits is limited, the
// last piece keeps the white space inside it.
func splitSpace(s string, limit int, fromRight bool) []string {
	var out []string
	if fromRight {
		for s = strings.TrimRightFunc(s, isSpace); s != ""; s = strings.TrimRightFunc(s, isSpace) {
			i := strings.LastIndexFunc(s, isSpace)
			if i < 0 || len(out) == limit {
				out = append(out, s)
				break
			}
			_, n := utf8.DecodeRuneInString(s[i:])
			out = append(out, s[i+n:])
			s = s[:i]
		}
		slices.Reverse(out)
		return out
	}
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		i := strings.IndexFunc(s, isSpace)
		if i < 0 || len(out) == limit {
			return append(out, s)
		}
		out = append(out, s[:i])
		s = s[i:]
	}
	return out
}

// affix is startswith and endswith. A tuple lists alternatives.
func affix(st *state, s string, start bool, c call) (Value, error) {
	a, err := c.bindRequired(1, "prefix")
	if err != nil {
		return nil, err
	}
	options := []Value{a[0]}
	if l, ok := a[0].(*List); ok && l.tuple {
		options = l.Items
	}
	for _, o := range options {
		x, err := asString(o)
		if err != nil {
			return nil, err
		}
		if start && strings.HasPrefix(s, x) || !start && strings.HasSuffix(s, x) {
			return true, nil
		}
	}
	return false, st.charge(8 * len(options))
}

func withString(st *state, s, name string, c call) (Value, error) {
	x, err := oneString(st, s, c, "sep")
	if err != nil {
		return nil, err
	}
	tuple := func(items ...Value) Value { return &List{items, true} }
	switch name {
	case "removeprefix":
		return strings.TrimPrefix(s, x), nil
	case "removesuffix":
		return strings.TrimSuffix(s, x), nil
	}
	if x == "" {
		return nil, fmt.Errorf("empty separator")
	}
	if name == "partition" {
		left, right, found := strings.Cut(s, x)
		if !found {
			return tuple(s, "", ""), nil
		}
		return tuple(left, x, right), nil
	}
	i := strings.LastIndex(s, x)
	if i < 0 {
		return tuple("", "", s), nil
	}
	return tuple(s[:i], x, s[i+len(x):]), nil
}

// oneString is the one argument of a method that reads the whole of s, which is paid for.
func oneString(st *state, s string, c call, name string) (string, error) {
	a, err := c.bindRequired(1, name)
	if err != nil {
		return "", err
	}
	x, err := asString(a[0])
	if err != nil {
		return "", err
	}
	return x, st.charge(len(s))
}

// search is find, index and count over the whole string.
func search(st *state, s, name string, c call) (Value, error) {
	x, err := oneString(st, s, c, "sub")
	if err != nil {
		return nil, err
	}
	if name == "count" {
		return int64(strings.Count(s, x)), nil
	}
	i := strings.Index(s, x)
	if strings.HasPrefix(name, "r") {
		i = strings.LastIndex(s, x)
	}
	if i >= 0 {
		return int64(utf8.RuneCountInString(s[:i])), nil
	}
	if strings.HasSuffix(name, "index") {
		return nil, fmt.Errorf("substring not found")
	}
	return int64(-1), nil
}

func replace(st *state, s string, c call) (Value, error) {
	a, err := c.bindRequired(2, "old", "new", "count")
	if err != nil {
		return nil, err
	}
	before, err := asString(a[0])
	if err != nil {
		return nil, err
	}
	after, err := asString(a[1])
	if err != nil {
		return nil, err
	}
	count := int64(-1)
	if argOr(a[2], nil) != nil {
		if count, err = asInt(a[2]); err != nil {
			return nil, err
		}
	}
	times := strings.Count(s, before)
	if count >= 0 && count < int64(times) {
		times = int(count)
	}
	if len(after) > 0 && times > MaxOutput/len(after) {
		return nil, fmt.Errorf("%w of %d bytes of output", ErrBudget, MaxOutput)
	}
	return strings.Replace(s, before, after, times), st.charge(len(s) + times*len(after))
}

// splitLines splits at Python's line boundaries and drops the line ends.
func splitLines(st *state, s string, c call) (Value, error) {
	a, err := c.bindArgs("keepends")
	if err != nil {
		return nil, err
	}
	keep := truth(argOr(a[0], false))
	out := &List{}
	for s != "" {
		i := strings.IndexFunc(s, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if i < 0 {
			out.Items = append(out.Items, s)
			break
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		line := s[:i]
		if keep {
			line = s[:i+n]
		}
		out.Items = append(out.Items, line)
		s = s[i+n:]
		if err := st.charge(i + n + 32); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func joinMethod(st *state, sep string, c call) (Value, error) {
	a, err := c.bindRequired(1, "iterable")
	if err != nil {
		return nil, err
	}
	items, err := iterate(st, a[0])
	if err != nil {
		return nil, err
	}
	parts := make([]string, len(items))
	for i, item := range items {
		if parts[i], err = asString(item); err != nil {
			return nil, fmt.Errorf("item %d %w", i, err)
		}
	}
	return join(st, parts, sep)
}

// join charges the budget before it builds the text.
func join(st *state, parts []string, sep string) (Value, error) {
	n := len(sep) * max(len(parts)-1, 0)
	for _, p := range parts {
		n += len(p)
	}
	if n > MaxOutput {
		return nil, fmt.Errorf("%w of %d bytes of output", ErrBudget, MaxOutput)
	}
	if err := st.charge(n); err != nil {
		return nil, err
	}
	return strings.Join(parts, sep), nil
}

// pad is ljust, rjust, center and zfill.
func pad(st *state, s, name string, c call) (Value, error) {
	a, err := c.bindRequired(1, "width", "fillchar")
	if err != nil {
		return nil, err
	}
	width, err := asInt(a[0])
	if err != nil {
		return nil, err
	}
	fill, err := asString(argOr(a[1], " "))
	if err != nil {
		return nil, err
	}
	if utf8.RuneCountInString(fill) != 1 {
		return nil, fmt.Errorf("the fill character must be exactly one character long")
	}
	missing := width - int64(utf8.RuneCountInString(s))
	if missing <= 0 {
		return s, nil
	}
	if missing > MaxOutput/4 {
		return nil, fmt.Errorf("%w of %d bytes of output", ErrBudget, MaxOutput)
	}
	n := int(missing)
	if err := st.charge(n * 4); err != nil {
		return nil, err
	}
	switch name {
	case "ljust":
		return s + strings.Repeat(fill, n), nil
	case "rjust":
		return strings.Repeat(fill, n) + s, nil
	case "zfill":
		sign := ""
		if s != "" && (s[0] == '-' || s[0] == '+') {
			sign, s = s[:1], s[1:]
		}
		return sign + strings.Repeat("0", n) + s, nil
	default: // center: where Python puts an odd blank
		left := n/2 + n&int(width)&1
		return strings.Repeat(fill, left) + s + strings.Repeat(fill, n-left), nil
	}
}
