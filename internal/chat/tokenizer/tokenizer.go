// Package tokenizer owns the map between bytes and token ids: byte-level BPE in the
// tokenizer.json format of Hugging Face, and a deterministic trainer for it. For the
// components that it knows it gives exactly the ids of the reference library; it
// refuses others by name. Chat templates belong to package chat.
//
// Invariant: Decode(Encode(x)) is x, in normalization form C where the file asks
// for it, for any bytes x; bytes that are not UTF-8 stay. Encode never yields an
// added token, so text of users and tools cannot forge a control token.
package tokenizer

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"
)

// numBytes is the size of the base alphabet: the ids 0..255 of a trained
// tokenizer are the bytes themselves.
const numBytes = 256

// pair is two adjacent tokens.
type pair struct{ left, right int32 }

// Tokenizer is immutable and safe for concurrent use.
type Tokenizer struct {
	// content holds the bytes of each id.
	content [][]byte
	byteIDs [numBytes]int32
	merges  mergeTable
	// order lists the pairs of merges by rank, for writing.
	order []pair
	// whole maps bytes to their id; nil unless the file sets ignore_merges, with which a
	// piece in the vocabulary is one token regardless of the merges.
	whole map[string]int32
	cache *cache

	// added holds the added tokens sorted by id. The matchers find them, first in the
	// text as given, then in the normalized text between those.
	added             []added
	given, normalized *matcher
	// nfc is nil without a normalizer.
	nfc *composer
	// regex is the pattern of split; byLevel says that it is the one of ByteLevel.
	regex   string
	byLevel bool
	split   splitter
	// before and after are the tokens that a template puts around a text.
	before, after []int32
	post          json.RawMessage
	notes         []string
}

// VocabSize is the largest id plus one.
func (t *Tokenizer) VocabSize() int { return len(t.content) }

// NumMerges is the number of merges.
func (t *Tokenizer) NumMerges() int { return len(t.order) }

// Notes lists the parts of the file that have no effect here.
func (t *Tokenizer) Notes() []string { return slices.Clone(t.notes) }

// Special returns the id of the added token with the given content.
func (t *Tokenizer) Special(content string) (int32, bool) {
	for i := range t.added {
		if t.added[i].content == content {
			return t.added[i].id, true
		}
	}
	return 0, false
}

// IsSpecial reports whether id is an added token: one that only EncodeSpecial
// yields, such as <|im_start|> or <tool_call>.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.addedAt(id) != nil }

func (t *Tokenizer) addedAt(id int32) *added {
	i, found := slices.BinarySearchFunc(t.added, id, func(a added, id int32) int { return int(a.id) - int(id) })
	if !found {
		return nil
	}
	return &t.added[i]
}

// Encode returns the ids of text as plain data: the content of an added token
// in it becomes ordinary bytes. Use it for everything that users, tools or
// models wrote.
func (t *Tokenizer) Encode(text string) []int32 {
	return t.appendPlain(nil, text)
}

// EncodeSpecial returns the ids of trusted text and recognises added tokens: the
// leftmost first, and the longest where several begin at one place.
func (t *Tokenizer) EncodeSpecial(text string) []int32 {
	var ids []int32
	for plain, id := range t.Segments(text) {
		ids = t.appendPlain(ids, plain)
		if id >= 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// PostProcess puts the tokens of the file's template, if it has one, around ids.
func (t *Tokenizer) PostProcess(ids []int32) []int32 {
	return slices.Concat(t.before, ids, t.after)
}

// Segments cuts trusted text at its added tokens. Each plain text comes with the id of
// the token after it; a text at the end comes with -1. The whitespace that a token
// strips belongs to no segment.
func (t *Tokenizer) Segments(text string) iter.Seq2[string, int32] {
	return func(yield func(string, int32) bool) {
		t.given.cut(text, func(plain string, tok *added) bool {
			rest := plain
			if t.normalized.isFilled {
				rest = ""
				goOn := t.normalized.cut(t.normalize(plain), func(plain string, tok *added) bool {
					if tok == nil {
						rest = plain
						return true
					}
					return yield(plain, tok.id)
				})
				if !goOn {
					return false
				}
			}
			switch {
			case tok != nil:
				return yield(rest, tok.id)
			case rest != "":
				return yield(rest, -1)
			default:
				return true
			}
		})
	}
}

func (t *Tokenizer) normalize(text string) string {
	if t.nfc == nil {
		return text
	}
	return t.nfc.normalize(text)
}

func (t *Tokenizer) appendPlain(ids []int32, text string) []int32 {
	text = t.normalize(text)
	ids = slices.Grow(ids, len(text)/bytesPerToken)
	for text != "" {
		n := t.split.next(text)
		ids = t.appendPiece(ids, text[:n])
		text = text[n:]
	}
	return ids
}

// bytesPerToken is the usual number of bytes of a token, or less.
const bytesPerToken = 3

// Decode returns the bytes of ids and skips unknown ids. The bytes need not be valid
// UTF-8; Text and Decoder return text for people.
func (t *Tokenizer) Decode(ids []int32) string {
	size := 0
	for _, id := range ids {
		size += len(t.contentOf(id))
	}
	var b strings.Builder
	b.Grow(size)
	for _, id := range ids {
		b.Write(t.contentOf(id))
	}
	return b.String()
}

// AppendDecode appends what Decode returns.
func (t *Tokenizer) AppendDecode(dst []byte, ids []int32) []byte {
	for _, id := range ids {
		dst = append(dst, t.contentOf(id)...)
	}
	return dst
}

func (t *Tokenizer) contentOf(id int32) []byte {
	if id < 0 || int(id) >= len(t.content) {
		return nil
	}
	return t.content[id]
}
