package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// class is the kind of a rune as far as the patterns care.
type class byte

// The classes that the known patterns distinguish. Bytes that are not UTF-8 are other,
// each on its own, like the replacement rune.
const (
	other  class = iota // [^\s\p{L}\p{N}]
	letter              // \p{L}
	number              // \p{N}
	space               // \s
)

// classesPerByte is how many runes share a byte of the table.
const classesPerByte = 4

// classes holds two bits for each rune, so that classifying a rune of any script is one
// load. The regular expressions of the reference library know Unicode 16.
type classes [(unicode.MaxRune + 1) / classesPerByte]byte

func newClasses() *classes {
	c := new(classes)
	c.fill(unicode.L, letter)
	c.fill(unicode.N, number)
	c.fill(unicode.White_Space, space)
	c.fill(sinceUnicode17(), other)
	return c
}

func (c *classes) fill(table *unicode.RangeTable, k class) {
	for _, r := range table.R16 {
		for v := rune(r.Lo); v <= rune(r.Hi); v += rune(r.Stride) {
			c.set(v, k)
		}
	}
	for _, r := range table.R32 {
		for v := rune(r.Lo); v <= rune(r.Hi); v += rune(r.Stride) {
			c.set(v, k)
		}
	}
}

func (c *classes) set(r rune, k class) {
	shift := uint(r%classesPerByte) * 2
	b := &c[r/classesPerByte]
	*b = *b&^(3<<shift) | byte(k)<<shift
}

// of returns the class and the width of the first rune of s, other and 0 at the
// end of s.
func (c *classes) of(s string) (class, int) {
	if s == "" {
		return other, 0
	}
	if b := s[0]; b < utf8.RuneSelf {
		return c.get(rune(b)), 1
	}
	r, n := utf8.DecodeRuneInString(s)
	return c.get(r), n
}

func (c *classes) get(r rune) class {
	return class(c[r/classesPerByte] >> (uint(r%classesPerByte) * 2) & 3)
}

// runLength returns how many first bytes of s are of class k.
func (c *classes) runLength(s string, k class) int {
	i := 0
	for i < len(s) {
		got, n := c.of(s[i:])
		if got != k {
			break
		}
		i += n
	}
	return i
}

// sinceUnicode17 lists the letters, marks and numbers that Go's tables have but those
// of the reference library, which are one version older, do not.
func sinceUnicode17() *unicode.RangeTable {
	return &unicode.RangeTable{
		R16: []unicode.Range16{
			{0x88f, 0x88f, 1}, {0xc5c, 0xc5c, 1}, {0xcdc, 0xcdc, 1}, {0x1acf, 0x1add, 1}, {0x1ae0, 0x1aeb, 1}, {0xa7ce, 0xa7cf, 1}, {0xa7d2, 0xa7d4, 2}, {0xa7f1, 0xa7f1, 1},
		},
		R32: []unicode.Range32{
			{0x10940, 0x10959, 1}, {0x10ec5, 0x10ec7, 1}, {0x10efa, 0x10efb, 1}, {0x11b60, 0x11b67, 1}, {0x11db0, 0x11ddb, 1}, {0x11de0, 0x11de9, 1}, {0x16ea0, 0x16eb8, 1},
			{0x16ebb, 0x16ed3, 1}, {0x16ff2, 0x16ff6, 1}, {0x187f8, 0x187ff, 1}, {0x18d09, 0x18d1e, 1}, {0x18d80, 0x18df2, 1},
			{0x1e6c0, 0x1e6de, 1}, {0x1e6e0, 0x1e6f5, 1},
			{0x1e6fe, 0x1e6ff, 1}, {0x2b73a, 0x2b73f, 1}, {0x2cea2, 0x2cead, 1}, {0x323b0, 0x33479, 1},
		},
	}
}

// sinceUnicode10 lists the runes that Go's normalization reorders or decomposes but that
// of the reference library, made for Unicode 9, leaves alone.
func sinceUnicode10() *unicode.RangeTable {
	return &unicode.RangeTable{
		R16: []unicode.Range16{
			{0x7fd, 0x7fd, 1}, {0x897, 0x89f, 1}, {0x8ca, 0x8d3, 1}, {0x9fe, 0x9fe, 1}, {0xc3c, 0xc3c, 1}, {0xd3b, 0xd3c, 1},
			{0xeba, 0xeba, 1}, {0x1715, 0x1715, 1}, {0x1abf, 0x1add, 1}, {0x1ae0, 0x1aeb, 1}, {0x1df6, 0x1dfa, 1}, {0xa82c, 0xa82c, 1},
		},
		R32: []unicode.Range32{
			{0x105c9, 0x105c9, 1}, {0x105e4, 0x105e4, 1}, {0x10d24, 0x10d27, 1}, {0x10d69, 0x10d6d, 1}, {0x10eab, 0x10eac, 1},
			{0x10efa, 0x10efb, 1}, {0x10efd, 0x10eff, 1}, {0x10f46, 0x10f50, 1}, {0x10f82, 0x10f85, 1}, {0x11070, 0x11070, 1},
			{0x1133b, 0x1133b, 1}, {0x11383, 0x11385, 2}, {0x1138e, 0x11391, 3}, {0x113c5, 0x113c5, 1}, {0x113c7, 0x113c8, 1},
			{0x113ce, 0x113d0, 1}, {0x1145e, 0x1145e, 1}, {0x11839, 0x1183a, 1}, {0x11938, 0x11938, 1}, {0x1193d, 0x1193e, 1},
			{0x11943, 0x11943, 1}, {0x119e0, 0x119e0, 1}, {0x11a34, 0x11a34, 1}, {0x11a47, 0x11a47, 1}, {0x11a99, 0x11a99, 1},
			{0x11d42, 0x11d42, 1}, {0x11d44, 0x11d45, 1}, {0x11d97, 0x11d97, 1}, {0x11f41, 0x11f42, 1}, {0x16121, 0x16128, 1},
			{0x1612f, 0x1612f, 1}, {0x16d68, 0x16d6a, 1}, {0x16ff0, 0x16ff1, 1}, {0x1e08f, 0x1e08f, 1}, {0x1e130, 0x1e136, 1},
			{0x1e2ae, 0x1e2ae, 1}, {0x1e2ec, 0x1e2ef, 1}, {0x1e4ec, 0x1e4ef, 1}, {0x1e5ee, 0x1e5ef, 1}, {0x1e6e3, 0x1e6e3, 1},
			{0x1e6e6, 0x1e6e6, 1}, {0x1e6ee, 0x1e6ef, 1}, {0x1e6f5, 0x1e6f5, 1},
		},
	}
}
