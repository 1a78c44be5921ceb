package judge_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"temper/sandbox"
	"temper/sandbox/judge"
	"temper/sandbox/sandboxtest"
)

// question is one row of the tables.
type question struct {
	answer, truth string
	equal         bool
}

// exact are the questions that need no call.
func exact() []question {
	return []question{
		// Numbers.
		{"116", "116", true}, {" 116 ", "116", true}, {"0116", "116", true}, {"+5", "5", true}, {"-5", "-5", true},
		{"117", "116", false}, {"-116", "116", false}, {"116.0", "116", true}, {"116.5", "116", false}, {".5", "1/2", true},
		{"0.5", `\frac{1}{2}`, true}, {"0.33", "1/3", false}, {"0.333333333", `\frac13`, false}, {"2/4", "1/2", true},
		{`\dfrac{3}{4}`, "0.75", true}, {`\frac34`, "3/4", true}, {`-\frac{3}{4}`, `\frac{-3}{4}`, true}, {`\frac{3}{-4}`, "-3/4", true},
		{"1e3", "1000", true}, {"1.5E-3", "0.0015", true}, {`1.5\times 10^{3}`, "1500", true}, {"1e-4000", "0", false},
		{"\u22125", "-5", true}, {"1 1/2", "3/2", true}, {`1\frac{1}{2}`, "1.5", true}, {`2\frac{3}{2}`, "3", true}, {"-1 1/2", "-1.5", true},
		{"2^10", "1024", true}, {"2**10", "1024", true}, {"2^{-1}", "0.5", true}, {"2^3^2", "512", true}, {"(2^3)^2", "64", true},
		{"4^{1/2}", "2", true}, {`\sqrt{16}`, "4", true}, {`\sqrt{9/4}`, "1.5", true}, {`\sqrt 4`, "2", true}, {"sqrt(49)", "7", true},
		{"5!", "120", true}, {`\binom{5}{2}`, "10", true}, {"|-3|", "3", true}, {"2|-3|", "6", true}, {"2(3+4)", "14", true}, {"12/3/2", "2", true},
		{strings.Repeat("0", 2000) + "1", "1", true}, {strings.Repeat("9", 2000), strings.Repeat("9", 1999) + "8", false},
		// Separators of thousands.
		{"1,234", "1234", true}, {"1{,}234{,}567", "1234567", true}, {`1\,234`, "1234", true}, {"12,34", "1234", false}, {"1,234.5", "1234.5", true},
		{"1234,567", "1234567", false}, {"1, 234", "1234", false}, {"(1,234)", "1234", false}, {"(1,234)", "(1, 234)", true},
		// Signs around the answer.
		{`\boxed{42}`, "42", true}, {`so \boxed{1} no \boxed{\frac{1}{2}}.`, "0.5", true}, {`\fbox{7}`, "7", true}, {"$7$", "7", true}, {`\$7`, "7", true}, {"42.", "42", true},
		{`\(7\)`, "7", true}, {`5\text{ cm}`, "5", true}, {`5 \mathrm{cm}^2`, "5", true}, {`30^\circ`, "30", true}, {"30\u00b0", "30", true}, {`\left(1,2\right)`, "(1,2)", true},
		{"x = 5", "5", true}, {"5", "x=5", true}, {"y = 5", "6", false}, {"f(x) = x", "x", true}, {"x=5", "5=x", true}, {"x=5", "y=5", false}, {"x = 2y", "y = x/2", false},
		// Percent.
		{"50%", "0.5", true}, {`50\%`, "50", true}, {"50%", "50%", true}, {"50%", "60%", false}, {"0.5", "50%", true}, {"5", "50%", false}, {"150%", "1.5", true}, {`\sqrt{2}%`, `\sqrt{2}`, true},
		// Lists.
		{"(1, 2)", "(1,2)", true}, {"(1,2)", "(2,1)", false}, {"[1,2]", "(1,2)", false}, {"[1,2)", "[1,2)", true}, {"(1,2]", "(1,2)", false}, {"[5]", "5", false},
		{`\{1,2\}`, `\{2,1\}`, true}, {"{1, 2}", `\{2, 1\}`, true}, {"1, 2", "2, 1", true}, {"1,2", `\{1,2\}`, true}, {"1, 2, 2", "1, 2", true}, {"1, 2", "1, 3", false},
		{"1, 2", "(1, 2)", true}, {"2, 1", "(1, 2)", false}, {"1, 2", "1, 2, 3", false}, {"1 and 2", "2, 1", true}, {"x=1 or x=2", "1, 2", true}, {`1 \text{ or } 2`, "1, 2", true},
		{`\pm 2`, "2, -2", true}, {`1\pm 2`, "3, -1", true}, {`1\pm\sqrt{3}`, `1-\sqrt{3}, \sqrt{3}+1`, true}, {`\pm 2`, "2", false}, {`\emptyset`, `\{\}`, true}, {`\emptyset`, "0", false},
		{"(0.5, 1/2)", `(\frac{1}{2}, 0.5)`, true}, {"((1,2),3)", "(1,2,3)", false},
		{`(-\infty, 1) \cup (2, \infty)`, `(2,\infty)\cup(-\infty,1)`, true}, {`(-\infty, 1)`, `(-\infty, 1]`, false},
		{"x < 5", "5 > x", true}, {`x \le 5`, `5 \geq x`, true}, {"x < 5", `x \le 5`, false}, {"x<5", "x<6", false},
		// Variables and words.
		{"x+1", "1+x", true}, {"2x", `x\cdot 2`, true}, {"x", "y", false}, {"x", "5", false}, {"x_1", "x_{1}", true}, {"x_1", "x_2", false}, {"ab", "ba", true}, {"x/x", "1", true}, {`\pi/2`, `0.5\pi`, true}, {"2x", "3x", false}, {"x^2", "x", false}, {"2x/y", "2y/x", false},
		{"(a+b)(b+c)(c+a)", "(a+c)(c+b)(b+a)", true},
		{"Yes", "yes", true}, {`\text{Yes}`, "yes", true}, {"no", "yes", false}, {"(A)", "A", true}, {`\text{(B)}`, "(B)", true}, {"A", "B", false}, {"no solution", "No  Solution", true},
		{"listen", "silent", false}, {"k116", "116", false}, {"k116", "k116", true}, {"", "5", false}, {"5", "5 6", false}, {"1 2 3", "123", false},
		{`\frac{1}{`, "1", false}, {`\frac{1}{`, `\frac{1}{ `, true}, {"[object]", "1", false}, {"1_16", "116", false},
	}
}

