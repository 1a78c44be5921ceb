//go:build integration

package answer_test

import (
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"temper/internal/answer"
)

// Bounds of one comparison, whatever the answer.
const (
	maxProcessor = 500 * time.Millisecond
	maxHeap      = 16 << 20
)

// costly are answers that are made to take long, beside those of hostile.
func costly() map[string]string {
	return map[string]string{
		"nested roots": strings.Repeat(`\sqrt{2+`, 50) + "x" + strings.Repeat("}", 50), "sines of sines": strings.Repeat(`\sin(`, 50) + "x" + strings.Repeat(")", 50),
		"wide sum": strings.Repeat(`\sqrt{x}+`, 400) + "1", "wide product": strings.Repeat(`\ln(x)`, 400), "great digits": strings.Repeat("7", 4000) + "/" + "3",
		"sum of sums": `\sum_{i=1}^{2000} \sum_{j=1}^{2000} \sum_{k=1}^{2000} \sin(ijk)`, "product of factorials": `\prod_{k=1}^{2000} k!`, "binomials": `\binom{2000}{1000}^{\binom{9}{4}}`,
		"powers": "(x+1)^{1000}(x+2)^{1000}", "matrix": `\begin{pmatrix}` + strings.Repeat(`\sqrt{x}&`, 300) + `1\end{pmatrix}`, "equations": strings.Repeat(`x^{99}+`, 200) + "y = 3",
		"unions": strings.Repeat(`(0,\sqrt{2})\cup`, 150) + "(1,2)", "choices": strings.Repeat(`\pm `, 300) + "5", "ratios": strings.Repeat(`\sqrt{2}:`, 200) + "1",
		"lists": strings.Repeat(`\sqrt{x},`, 300) + "1", "tangents": `\tan(10^{4000}x)`, "logarithm": `\log_{1.0000001}(10^{3000})`, "gamma": `(10^{6}!)^{x}`,
		"product of matrices": strings.Repeat(`\begin{pmatrix}\sqrt{x}&y\\z&\sin w\end{pmatrix}`, 7), "great powers of a matrix": `\begin{pmatrix}3&7\\9&2\end{pmatrix}` + strings.Repeat("^{63}", 60),
		"wide matrices": strings.Repeat(`\begin{pmatrix}`+strings.Repeat("1&", 19)+`1\end{pmatrix}\begin{pmatrix}`+strings.Repeat(`1\\`, 20)+`\end{pmatrix}`, 20),
	}
}

// processor is the processor time of this process.
func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap is the size of all objects of this process.
func heap() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64()) //nolint:gosec // bytes of a heap
}

// TestCostOfHostileAnswers holds each comparison to half a second of a processor and
// 16 MiB.
func TestCostOfHostileAnswers(t *testing.T) {
	all := hostile()
	for name, text := range costly() {
		all[name] = text
	}
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	for name, text := range all {
		for _, truth := range []string{"5", `\sqrt{x}+5`, `1, \sqrt{2}, x`, `\begin{pmatrix}x&2\\3&4\end{pmatrix}`, "|x| < 3"} {
			debug.FreeOSMemory()
			before, start := heap(), processor(t)
			var most atomic.Int64
			done := make(chan struct{})
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				for {
					most.Store(max(most.Load(), heap()))
					select {
					case <-done:
						return
					case <-time.After(500 * time.Microsecond):
					}
				}
			}()
			if _, err := answer.Equal(text, truth); err != nil {
				t.Errorf("%s by %s: %v", name, truth, err)
			}
			took := processor(t) - start
			close(done)
			<-watched
			if took > maxProcessor {
				t.Errorf("%s by %s took %v of a processor, want at most %v", name, truth, took, maxProcessor)
			}
			if more := most.Load() - before; more > maxHeap {
				t.Errorf("%s by %s held %d KiB, want at most %d", name, truth, more>>10, maxHeap>>10)
			}
		}
	}
}
