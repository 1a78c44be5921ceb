package tokenizer_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/chat/tokenizer"
)

func specials() []string {
	return []string{"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<|im"}
}

func corpus() []string {
	return []string{
		"<|im_start|>user\nk396?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"python\"}\n</tool_call><|im_end|>",
		"<|im_start|>user\nk116?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"python\"}\n</tool_call><|im_end|>",
		"print(db['k116']) print(db['k396']) h\u00e9llo h\u00e9llo \u4e16\u754c \u4e16\u754c",
		"aaaaaaa aaaaa aaa", // where it matters which of two equal pairs merges first
	}
}

func trained(t testing.TB, merges int) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Train(slices.Values(corpus()), merges, specials())
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestRoundTripAnyBytes(t *testing.T) {
	tok := trained(t, 60)
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		ids := tok.Encode(text)
		if got := tok.Decode(ids); got != text {
			t.Fatalf("decode(encode(%q)) = %q", text, got)
		}
		for _, id := range ids {
			if tok.IsSpecial(id) {
				t.Fatalf("plain text %q gave special token %d", text, id)
			}
		}
		if got := tok.Decode(tok.EncodeSpecial(text)); got != text {
			t.Fatalf("decode(encodeSpecial(%q)) = %q", text, got)
		}
	})
}

// drawText mixes arbitrary bytes with pieces that provoke merges and specials.
func drawText(t *rapid.T) string {
	part := rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) }),
		rapid.SampledFrom(append(corpus(), specials()...)),
		rapid.StringMatching(`[a-z0-9 ]{0,6}`), rapid.StringMatching(`a{0,9}`),
	)
	return strings.Join(rapid.SliceOfN(part, 0, 6).Draw(t, "text"), "")
}

// TestEncodeMatchesReplay checks the queue against merging rank by rank.
func TestEncodeMatchesReplay(t *testing.T) {
	tok := trained(t, 60)
	byText := map[string]int32{}
	for id := range tok.VocabSize() {
		byText[tok.Decode([]int32{int32(id)})] = int32(id)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		want := replay(tok, byText, text)
		if diff := cmp.Diff(tok.Encode(text), want); diff != "" {
			t.Fatalf("encode %q: got -, want +\n%s", text, diff)
		}
	})
}

// replay is the textbook BPE: ids after specials are merges in rank order and
// each is tried over the whole text before the next.
func replay(tok *tokenizer.Tokenizer, byText map[string]int32, text string) []int32 {
	var ids []int32
	var words [][]string
	for _, b := range []byte(text) {
		isDigit := b >= '0' && b <= '9'
		last := len(words) - 1
		if last < 0 || isDigit || isDigitWord(words[last]) {
			words = append(words, nil)
			last++
		}
		words[last] = append(words[last], string([]byte{b}))
	}
	merges := tokenizer.MergesForTest(tok)
	for _, w := range words {
		for _, m := range merges {
			for i := 0; i+1 < len(w); i++ {
				if w[i] == m[0] && w[i+1] == m[1] {
					w = append(append(slices.Clone(w[:i]), m[0]+m[1]), w[i+2:]...)
				}
			}
		}
		for _, s := range w {
			ids = append(ids, byText[s])
		}
	}
	return ids
}

func isDigitWord(w []string) bool { return len(w) == 1 && w[0] >= "0" && w[0] <= "9" }

func TestSpecialsAreRecognisedOnlyWhenAsked(t *testing.T) {
	tok := trained(t, 20)
	start, _ := tok.Special("<|im_start|>")
	short, _ := tok.Special("<|im")
	got := tok.EncodeSpecial("<|im_start|><|im")
	if diff := cmp.Diff(got, []int32{start, short}); diff != "" {
		t.Errorf("longest special first: got -, want +\n%s", diff)
	}
	if got := tok.Encode("<|im_start|>"); slices.ContainsFunc(got, tok.IsSpecial) {
		t.Errorf("Encode recognised a special: %v", got)
	}
}

func TestDigitsStandAlone(t *testing.T) {
	tok := trained(t, 200)
	for id := range tok.VocabSize() {
		text := tok.Decode([]int32{int32(id)})
		if len(text) > 1 && !tok.IsSpecial(int32(id)) && strings.ContainsAny(text, "0123456789") {
			t.Errorf("token %d %q holds a digit", id, text)
		}
	}
	if got := len(tok.Encode("396")); got != 3 {
		t.Errorf("396 takes %d tokens, want 3", got)
	}
}

func TestTrainIsAFunctionOfTheMultiset(t *testing.T) {
	a := trained(t, 50)
	reversed := corpus()
	slices.Reverse(reversed)
	b, err := tokenizer.Train(slices.Values(reversed), 50, specials())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(marshal(t, a), marshal(t, b)) {
		t.Error("order of the corpus changed the tokenizer")
	}
	if a.NumMerges() != 50 {
		t.Errorf("%d merges, want 50", a.NumMerges())
	}
}

