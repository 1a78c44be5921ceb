package openai

import (
	"slices"
	"strings"

	"temper/internal/chat/tokenizer"
)

// text turns tokens into text that ends before the first stop string.
type text struct {
	decoder *tokenizer.Decoder
	silent  []int32 // tokens that end a turn have no text
	stops   []string
	// whole is all the text so far, and given the length of what take has returned.
	whole strings.Builder
	given int
	ended bool
}

func newText(t *tokenizer.Tokenizer, silent []int32, stops []string) *text {
	return &text{decoder: t.NewDecoder(), silent: silent, stops: stops}
}

// push adds tokens up to the one that completes a stop string. It returns how many, and
// whether there was one.
func (t *text) push(ids []int32) (n int, ended bool) {
	for i, id := range ids {
		if slices.Contains(t.silent, id) {
			continue
		}
		before := t.whole.Len()
		t.whole.WriteString(t.decoder.Push(id))
		if t.cut(before) {
			return i + 1, true
		}
	}
	return len(ids), false
}

// cut ends the text before the first stop string that ends behind from.
func (t *text) cut(from int) bool {
	all, first := t.whole.String(), -1
	for _, s := range t.stops {
		start := max(0, from-len(s)+1)
		if i := strings.Index(all[start:], s); i >= 0 && (first < 0 || start+i < first) {
			first = start + i
		}
	}
	if first < 0 {
		return false
	}
	t.whole.Reset()
	t.whole.WriteString(all[:first])
	t.ended = true
	return true
}

// take returns the text that is certain and has not been taken. The last call takes all.
func (t *text) take(last bool) string {
	if last && !t.ended {
		from := t.whole.Len()
		t.whole.WriteString(t.decoder.Flush())
		t.cut(from)
	}
	all := t.whole.String()
	end := len(all)
	if !last {
		end = max(t.given, end-heldBack(all, t.stops))
	}
	out := all[t.given:end]
	t.given = end
	return out
}