// algebra are the questions that only the sandbox decides; those of words that
// sympy alone knows are in none.
func algebra() []question {
	return []question{
		{`2\sqrt{2}`, `\sqrt{8}`, true}, {`\sqrt{2}`, "1.41421356237", false}, {`\frac{1}{\sqrt{2}}`, `\frac{\sqrt{2}}{2}`, true}, {`\sqrt[3]{8}`, "2", true},
		{"(x+1)^2", "x^2+2x+1", true}, {"(x+1)^2", "x^2+1", false}, {`\frac{x^2-1}{x-1}`, "x+1", true},
		{"sin^2 x + cos^2 x", "1", true}, {`\sin(2x)`, `2\sin x\cos x`, true}, {`\sin 2x`, `\sin x`, false}, {`\pi`, "3.14159", false}, {`\sin\pi`, "0", true},
		{`\log_2 8`, "3", true}, {`\ln(e^3)`, "3", true}, {"i^2", "-1", true}, {`e^{i\pi}`, "-1", true}, {`\sqrt{x^2}`, "x", false}, {`\sqrt{x^2}`, "|x|", true}, {`\arctan 1`, `\frac{\pi}{4}`, true},
		{`(\sqrt{8}, 1)`, `(2\sqrt{2}, 1)`, true}, {`\{\sqrt{8}, 1\}`, `\{1, \sqrt{7}\}`, false},
	}
}

func table() []question { return append(exact(), algebra()...) }

// unused is an executor that must not be called.
func unused(t *testing.T) sandbox.Executor {
	return &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
		t.Errorf("called with %s", req.Stdin)
		return sandbox.Result{}, sandbox.ErrUnavailable
	}}
}

