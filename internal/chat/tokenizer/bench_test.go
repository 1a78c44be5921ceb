package tokenizer_test

import (
	"os"
	"strings"
	"testing"

	"temper/internal/chat/tokenizer"
)

// benchText is about 1 MB of code, LaTeX and text of several scripts.
func benchText(b *testing.B) string {
	b.Helper()
	var s strings.Builder
	rows := rows[golden](b, "qwen_golden.jsonl", 500)[:16]
	for s.Len() < 1<<20 {
		for _, r := range rows {
			s.WriteString(r.In)
		}
	}
	return s.String()
}

func BenchmarkEncode(b *testing.B) {
	source, err := os.ReadFile("tokenizer.go")
	if err != nil {
		b.Fatal(err)
	}
	texts := map[string]string{
		"mixed": benchText(b), "code": strings.Repeat(string(source), 200),
		"long word": strings.Repeat("ab", 1<<19), "spaces": strings.Repeat(" ", 1<<20),
		"zalgo": strings.Repeat("e\u0301\u0316", 1<<18),
	}
	for name, text := range texts {
		b.Run(name, func(b *testing.B) {
			tok := load(b, "qwen_tokenizer.json")
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tok.EncodeSpecial(text)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := load(b, "qwen_tokenizer.json")
	text := benchText(b)
	ids := tok.Encode(text)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		tok.Decode(ids)
	}
}

func BenchmarkParse(b *testing.B) {
	data, err := os.ReadFile("testdata/qwen_tokenizer.json")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := tokenizer.Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}
