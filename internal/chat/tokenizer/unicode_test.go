package tokenizer_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat/tokenizer"
)

// TestUnicodeIsThatOfTheReferenceLibrary visits every code point: a newer table
// in Go or in x/text shows here, and wants a line in unicode.go.
func TestUnicodeIsThatOfTheReferenceLibrary(t *testing.T) {
	normalize := tokenizer.NormalizeForTest()
	data, err := os.ReadFile("testdata/unicode_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	digests := map[string]hash.Hash{"classes": sha256.New(), "words": sha256.New(), "nfc": sha256.New()}
	class := tokenizer.ClassForTest()
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		k, w := class(r)
		digests["classes"].Write([]byte{k})
		digests["words"].Write([]byte{w})
		if r >= 0x34000 && r < 0xe0000 || r >= 0xe1000 {
			continue // empty and private planes: nothing to normalize
		}
		text := fmt.Sprintf("%c a%c\u0301%c\u0345\u0334\n", r, r, r)
		_, _ = io.WriteString(digests["nfc"], normalize(text)) // a hash takes all bytes
	}
	got := map[string]string{}
	for name, h := range digests {
		got[name] = hex.EncodeToString(h.Sum(nil))
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("digests: got -, want +\n%s", diff)
	}
}

func TestNormalizeKeepsWhatIsNoUTF8(t *testing.T) {
	normalize := tokenizer.NormalizeForTest()
	tests := map[string]string{
		"e\u0301\xffe\u0301":                     "\u00e9\xff\u00e9",
		"e\xff\u0301":                            "e\xff\u0301",
		"\xe4\xb8":                               "\xe4\xb8",
		"a\xcc":                                  "a\xcc",
		"e" + strings.Repeat("\u0316", 100):      "e" + strings.Repeat("\u0316", 100),
		"e\u0316" + strings.Repeat("\u0301", 40): "\u00e9\u0316" + strings.Repeat("\u0301", 39),
	}
	for in, want := range tests {
		if got := normalize(in); got != want {
			t.Errorf("normalize(%q) = %q, want %q", in, got, want)
		}
	}
}