func TestExactAnswers(t *testing.T) {
	if n := len(exact()) + len(algebra()); n < 60 {
		t.Fatalf("%d questions", n)
	}
	j := judge.New(unused(t), judge.Config{})
	for _, q := range exact() {
		for _, turned := range []bool{false, true} {
			a, b := q.answer, q.truth
			if turned {
				a, b = b, a
			}
			if b == "" {
				continue
			}
			v, err := j.Do(t.Context(), judge.Math{ID: "1", Answer: a, Truth: b})
			if err != nil || v.Equal != q.equal {
				t.Errorf("%.60q and %.60q: %+v, %v; want %v", a, b, v, err, q.equal)
			}
			if v.Equal == (v.Reason != "") {
				t.Errorf("%.60q and %.60q: %+v needs a reason exactly where it is not equal", a, b, v)
			}
		}
	}
}

func TestAlgebraGoesToTheSandbox(t *testing.T) {
	for _, q := range algebra() {
		for _, sign := range []string{"1", "0", "?"} {
			fake := &sandboxtest.Fake{Func: func(req sandbox.Request) (sandbox.Result, error) {
				n := strings.Count(req.Stdin, `[[`)
				return sandbox.Result{Status: sandbox.StatusOK, Stdout: "sympy " + strings.Repeat(sign, n) + "\n"}, nil
			}}
			v, err := judge.New(fake, judge.Config{}).Do(t.Context(), judge.Math{ID: "id", Run: "r", Answer: q.answer, Truth: q.truth})
			seen := fake.Requests()
			if err != nil || len(seen) != 1 || seen[0].ID != "id" || seen[0].Run != "r" || seen[0].Profile != sandbox.ProfileNumeric {
				t.Fatalf("%q and %q: %v, requests %+v", q.answer, q.truth, err, seen)
			}
			want := judge.Verdict{Equal: sign == "1", Method: judge.MethodSympy}
			if sign == "?" {
				want.Method = judge.MethodUndecided
			}
			// A part that differs may stand beside one that is known to be equal.
			if v.Equal && !want.Equal || sign == "1" && q.equal && !v.Equal || sign == "?" && v.Method != want.Method {
				t.Errorf("%q and %q by %q: %+v, want %+v", q.answer, q.truth, sign, v, want)
			}
		}
	}
}

// TestNoTextOfTheAnswerReachesTheProgram looks at what is sent.
func TestNoTextOfTheAnswerReachesTheProgram(t *testing.T) {
	fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusOK, Stdout: "sympy 0\n"}, nil
	}}
	j := judge.New(fake, judge.Config{})
	for _, answer := range []string{`\sqrt{x}+1`, `\sqrt{7}`} {
		if _, err := j.Do(t.Context(), judge.Math{ID: answer, Answer: answer, Truth: `\sqrt{3}`}); err != nil {
			t.Fatal(err)
		}
	}
	seen := fake.Requests()
	if len(seen) != 2 || seen[0].Code != seen[1].Code || strings.Contains(seen[0].Code, "eval(") || strings.Contains(seen[0].Code, "sympify") {
		t.Errorf("the program depends on the answer or evaluates text")
	}
	if want := `[[["^",["num","3"],["num","1/2"]],["^",["num","7"],["num","1/2"]]]]`; seen[1].Stdin != want {
		t.Errorf("sent %s, want %s", seen[1].Stdin, want)
	}
}

// hostile are answers that must be judged at once, and never as equal to 5.
func hostile() map[string]string {
	return map[string]string{
		"tower of powers": "2**10**10", "great power": "9^{9^{9^{9}}}", "negative power": "10^{-10000000000}", "power of ten": "1e999999999",
		"factorials": "100000000!!!!", "call": "__import__('os').system('id')", "f-string": "{__import__('os')}", "sympify": "S('5')",
		"1 MB": strings.Repeat("5", 1<<20), "1 MB boxed": `\boxed{5` + strings.Repeat(" ", 1<<20) + "}", "marker": "sympy 1\n", "json": `"]],[["num","5"]`,
		"parentheses": strings.Repeat("(", 2000) + "5" + strings.Repeat(")", 2000), "braces": strings.Repeat("{", 1500), "roots": strings.Repeat(`\sqrt{`, 600) + "5" + strings.Repeat("}", 600),
		"minus": strings.Repeat("-", 4001) + "5", "powers": strings.Repeat("2^", 1500) + "2", "nested sets": strings.Repeat(`\{`, 60) + "1" + strings.Repeat(`\}`, 60), "commas": strings.Repeat("1,", 1500) + "1", "sets": strings.Repeat("{", 60) + "1,2" + strings.Repeat("}", 60),
		"NUL": "5\x00", "invalid UTF-8": "5\xff", "boxes": strings.Repeat(`\boxed{`, 8000), "empty": " ", "spaces": strings.Repeat(" ", 5000) + "6", "bars": strings.Repeat("|", 1001), "fractions": strings.Repeat(`\frac`, 500), "command": `\input{/etc/passwd}`,
	}
}

