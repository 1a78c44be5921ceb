package dataset_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"temper/internal/dataset"
	"temper/internal/dataset/layout"
	"temper/internal/reward"
)

// TestSamePrompt: what does not change the question does not count; what changes it does.
func TestSamePrompt(t *testing.T) {
	base := `Let $x$ be real. Find \left(\dfrac{1}{2}\right) + x.`
	for text, same := range map[string]bool{
		"let x  be real.\n\tFind (\\frac{1}{2}) + x":          true,
		`LET \(x\) be real. Find (\tfrac{1}{2}) + x .`:        true,
		"Let \uff58 be real. Find (\\frac{1}{2})\u00a0+ x.":   true,
		`Let $x$ be real. Find (\frac{1}{2}) - x.`:            false,
		`Let $y$ be real. Find (\frac{1}{2}) + x.`:            false,
		`Let $x$ be real. Find (\frac{1}{2}) \leftarrow + x.`: false,
	} {
		if got := dataset.KeyOf(text) == dataset.KeyOf(base); got != same {
			t.Errorf("%q: same is %v, want %v", text, got, same)
		}
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`Find $\dfrac{1}{2}$`, `Find $\frac{1}{2}$`, true},
		{`Find$\dfrac{1}{2}$`, `Find $\frac{1}{2}$`, false},
		{`\dfrac{1}{2} of x`, `$ \frac{1}{2} $ of x`, true},
		{`a \left( b`, `a ( b`, true},
		{`Compute 5!`, `Compute 5`, false},
		{`Compute $5!$.`, `Compute 5!`, true},
		{`Simplify $\frac{n!}{(n-1)!}$`, `Simplify $\frac{n!}{(n-1)}$`, false},
		{`How many zeros ends $100!$?`, `How many zeros ends $100$?`, false},
		{"What fraction is 0.333...?", "What fraction is 0.333?", false},
		{"What fraction is 0.333\u2026?", "What fraction is 0.333...?", true},
		{"Find the sum:", "Find the sum .", true},
		{"Find\u200b the su\u00adm", "\ufeffFind the sum", true},
		{"Compute 10\u00b2", "Compute 102", false},
		{"Compute 10\u00b2 - 2\u207b\u00b9\u2070", "Compute $10^2 \u2212 2^{-10}$", true},
		{"Convert 101\u2082 to decimal", "Convert 1012 to decimal", false},
		{"Convert 101\u2082 to decimal", "Convert $101_2$ to decimal", true},
	} {
		if got := dataset.KeyOf(c.a) == dataset.KeyOf(c.b); got != c.same {
			t.Errorf("%q and %q: same is %v, want %v", c.a, c.b, got, c.same)
		}
	}
	if dataset.KeyOf("a", "f") == dataset.KeyOf("a") || dataset.KeyOf("a", "f") == dataset.KeyOf("af") {
		t.Error("what comes with the prompt does not count")
	}
}

// TestRules gives each answer its fate under each rule.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		prompt, answer            string
		any, verifiable, integers layout.Reason
	}{
		{"p", "42", "", "", ""},
		{"p", "-1,234", "", "", ""},
		{"p", `\boxed{7}`, "", "", ""},
		{"p", "33.5", "", "", layout.NotInteger},
		{"p", `\frac{a}{b}`, "", "", layout.NotInteger},
		{"p", "the limit does not exist", "", layout.Unverifiable, layout.NotInteger},
		{"p", "", layout.NoAnswer, layout.NoAnswer, layout.NoAnswer},
		{" \n", "1", layout.NoPrompt, layout.NoPrompt, layout.NoPrompt},
		{"p", "(a) 4 (b) 6", "", layout.MultiPart, layout.MultiPart},
		{"Do this. (a) Find x. (b) Find y.", "4", "", layout.MultiPart, layout.MultiPart},
		{"Part 1: find x. Part 2: find y.", "4", "", layout.MultiPart, layout.MultiPart},
		{"Let f(a) = 1 and f(b) = 2, with a part of (a)b.", "4", "", "", ""},
		{"p", "1234567890123456789", layout.HugeAnswer, layout.HugeAnswer, layout.HugeAnswer},
	} {
		for rule, want := range map[dataset.Answers]layout.Reason{dataset.AnyAnswer: c.any, dataset.Verifiable: c.verifiable, dataset.Integers: c.integers} {
			got := layout.Reason("")
			if why := (dataset.Rules{Answers: rule, MaxDigits: 15}).Check(c.prompt, c.answer); why != nil {
				got = why.Reason
			}
			if got != want {
				t.Errorf("%s: %q with answer %q is %q, want %q", rule, c.prompt, c.answer, got, want)
			}
		}
	}
}

