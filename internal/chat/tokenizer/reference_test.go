package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat/tokenizer"
)

func load(t testing.TB, name string) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// rows decodes the lines of a file of testdata.
func rows[T any](t testing.TB, name string, atLeast int) []T {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	for line := range bytes.Lines(data) {
		var row T
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		out = append(out, row)
	}
	if len(out) < atLeast {
		t.Errorf("%s has only %d rows", name, len(out))
	}
	return out
}

// same compares ids; none and nil are the same.
func same(t *testing.T, what, text string, got, want []int32) {
	t.Helper()
	if len(got)+len(want) > 0 && !cmp.Equal(got, want) {
		t.Errorf("%s of %q: got -, want +\n%s", what, text, cmp.Diff(got, want))
	}
}

// TestEncodesAsTheReferenceLibrary compares with ids that Hugging Face
// tokenizers 0.23.3 gives for the same tokenizer.json.
func TestEncodesAsTheReferenceLibrary(t *testing.T) {
	tok := load(t, "tokenizer.json")
	type row struct {
		Text string  `json:"text"`
		IDs  []int32 `json:"ids"`
	}
	for _, r := range rows[row](t, "encodings.jsonl", 50) {
		same(t, "ids", r.Text, tok.EncodeSpecial(r.Text), r.IDs)
		if got := tok.Decode(r.IDs); got != r.Text {
			t.Errorf("decode gives %q, want %q", got, r.Text)
		}
	}
}

// golden is a line of a golden file, as its generator describes it.
type golden struct {
	In    string  `json:"in"`
	IDs   []int32 `json:"ids"`
	Plain []int32 `json:"plain"`
	Text  string  `json:"text"`
}

func TestQwenIDsAreThoseOfTheReferenceLibrary(t *testing.T) {
	tok := load(t, "qwen_tokenizer.json")
	for _, r := range rows[golden](t, "qwen_golden.jsonl", 500) {
		got := tok.EncodeSpecial(r.In)
		same(t, "ids", r.In, got, r.IDs)
		same(t, "plain ids", r.In, tok.Encode(r.In), r.Plain)
		if got := tok.Text(r.IDs); got != r.Text {
			t.Errorf("text of %v is %q, want %q", r.IDs, got, r.Text)
		}
		if got, want := tok.Decode(r.Plain), tok.Decode(r.IDs); got != want {
			t.Errorf("plain ids of %q give %q, want %q", r.In, got, want)
		}
	}
}

// TestOldMergesGiveTheSameIDs spells the merges "a b", as files before 2024 do.
func TestOldMergesGiveTheSameIDs(t *testing.T) {
	data, err := os.ReadFile("testdata/qwen_tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	head, merges, _ := strings.Cut(string(data), `"merges":[[`)
	merges = `"merges":["` + strings.TrimPrefix(strings.NewReplacer(`","`, ` `, `"],["`, `","`, `"]]`, `"]`).Replace(merges), `"`)
	old, err := tokenizer.Parse([]byte(head + merges))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows[golden](t, "qwen_golden.jsonl", 500) {
		same(t, "ids", r.In, old.EncodeSpecial(r.In), r.IDs)
	}
}
