package tokenizer_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/chat/tokenizer"
)

// nasty draws text of what patterns and normalization tell apart, and bytes that
// are not UTF-8.
func nasty(tok *tokenizer.Tokenizer, t *rapid.T) string {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{"'S", "'\u017f", "e\u0301", "\uac01", "\u1100\u1161", "\r\n", " \n ", "\u00a0", "\u3000", "\U0001f468\u200d", "\xff", "\xe4\xb8", "123"}),
		rapid.Map(rapid.Int32Range(0, int32(tok.VocabSize()-1)), func(id int32) string { return tok.Decode([]int32{id}) }),
		rapid.StringN(0, 4, -1),
		rapid.StringMatching(`[a-c' \n]{0,8}`),
	)
	return strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "text"), "")
}

func TestQwenRoundTrip(t *testing.T) {
	normalize := tokenizer.NormalizeForTest()
	tok := load(t, "qwen_tokenizer.json")
	rapid.Check(t, func(t *rapid.T) {
		text := nasty(tok, t)
		want := normalize(text)
		ids := tok.Encode(text)
		if got := tok.Decode(ids); got != want {
			t.Fatalf("decode(encode(%q)) = %q, want %q", text, got, want)
		}
		if slices.ContainsFunc(ids, tok.IsSpecial) {
			t.Fatalf("plain text %q gave an added token: %v", text, ids)
		}
		if again := tok.Encode(want); !slices.Equal(again, ids) {
			t.Fatalf("%q normalized has other ids: %v, want %v", text, again, ids)
		}
		if got := strings.Join(tokenizer.PiecesForTest(tok, want), ""); got != want {
			t.Fatalf("pieces of %q join to %q", want, got)
		}
	})
}

// TestTextBeforeASpecialTokenKeepsItsIDs is what an append-only transcript rests
// on: what follows a special token moves nothing before it.
func TestTextBeforeASpecialTokenKeepsItsIDs(t *testing.T) {
	tok := load(t, "qwen_tokenizer.json")
	rapid.Check(t, func(t *rapid.T) {
		head, tail := nasty(tok, t)+"<|im_end|>", nasty(tok, t)
		want := append(tok.EncodeSpecial(head), tok.EncodeSpecial(tail)...)
		if diff := cmp.Diff(tok.EncodeSpecial(head+tail), want); diff != "" {
			t.Fatalf("ids of %q then %q: got -, want +\n%s", head, tail, diff)
		}
	})
}

func TestDecoderIsText(t *testing.T) {
	tok := load(t, "qwen_tokenizer.json")
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.OneOf(rapid.Int32Range(0, 255), rapid.Int32Range(-1, int32(tok.VocabSize()))), 0, 20).Draw(t, "ids")
		if rapid.Bool().Draw(t, "of text") {
			ids = tok.EncodeSpecial(nasty(tok, t))
		}
		d := tok.NewDecoder()
		var got strings.Builder
		for _, id := range ids {
			piece := d.Push(id)
			if !utf8.ValidString(piece) {
				t.Fatalf("piece %q is not valid UTF-8", piece)
			}
			got.WriteString(piece)
		}
		got.WriteString(d.Flush())
		if want := tok.Text(ids); got.String() != want {
			t.Fatalf("pieces of %v join to %q, want %q", ids, got.String(), want)
		}
		if text := tok.Decode(ids); utf8.ValidString(text) && got.String() != text {
			t.Fatalf("pieces of %v join to %q, want %q", ids, got.String(), text)
		}
	})
}

func TestTextReplacesWhatIsNoUTF8(t *testing.T) {
	tok := load(t, "qwen_tokenizer.json")
	tests := map[string]string{ // as Rust's String::from_utf8_lossy
		"\xff\xfe":             "\ufffd\ufffd",
		"\xe4\xb8":             "\ufffd",
		"\xe4\xb8x":            "\ufffdx",
		"\xf0\x9f\x98\xf0\x9f": "\ufffd\ufffd",
		"\xe0\x80\x80":         "\ufffd\ufffd\ufffd",
		"\xed\xa0\x80":         "\ufffd\ufffd\ufffd",
		"\xf4\x90":             "\ufffd\ufffd",
		"a\xc3(":               "a\ufffd(",
	}
	for in, want := range tests {
		if got := tok.Text(tok.Encode(in)); got != want {
			t.Errorf("text of %q is %q, want %q", in, got, want)
		}
	}
}

// TestBothWaysToMergeAgree holds the heap of long pieces to the scan of short ones.
func TestBothWaysToMergeAgree(t *testing.T) {
	tok := load(t, "qwen_tokenizer.json")
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.StringMatching(`[a-e ]{1,64}|(in|th|re|or| t){1,20}`).Draw(t, "piece")
		if short, long := tokenizer.MergeForTest(tok, piece); !slices.Equal(short, long) {
			t.Fatalf("%q: %v by scan, %v by heap", piece, short, long)
		}
	})
}

func TestQwenPieces(t *testing.T) {
	tok := load(t, "qwen_tokenizer.json")
	tests := map[string][]string{
		"We'Re it'\u017f I'lL 'k":  {"We", "'Re", " it", "'\u017f", " I", "'lL", " '", "k"},
		"a1\u0663\u2167 22":        {"a", "1", "\u0663", "\u2167", " ", "2", "2"},
		"x  \n\n  y\r\n":           {"x", "  \n\n", " ", " y", "\r\n"},
		"\tif (a != b)\n\n":        {"\tif", " (", "a", " !=", " b", ")\n\n"},
		"a   ":                     {"a", "   "},
		"a\u00a0b\u3000\u3000c":    {"a", "\u00a0b", "\u3000", "\u3000c"},
		"e\u0327x":                 {"e", "\u0327x"},
		"\xffa\xff\xff":            {"\xffa", "\xff\xff"},
		"\u01c5\u02b0\u4e2d\u6587": {"\u01c5\u02b0\u4e2d\u6587"},
	}
	for text, want := range tests {
		if diff := cmp.Diff(tokenizer.PiecesForTest(tok, text), want); diff != "" {
			t.Errorf("pieces of %q: got -, want +\n%s", text, diff)
		}
	}
}

// TestConcurrentEncodersAgree shares one cache between goroutines.
func TestConcurrentEncodersAgree(t *testing.T) {
	tok := load(t, "qwen_tokenizer.json")
	all := rows[golden](t, "qwen_golden.jsonl", 500)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range all {
				r := all[(i*7+g*131)%len(all)]
				if got := tok.EncodeSpecial(r.In); !slices.Equal(got, r.IDs) {
					t.Errorf("ids of %q are %v, want %v", r.In, got, r.IDs)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzQwenRoundTrip(f *testing.F) {
	normalize := tokenizer.NormalizeForTest()
	for _, r := range rows[golden](f, "qwen_golden.jsonl", 500)[:80] {
		f.Add([]byte(r.In))
	}
	f.Add([]byte("\xff\xe4\xb8 '\xc5 e\xcc\x81"))
	tok := load(f, "qwen_tokenizer.json")
	f.Fuzz(func(t *testing.T, data []byte) {
		want := normalize(string(data))
		ids := tok.Encode(string(data))
		if got := tok.Decode(ids); got != want {
			t.Fatalf("decode(encode(%q)) = %q, want %q", data, got, want)
		}
		d := tok.NewDecoder()
		var streamed strings.Builder
		for _, id := range ids {
			streamed.WriteString(d.Push(id))
		}
		if got := streamed.String() + d.Flush(); got != tok.Text(ids) {
			t.Fatalf("streamed %q, want %q", got, tok.Text(ids))
		}
	})
}