// TestShortBenchmarkProblems have too few words for an overlap, and are found whole.
func TestShortBenchmarkProblems(t *testing.T) {
	x, err := dataset.NewIndex(8)
	if err != nil {
		t.Fatal(err)
	}
	x.Add("fraction", `Simplify $\dfrac{3}{4}+x$.`)
	x.Add("factorial", "Evaluate 5!")
	x.Add("words", "one two three four five six seven eight")
	for prompt, want := range map[string]string{
		`Simplify $\frac{3}{4}+x$.`: "fraction", "Evaluate $5!$": "factorial", "Evaluate 5": "", "Evaluate \u200b5!": "factorial",
		"Say one two three fo\u200dur five six seven eight nine": "words",
	} {
		if o, _ := x.Find(prompt); o.Benchmark != want {
			t.Errorf("%q is %q of the benchmark, want %q", prompt, o.Benchmark, want)
		}
	}
}

// TestAgreement keeps an answer that two samples confirm.
func TestAgreement(t *testing.T) {
	a, err := dataset.NewAgreement(2, reward.Released)
	if err != nil {
		t.Fatal(err)
	}
	for prompt, responses := range map[string][]string{
		"two":  {`so \boxed{4}`, "no idea", `it is \boxed{4.0}`},
		"one":  {`so \boxed{4}`, `so \boxed{5}`, strings.Repeat("x", 9000)},
		"none": {"?"},
	} {
		if err := a.Add(prompt, responses...); err != nil {
			t.Fatal(err)
		}
	}
	for prompt, want := range map[string]layout.Reason{"Two.": "", "one": layout.Disagreement, "none": layout.Disagreement, "else": layout.NoSamples} {
		got := layout.Reason("")
		if why := a.Check(prompt, "4"); why != nil {
			got = why.Reason
		}
		if got != want {
			t.Errorf("%s is %q, want %q", prompt, got, want)
		}
	}
}

// planted makes benchmark problems and rows: rows of other words, rows that hold 8 words of
// a benchmark with other signs around them, and rows that hold 7.
func planted(num, bench int) (benchmark, cleanRows, dirty []string) {
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(prefix string, words int) string {
		out := make([]string, words)
		for i := range out {
			out[i] = fmt.Sprintf("%s%d", prefix, rng.IntN(3000))
		}
		return strings.Join(out, " ")
	}
	for range bench {
		benchmark = append(benchmark, text("b", 40))
	}
	for i := range num {
		words := strings.Fields(benchmark[rng.IntN(bench)])
		at := rng.IntN(len(words) - 8)
		switch i % 4 {
		case 0:
			dirty = append(dirty, text("r", 20)+", "+strings.ToUpper(strings.Join(words[at:at+8], "; $"))+" "+text("r", 20))
		case 1:
			cleanRows = append(cleanRows, text("r", 20)+" "+strings.Join(words[at:at+7], " ")+" "+text("r", 20))
		default:
			cleanRows = append(cleanRows, text("r", 50))
		}
	}
	return benchmark, cleanRows, dirty
}

// TestPlantedOverlaps finds every overlap of 8 words and drops no row with fewer.
func TestPlantedOverlaps(t *testing.T) {
	benchmark, cleanRows, dirty := planted(4000, 200)
	index, err := dataset.NewIndex(dataset.GramWords)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range benchmark {
		index.Add(fmt.Sprint(i), b)
	}
	index.Add("short", "What is $2+2$?")
	for _, row := range dirty {
		o, found := index.Find(row)
		if !found || !strings.Contains(strings.ToLower(strings.ReplaceAll(row, "; $", " ")), o.Words) {
			t.Fatalf("%q is clean: %+v", row, o)
		}
	}
	for _, row := range cleanRows {
		if o, found := index.Find(row); found {
			t.Fatalf("%q is dropped for %+v", row, o)
		}
	}
	if o, found := index.Find("what is 2+2"); !found || o.Benchmark != "short" || o.Words != "" {
		t.Errorf("a short problem is not found: %+v", o)
	}
	if _, found := index.Find("what is 2-2"); found {
		t.Error("another short problem is found")
	}
}
