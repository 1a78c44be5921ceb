package reward_test

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/answer"
	"temper/internal/reward"
)

func TestResponses(t *testing.T) {
	for _, c := range []struct {
		mode          reward.Mode
		response, key string
		correct       bool
		extracted     string
	}{
		{reward.Paper, `so <answer>\boxed{42}</answer>`, "42", true, "42"},
		{reward.Paper, `so \boxed{42}`, "42", false, ""},
		{reward.Paper, `<answer>42</answer>`, "42", false, ""},
		{reward.Paper, `<answer>\boxed{1}</answer> no <answer>\boxed{\frac12}</answer>`, "0.5", true, `\frac12`},
		{reward.Tag, `<answer>42</answer>`, "42", true, "42"},
		{reward.Tag, `<answer> the value is \boxed{x=42} </answer>`, "42", true, `the value is \boxed{x=42}`},
		{reward.Integer, `<answer>\boxed{1,234}</answer>`, "1234", true, "1,234"},
		{reward.Integer, `<answer>1234.0</answer>`, "1234", true, "1234.0"},
		{reward.Integer, `<answer>1234.5</answer>`, "1234.5", false, "1234.5"},
		{reward.Integer, `<answer>\sqrt{16}</answer>`, "4", true, `\sqrt{16}`},
		{reward.Released, `first \boxed{12345}, then \boxed{7}.`, "7", true, "7"},
		{reward.Released, `\boxed{7} but I broke off: \boxed{8`, "7", true, "7"},
		{reward.Released, `we get $\boxed 7$`, "7", true, "7"},
		{reward.Released, `Thus the answer is 12. Done.`, "12", true, "12"},
		{reward.Released, "**Answer:** 3/4", "0.75", true, "3/4"},
		{reward.Released, "reasoning\n#### 1,000", "1000", true, "1,000"},
		{reward.Released, "it follows that $x = 5$", "5", true, "x = 5"},
		{reward.Released, `it is \(2\sqrt2\)`, `\sqrt8`, true, `2\sqrt2`},
		{reward.Released, `\boxed{3.14159}`, "3.1416", true, "3.14159"},
		{reward.Released, `\boxed{0.25}`, "25", true, "0.25"},
		{reward.Released, `\boxed{10001}`, "10000", false, "10001"},
		{reward.Released, `<think>\boxed{5}</think> the answer is 6`, "6", true, "6"},
		{reward.Released, "no idea", "6", false, ""},
		{reward.Released, `\boxed{3} and \boxed{-4}`, "-4, 3", true, "3, -4"},
		{reward.Released, `\boxed{(1,2)} \quad \text{and} \quad \boxed{(3,4)}`, "(1,2), (3,4)", true, "(1,2), (3,4)"},
		{reward.Released, `\boxed{3}. Then the sum gives \boxed{4}`, "3, 4", false, "4"},
		{reward.Released, `first \boxed{5}. The final answer is 6.`, "6", true, "6."},
		{reward.Released, `The answer is the number of ways, which is 12.`, "12", true, "12"},
		{reward.Released, `We count 3 and 4, so there are 17 of them.`, "17", true, "17"},
		{reward.Released, `It costs $10,000 + $455 = $10,455 in all.`, "10455", true, "10,455"},
		{reward.Released, `Hence \[ x = \frac{7}{2} \] as was asked.`, "3.5", true, `x = \frac{7}{2}`},
		{reward.Released, "7,5", "7.5", true, "7,5"},
		{reward.Released, `\\boxed{\\frac{1}{2}}`, "0.5", true, `\frac{1}{2}`},
		{reward.Released, `\boxed{9}`, `so we get $\boxed{9}$ at last`, true, "9"},
		{reward.Released, `\boxed{9}`, `$AB = 8$ and hence $AC = 9$`, true, "9"},
		{reward.Released, `\boxed{2}`, "$1$ and $2$", false, "2"},
		{reward.Released, `\boxed{7}`, "|AB| = 7", true, "7"},
		{reward.Released, `\boxed{7:32}`, "S_{ABC}:S = 7:32", true, "7:32"},
		{reward.Released, `\boxed{10}`, "2x = 10", false, "10"},
		{reward.Released, `\boxed{2500}`, "25", false, "2500"},
		{reward.Released, `\boxed{1}`, "100", false, "1"},
		{reward.Released, `\boxed{Yes}`, "yes", true, "Yes"},
		{reward.Released, `\boxed{\sum_{k=1}^{3} \sqrt{k}}`, "4.14626", true, `\sum_{k=1}^{3} \sqrt{k}`},
		{reward.Released, `\boxed{\sum_{k=1}^{3} \sqrt{k}}`, "5", false, `\sum_{k=1}^{3} \sqrt{k}`},
		{reward.Released, `so $\begin{pmatrix}1\\2\end{pmatrix} + \begin{pmatrix}3\\4\end{pmatrix} = \begin{pmatrix}4\\6\end{pmatrix}$`, `\begin{pmatrix}4\\6\end{pmatrix}`, true, `\begin{pmatrix}1\\2\end{pmatrix} + \begin{pmatrix}3\\4\end{pmatrix} = \begin{pmatrix}4\\6\end{pmatrix}`},
		{reward.Released, `\boxed{0}`, `1 = \zzz = x = 0`, true, "0"},
		{reward.Released, `\boxed{1}`, `1 = \zzz = x = 0`, false, "1"},
		{reward.Released, `\boxed{-1}`, `W(n) = \zzz \text{ and } W(n) = -1`, false, "-1"},
		{reward.Released, `\boxed{2}`, `a = \zzz, b = 2`, false, "2"},
		{reward.Released, `\boxed{2}`, `a \ge \zzz and b <= 2`, false, "2"},
		{reward.Released, `so $7+8 = 15$`, "15", true, "7+8 = 15"},
		{reward.Released, `so $7+8 = 15$`, "7", false, "7+8 = 15"},
		{reward.Paper, `<answer>\boxed{3.14159}</answer>`, "3.1416", false, "3.14159"},
	} {
		got, err := reward.Response(c.mode, c.response, c.key)
		if err != nil || got.Correct != c.correct || got.Extracted != c.extracted {
			t.Errorf("%s %q by %q: %+v, %v; want %v from %q", c.mode, c.response, c.key, got, err, c.correct, c.extracted)
		}
		if got.Correct == (got.Reason != "") || got.Method == "" {
			t.Errorf("%s %q: %+v needs a method, and a reason exactly where it is not correct", c.mode, c.response, got)
		}
	}
}

func TestRefusals(t *testing.T) {
	if _, err := reward.Response("strict", "x", "1"); err == nil || !strings.Contains(err.Error(), `mode is "strict", want one of paper`) {
		t.Errorf("mode: %v", err)
	}
	if _, err := reward.Response(reward.Tag, "x", " "); !errors.Is(err, answer.ErrInvalid) {
		t.Errorf("key: %v", err)
	}
}

func FuzzResponse(f *testing.F) {
	f.Add(`\boxed{1`, "1")
	f.Add(`<answer>\boxed{{}</answer>`, "x")
	f.Add("answer: \xff$", "1:2")
	f.Fuzz(func(t *testing.T, response, key string) {
		for _, mode := range reward.Modes() {
			v, err := reward.Response(mode, response, key)
			if err != nil && !errors.Is(err, answer.ErrInvalid) {
				t.Fatal(err)
			}
			if v.Correct && v.Extracted == "" {
				t.Fatalf("%s: %+v is correct without an answer", mode, v)
			}
		}
	})
}