func marshal(t *testing.T, tok *tokenizer.Tokenizer) []byte {
	t.Helper()
	data, err := tok.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSaveLoadKeepsEveryID(t *testing.T) {
	tok := trained(t, 60)
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := tok.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := tokenizer.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(marshal(t, tok), marshal(t, loaded)) {
		t.Error("saved and loaded tokenizers differ")
	}
	for _, text := range append(corpus(), "\xff\x00 odd 12") {
		if diff := cmp.Diff(loaded.EncodeSpecial(text), tok.EncodeSpecial(text)); diff != "" {
			t.Errorf("encode %q: got -, want +\n%s", text, diff)
		}
	}
}

// TestOneIDPerSpelling: two merges that give the same bytes share an id, as a
// vocabulary keyed by spelling demands.
func TestOneIDPerSpelling(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringMatching(`[abc]{2,12}`), 1, 8).Draw(t, "texts")
		tok, err := tokenizer.Train(slices.Values(texts), 30, specials())
		if err != nil {
			t.Fatal(err)
		}
		data, err := tok.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := tokenizer.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if diff := cmp.Diff(loaded.Encode(text), tok.Encode(text)); diff != "" {
				t.Fatalf("encode %q: got -, want +\n%s", text, diff)
			}
		}
	})
}

func TestTrainRefusesOddSpecials(t *testing.T) {
	for _, s := range []string{"", "a", "\u0120a", "a b"} {
		if _, err := tokenizer.Train(slices.Values(corpus()), 1, []string{s}); err == nil {
			t.Errorf("special %q accepted", s)
		}
	}
}

func TestParseRefusesWhatItWouldNotFollow(t *testing.T) {
	good := string(marshal(t, trained(t, 5)))
	tests := map[string][3]string{
		"other model":   {`"type": "BPE"`, `"type": "WordPiece"`, "model.type"},
		"other split":   {`"Regex": "[0-9]"`, `"Regex": "\\s+"`, `pretokenizers[0].pattern.Regex "\\s+" is not supported`},
		"gpt2 regex":    {`"use_regex": false`, `"use_regex": true`, "use_regex"},
		"normalizer":    {`"normalizer": null`, `"normalizer": {"type": "NFKC"}`, `normalizer.type "NFKC" is not supported, want NFC`},
		"missing byte":  {`"!": 33`, `"!!": 33`, "lacks byte 33"},
		"shared id":     {`"!": 33`, `"!": 34`, "id 34 with another"},
		"huge id":       {`"!": 33`, `"!": 2000000`, "id 2000000"},
		"moved special": {`"<tool_call>": 258`, `"<tool_call>": 999`, "the vocabulary says 999"},
		"special byte": {`"id": 258,
   "content": "<tool_call>"`, `"id": 33,
   "content": "!"`, "byte 33 is a special token"},
		"not json": {`{`, `[`, "parse tokenizer"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, c[0], c[1], 1)
			if bad == good {
				t.Fatalf("%q is not in the file", c[0])
			}
			_, err := tokenizer.Parse([]byte(bad))
			if err == nil || !strings.Contains(err.Error(), c[2]) {
				t.Errorf("error %v, want one naming %q", err, c[2])
			}
		})
	}
}

func TestStreamNeverCutsARune(t *testing.T) {
	tok := trained(t, 0)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		s := tok.NewDecoder()
		var got strings.Builder
		for _, id := range tok.Encode(text) {
			piece := s.Push(id)
			if !utf8.ValidString(piece) {
				t.Fatalf("piece %q of %q is not valid UTF-8", piece, text)
			}
			got.WriteString(piece)
		}
		if rest := s.Flush(); rest != "" {
			t.Fatalf("%q held back at the end of %q", rest, text)
		}
		if got.String() != text {
			t.Fatalf("streamed %q, want %q", got.String(), text)
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	for _, s := range append(corpus(), "\xff\xfe", "<|im_start|>") {
		f.Add([]byte(s))
	}
	tok := trained(f, 60)
	f.Fuzz(func(t *testing.T, data []byte) {
		ids := tok.Encode(string(data))
		if got := tok.Decode(ids); got != string(data) {
			t.Fatalf("decode(encode(%q)) = %q", data, got)
		}
		if slices.ContainsFunc(ids, tok.IsSpecial) {
			t.Fatalf("plain text %q gave a special token", data)
		}
	})
}

func FuzzParse(f *testing.F) {
	data, err := trained(f, 5).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := tokenizer.Parse(data)
		if err != nil {
			return
		}
		if got := tok.Decode(tok.Encode("a1 b")); got != "a1 b" {
			t.Fatalf("an accepted file gives %q", got)
		}
	})
}
