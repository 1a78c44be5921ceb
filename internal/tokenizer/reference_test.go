package tokenizer_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/tokenizer"
)

// TestEncodesAsTheReferenceLibrary compares with ids that Hugging Face
// tokenizers 0.23.3 gives for the same tokenizer.json.
func TestEncodesAsTheReferenceLibrary(t *testing.T) {
	tok, err := tokenizer.Load("testdata/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("testdata/encodings.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range bytes.Lines(data) {
		var row struct {
			Text string  `json:"text"`
			IDs  []int32 `json:"ids"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		rows++
		if got := tok.EncodeSpecial(row.Text); len(got)+len(row.IDs) > 0 && !cmp.Equal(got, row.IDs) {
			t.Errorf("encode %q: got -, want +\n%s", row.Text, cmp.Diff(got, row.IDs))
		}
		if got := tok.Decode(row.IDs); got != row.Text {
			t.Errorf("decode gives %q, want %q", got, row.Text)
		}
	}
	if rows < 50 {
		t.Errorf("only %d rows", rows)
	}
}