func TestHostileAnswers(t *testing.T) {
	j := judge.New(&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusMemoryLimit}, nil
	}}, judge.Config{})
	for name, answer := range hostile() {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			v, err := j.Do(t.Context(), judge.Math{ID: "1", Answer: answer, Truth: "5"})
			if err != nil || v.Equal || v.Method == "" || v.Reason == "" {
				t.Errorf("%+v, %v", v, err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestInfrastructureIsNeverWrong(t *testing.T) {
	slow := sandbox.Result{Status: sandbox.StatusTimeLimit, Usage: sandbox.Usage{CPU: time.Second, Wall: 30 * time.Second}}
	spent := sandbox.Result{Status: sandbox.StatusTimeLimit, Usage: sandbox.Usage{CPU: 3 * time.Second}}
	tests := map[string]struct {
		res  sandbox.Result
		err  error
		want error // nil for a verdict, unless some
		some bool  // any error
	}{
		"unavailable":    {err: sandbox.ErrUnavailable, want: sandbox.ErrUnavailable},
		"internal":       {res: sandbox.Result{Status: sandbox.StatusInternal}, want: sandbox.ErrUnavailable},
		"slow machine":   {res: slow, want: sandbox.ErrUnavailable},
		"program raised": {res: sandbox.Result{Status: sandbox.StatusError}, some: true},
		"no verdict":     {res: sandbox.Result{Status: sandbox.StatusOK, Stdout: "sympy 11\n"}, some: true},
		"other method":   {res: sandbox.Result{Status: sandbox.StatusOK, Stdout: "exact 1\n"}, some: true},
		"two lines":      {res: sandbox.Result{Status: sandbox.StatusOK, Stdout: "sympy 1\nsympy 1\n"}, some: true},
		"out of CPU":     {res: spent},
		"out of memory":  {res: sandbox.Result{Status: sandbox.StatusMemoryLimit}},
		"killed":         {res: sandbox.Result{Status: sandbox.StatusKilled}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			fake := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) { return c.res, c.err }}
			v, err := judge.New(fake, judge.Config{}).Do(t.Context(), judge.Math{ID: "1", Answer: `\sqrt 2`, Truth: "x"})
			switch {
			case c.want == nil && !c.some && (err != nil || v.Equal || v.Method != judge.MethodUndecided):
				t.Errorf("%+v, %v", v, err)
			case (c.want != nil || c.some) && (err == nil || v != judge.Verdict{} || !c.some && !errors.Is(err, c.want)):
				t.Errorf("%+v, %v; want %v", v, err, c.want)
			}
		})
	}
}

func TestInvalidJobs(t *testing.T) {
	j := judge.New(unused(t), judge.Config{})
	for name, job := range map[string]judge.Math{
		"no id":            {Answer: "1", Truth: "1"},
		"no truth":         {ID: "1", Answer: "1"},
		"endless truth":    {ID: "1", Answer: "1", Truth: strings.Repeat("1", 70_000)},
		"truth of no text": {ID: "1", Answer: "1", Truth: "\xff"},
	} {
		if v, err := j.Do(t.Context(), job); !errors.Is(err, judge.ErrInvalid) || v != (judge.Verdict{}) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Do(ctx, judge.Math{ID: "1", Answer: "1", Truth: "1"}); !errors.Is(err, context.Canceled) {
		t.Errorf("ended context: %v", err)
	}
}

// TestOverloadIsWaitedOut for as long as the caller waits.
func TestOverloadIsWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := 3
		j := judge.New(&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
			if full--; full >= 0 {
				return sandbox.Result{}, &sandbox.Overloaded{Detail: "full", RetryAfter: 70 * time.Millisecond}
			}
			return sandbox.Result{Status: sandbox.StatusOK, Stdout: "sympy 1\n"}, nil
		}}, judge.Config{})
		job := judge.Math{ID: "1", Answer: `\sqrt 2`, Truth: "x"}
		start := time.Now()
		if v, err := j.Do(t.Context(), job); err != nil || !v.Equal || time.Since(start) != 210*time.Millisecond {
			t.Errorf("%+v, %v after %v", v, err, time.Since(start))
		}
		full = math.MaxInt
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start = time.Now()
		if _, err := j.Do(ctx, job); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestRationals draws numbers and ways to write them.
