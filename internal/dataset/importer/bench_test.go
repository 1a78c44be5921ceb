package importer_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"temper/internal/dataset"
	"temper/internal/dataset/importer"
)

// BenchmarkImport imports rows of the size and layout of GSM8K; see the rows a second.
func BenchmarkImport(b *testing.B) {
	const num = 50_000
	path := filepath.Join(b.TempDir(), "in.jsonl")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := range num {
		fmt.Fprintf(w, `{"question": "Mira fills %d crates with %d walnuts each in the harbour of town number %d, and then gives away %d of them to the people next door. How many walnuts does Mira keep?", "answer": "There are %d * %d = <<%d>>%d in all.\nAfter giving away %d, %d are left.\n#### %d"}`+"\n",
			i%97, i%89, i, i%7, i%97, i%89, i, i, i%7, i, i)
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		out := filepath.Join(b.TempDir(), "out.jsonl")
		if _, err := importer.Run(b.Context(), []string{path}, out, importer.Options{Env: "math", Rules: dataset.Rules{Answers: dataset.Integers}}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(num*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
