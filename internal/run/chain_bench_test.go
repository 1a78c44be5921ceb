package run_test

import (
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/run"
	"temper/internal/run/runtest"
)

// BenchmarkManifest is what a manifest adds to a step, on disk and with the objects
// that a step has.
func BenchmarkManifest(b *testing.B) {
	h := runtest.New(b, nil)
	h.Whole(b, 1, false)
	store, err := fileblob.New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	all := runtest.Dump(b, h.Store)
	for key, data := range all {
		if key == h.Layout.Chain().Opening() || key == h.Layout.Step(1).Manifest() {
			continue
		}
		if _, err := blob.PutBytes(b.Context(), store, key, []byte(data), blob.Always); err != nil {
			b.Fatal(err)
		}
	}
	var chain run.Chain
	in := stepNumbers(h, 1)
	n := 0
	for b.Loop() {
		n++
		in.Step = n
		if n > 1 {
			b.StopTimer()
			for _, key := range []func(int) string{func(step int) string { return h.Layout.Step(step).BatchStats() }, func(step int) string { return h.Layout.Step(step).TrainResult() }, func(step int) string { return h.Layout.Step(step).Log() }, func(step int) string { return h.Layout.Step(step).Watch() }} {
				if _, err := blob.PutBytes(b.Context(), store, key(n), []byte(all[key(1)]), blob.Always); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
		}
		if err := chain.AddStep(b.Context(), store, in); err != nil {
			b.Fatalf("step %d: %v", n, err)
		}
	}
}
