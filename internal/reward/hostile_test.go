//go:build integration

package reward_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"temper/internal/reward"
)

// maxProcessor bounds one verdict, whatever the response.
const maxProcessor = 500 * time.Millisecond

// costlyResponses are made to take long: texts in which much looks like an answer, and
// formulas that a loose reading compares more than once.
func costlyResponses() map[string]string {
	out := map[string]string{
		"boxes": strings.Repeat(`\boxed{`, 1<<20), "closed boxes": strings.Repeat(`\boxed{1} and `, 1<<18), "dollars": strings.Repeat("$1$ ", 1<<20), "phrases": strings.Repeat("the answer is ", 1<<19) + "x",
		"numbers": strings.Repeat("1,000 ", 1<<20), "words": strings.Repeat("words ", 1<<20), "braces": strings.Repeat("{", 1<<21), "tags": strings.Repeat("<answer>", 1<<19) + "5</answer>",
		"blocks": strings.Repeat("<answer>5</answer>", 1<<18), "thoughts": strings.Repeat("</think>", 1<<19), "marks": strings.Repeat("<|im_end|>", 1<<19), "displays": strings.Repeat(`\[1\]`, 1<<19),
		"backslashes": strings.Repeat(`\\frac `, 1<<18), "sentence": strings.Repeat(`\text{a} `, 1<<18) + "5", "capitals": strings.Repeat("\u0130", 1<<19), "boxes in the tag": "<answer>" + strings.Repeat(`\boxed{`, 1<<18) + "</answer>", "braces in the tag": "<answer>" + strings.Repeat(`\boxed{{`, 1<<17) + strings.Repeat("}", 1<<17) + "</answer>",
		"no UTF-8": strings.Repeat("\xff", 1<<20) + `\boxed{5}`,
	}
	for name, formula := range map[string]string{
		"nested roots": strings.Repeat(`\sqrt{2+`, 50) + "x" + strings.Repeat("}", 50), "wide product": strings.Repeat(`\ln(x)`, 400), "powers": "(x+1)^{1000}(x+2)^{1000}",
		"sum of sums": `\sum_{i=1}^{2000} \sum_{j=1}^{2000} \sum_{k=1}^{2000} \sin(ijk)`, "choices": strings.Repeat(`\pm `, 300) + "5", "matrix": `\begin{pmatrix}` + strings.Repeat(`\sqrt{x}&`, 300) + `1\end{pmatrix}`,
		"unions": strings.Repeat(`(0,\sqrt{2})\cup`, 150) + "(1,2)", "equations": strings.Repeat(`x^{99}+`, 200) + "y", "lists": strings.Repeat(`\sqrt{x},`, 300) + "1", "logarithm": `\log_{1.0000001}(10^{3000})`,
		"product of matrices": strings.Repeat(`\begin{pmatrix}\sqrt{x}&y\\z&\sin w\end{pmatrix}`, 7), "powers of a matrix": `\begin{pmatrix}3&7\\9&2\end{pmatrix}` + strings.Repeat("^{63}", 60),
	} {
		out[name] = `<answer>\boxed{y = ` + formula + `}</answer>`
		out[name+" in braces"] = `<answer>\boxed{{` + formula + `}}</answer>`
	}
	return out
}

func processor(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCostOfHostileResponses holds each verdict to half a second of a processor, and none
// of them is right.
func TestCostOfHostileResponses(t *testing.T) {
	for name, response := range costlyResponses() {
		for _, key := range []string{"17", `z = \sqrt{x}+5`, `so $z = \sqrt{x}+5$ holds`, `\{1, \sqrt{2}, x\}`, `\begin{pmatrix}x&2\\3&4\end{pmatrix}`} {
			for _, mode := range reward.Modes() {
				start := processor(t)
				v, err := reward.Response(mode, response, key)
				if took := processor(t) - start; took > maxProcessor {
					t.Errorf("%s by %s, %s: took %v of a processor, want at most %v", name, key, mode, took, maxProcessor)
				}
				if err != nil || v.Correct {
					t.Errorf("%s by %s, %s: %+v, %v", name, key, mode, v, err)
				}
			}
		}
	}
}