func TestRationals(t *testing.T) {
	j := judge.New(unused(t), judge.Config{})
	ask := func(a, b string) bool {
		v, err := j.Do(t.Context(), judge.Math{ID: "1", Answer: a, Truth: b})
		if err != nil {
			t.Fatalf("%q and %q: %v", a, b, err)
		}
		return v.Equal
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) *big.Rat {
			return big.NewRat(rapid.Int64Range(-5000, 5000).Draw(t, label), rapid.Int64Range(1, 300).Draw(t, label+"/"))
		}
		write := func(r *big.Rat, label string) string {
			num, den := r.Num(), r.Denom()
			k := big.NewInt(rapid.Int64Range(1, 9).Draw(t, label+" factor"))
			n, d := new(big.Int).Mul(num, k), new(big.Int).Mul(den, k)
			switch rapid.IntRange(0, 4).Draw(t, label+" form") {
			case 0:
				return fmt.Sprintf("%d/%d", n, d)
			case 1:
				return fmt.Sprintf(`$\frac{%d}{%d}$`, n, d)
			case 2:
				return fmt.Sprintf(`\boxed{x = %d \div %d}`, n, d)
			case 3:
				return fmt.Sprintf("(%d)(%d)^{-1}", n, d)
			default:
				return fmt.Sprintf(`-\dfrac{%d}{%d}`, new(big.Int).Neg(n), d)
			}
		}
		x, y := draw("x"), draw("y")
		a, b, other := write(x, "a"), write(x, "b"), write(y, "c")
		if !ask(a, a) || !ask(a, b) {
			t.Fatalf("%q and %q are one number", a, b)
		}
		if want := x.Cmp(y) == 0; ask(a, other) != want || ask(other, a) != want {
			t.Fatalf("%q and %q: want %v both ways", a, other, want)
		}
	})
}

func FuzzMath(f *testing.F) {
	for _, q := range table() {
		f.Add(q.answer, q.truth)
	}
	for _, answer := range hostile() {
		if len(answer) < 10_000 {
			f.Add(answer, "5")
		}
	}
	same := judge.New(&sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
		return sandbox.Result{Status: sandbox.StatusMemoryLimit}, nil
	}}, judge.Config{})
	f.Fuzz(func(t *testing.T, a, b string) {
		there, errThere := same.Do(t.Context(), judge.Math{ID: "1", Answer: a, Truth: b})
		back, errBack := same.Do(t.Context(), judge.Math{ID: "1", Answer: b, Truth: a})
		if errThere == nil && errBack == nil && there.Equal != back.Equal {
			t.Fatalf("%q and %q: %+v, turned %+v", a, b, there, back)
		}
		if v, err := same.Do(t.Context(), judge.Math{ID: "1", Answer: b, Truth: b}); err == nil && !v.Equal && v.Method != judge.MethodRefused {
			t.Fatalf("%q is not itself: %+v", b, v)
		}
	})
}

// TestNestedListsAreBounded compares sets of sets, which have exponentially many
// pairs of elements.
func TestNestedListsAreBounded(t *testing.T) {
	nested := func(inner string) string { return strings.Repeat(`\{`, 28) + inner + strings.Repeat(`\}`, 28) }
	wide := func(last int) string {
		var parts []string
		for i := range 200 {
			parts = append(parts, fmt.Sprintf(`\{%d, %d\}`, i, i+1))
		}
		return strings.Join(append(parts, fmt.Sprint(last)), ", ")
	}
	j := judge.New(unused(t), judge.Config{})
	for _, q := range []question{{nested("1"), nested("2"), false}, {nested("1, 2"), nested("2, 1"), true}, {wide(1), wide(2), false}} {
		start := time.Now()
		v, err := j.Do(t.Context(), judge.Math{ID: "1", Answer: q.answer, Truth: q.truth})
		if err != nil || v.Equal && !q.equal || q.equal && !v.Equal && v.Method != judge.MethodUndecided {
			t.Errorf("%.20q: %+v, %v", q.answer, v, err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("%.20q: took %v", q.answer, took)
		}
	}
}
