package hf_test

import (
	"os"
	"path/filepath"
	"testing"

	"temper/trainer/weights/hf"
)

// TestDigest: a copy has the digest of its model; one bit of a weight, another template or
// another tokenizer changes it.
func TestDigest(t *testing.T) {
	digest := func(dir string) string {
		t.Helper()
		sum, err := hf.Digest(t.Context(), load(t, dir))
		if err != nil || len(sum) != 64 {
			t.Fatalf("%s: %q, %v", dir, sum, err)
		}
		return sum
	}
	want := digest("testdata/untied")
	if got := digest(copied(t, "testdata/untied", nil)); got != want {
		t.Errorf("a copy has %s, want %s", got, want)
	}
	seen := map[string]string{want: "the model"}
	for _, name := range []string{hf.TemplateFile, hf.GenerationFile, hf.TokenizerFile} {
		got := digest(copied(t, "testdata/untied", map[string]string{name: `{"other": true}`}))
		if first := seen[got]; first != "" {
			t.Errorf("another %s has the digest of %s", name, first)
		}
		seen[got] = name
	}
	dir := copied(t, "testdata/untied", nil)
	shards := load(t, dir).Shards()
	name := filepath.Join(dir, filepath.Base(shards[len(shards)-1].Name()))
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)-3] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := digest(dir); seen[got] != "" {
		t.Errorf("weights with another bit have the digest of %s", seen[got])
	}
}
