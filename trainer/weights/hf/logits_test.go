package hf_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"temper/trainer/weights/hf"
)

// TestLogitsEqualTransformers compares with logits that transformers computed
// in float32 from the same files; testdata/make.py made both.
func TestLogitsEqualTransformers(t *testing.T) {
	for _, dir := range []string{"testdata/tied", "testdata/untied", "testdata/llama", "testdata/qwen2", "testdata/mistral"} {
		m := load(t, dir)
		data, err := os.ReadFile(dir + ".golden.json")
		if err != nil {
			t.Fatal(err)
		}
		var golden []struct {
			IDs    []int32     `json:"ids"`
			Logits [][]float32 `json:"logits"`
		}
		if err := json.Unmarshal(data, &golden); err != nil {
			t.Fatal(err)
		}
		for _, g := range golden {
			rows := hf.AllRows
			if len(g.Logits) < len(g.IDs) {
				rows = hf.LastRow
			}
			got, err := m.Logits("go", g.IDs, rows)
			if err != nil {
				t.Fatal(err)
			}
			if d := worst(got, g.Logits); !(d < 1e-5) {
				t.Errorf("%s: %d ids: logits differ by %g, want less than 1e-5", dir, len(g.IDs), d)
			}
		}
	}
}

// worst returns the largest difference, NaN if the shapes differ.
func worst(a, b [][]float32) float64 {
	if len(a) != len(b) {
		return math.NaN()
	}
	d := 0.0
	for i := range a {
		if len(a[i]) != len(b[i]) {
			return math.NaN()
		}
		for k := range a[i] {
			d = max(d, math.Abs(float64(a[i][k])-float64(b[i][k])))
		}
	}
	return d
}

// load opens a directory for the length of the test.
func load(t *testing.T, dir string) *hf.Model {
	t.Helper()
	m, err := hf.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}
