package reward_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	formula "temper/internal/answer"
	"temper/internal/reward"
	"temper/internal/rl"
)

func TestExtractAnswer(t *testing.T) {
	tests := map[string]struct {
		text, answer string
		tags         int
	}{
		"none":             {"the answer is 5", "", 0},
		"one":              {"so <answer> 116 </answer>", "116", 1},
		"last of two":      {"<answer>1</answer><answer>2</answer>", "2", 2},
		"unclosed last":    {"<answer>1</answer><answer>2", "1", 1},
		"never closed":     {"<answer>1", "", 0},
		"opened twice":     {"<answer>1 <answer>2</answer>", "2", 1},
		"close only":       {"1</answer>", "", 0},
		"empty last block": {"<answer>1</answer><answer></answer>", "", 2},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			answer, tags := reward.ExtractAnswer(c.text)
			if answer != c.answer || tags != c.tags {
				t.Errorf("got %q, %d; want %q, %d", answer, tags, c.answer, c.tags)
			}
		})
	}
}

func TestExtractBoxed(t *testing.T) {
	tests := map[string]struct {
		text, answer string
		tags         int
	}{
		"one":                   {`so <answer>It is \boxed{116}.</answer>`, "116", 1},
		"braces":                {`<answer>\boxed{\frac{1}{2}}</answer>`, `\frac{1}{2}`, 1},
		"escaped braces":        {`<answer>\boxed{\{1\}}</answer>`, `\{1\}`, 1},
		"escaped backslash":     {`<answer>\boxed{a\\}}</answer>`, `a\\`, 1},
		"last of two":           {`<answer>\boxed{1} or \boxed{ 2 }</answer>`, "2", 1},
		"other command":         {`<answer>\boxed{1}, \fbox{2}</answer>`, "2", 1},
		"box inside":            {`<answer>\boxed{\boxed{1}}</answer>`, "1", 1},
		"no box":                {"<answer>116</answer>", "", 1},
		"no tag":                {`\boxed{116}`, "", 0},
		"box outside":           {`\boxed{116}<answer>116</answer>`, "", 1},
		"box that never closes": {`<answer>\boxed{1} \boxed{2</answer>`, "1", 1},
		"nothing in the box":    {`<answer>\boxed{}</answer>`, "", 1},
		"box of the last block": {`<answer>\boxed{1}</answer><answer>2</answer>`, "", 2},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			answer, tags := reward.ExtractBoxed(c.text)
			if answer != c.answer || tags != c.tags {
				t.Errorf("got %q, %d; want %q, %d", answer, tags, c.answer, c.tags)
			}
		})
	}
}

// lastBoxSlowly tries each box from the last one on.
func lastBoxSlowly(block string) string {
	for {
		at := max(strings.LastIndex(block, `\boxed{`), strings.LastIndex(block, `\fbox{`))
		if at < 0 {
			return ""
		}
		from := at + strings.IndexByte(block[at:], '{') + 1
		if inside, closed := formula.CutGroup(block[from:]); closed {
			return strings.TrimSpace(inside)
		}
		block = block[:at]
	}
}

// TestExtractBoxedAgrees finds the same box in one pass as by trying each.
func TestExtractBoxedAgrees(t *testing.T) {
	parts := []string{`\boxed{`, `\fbox{`, "{", "}", "}", `\`, `\{`, `\}`, "x", " ", "boxed{", "}}"}
	rng := rand.New(rand.NewPCG(1, 2))
	found := 0
	for range 200_000 {
		var b strings.Builder
		for range 1 + rng.IntN(12) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		got, _ := reward.ExtractBoxed("<answer>" + b.String() + "</answer>")
		if want := lastBoxSlowly(strings.TrimSpace(b.String())); got != want {
			t.Fatalf("%s: got %q, want %q", b.String(), got, want)
		}
		if got != "" {
			found++
		}
	}
	if found < 20_000 {
		t.Errorf("only %d texts have a box that is closed", found)
	}
}

// TestExtractBoxedIsLinear: a text with 16 times as many open boxes costs some 16 times as
// much, not 256.
func TestExtractBoxedIsLinear(t *testing.T) {
	cost := func(boxes int) time.Duration {
		text := "<answer>" + strings.Repeat(`\boxed{`, boxes) + "</answer>"
		best := time.Hour
		for range 5 {
			start := time.Now()
			reward.ExtractBoxed(text)
			best = min(best, time.Since(start))
		}
		return best
	}
	if small, large := cost(2000), cost(32_000); large > 100*small {
		t.Errorf("2,000 boxes took %v, and 32,000 %v", small, large)
	}
}

func FuzzExtractBoxed(f *testing.F) {
	f.Add(`<answer>\boxed{\frac{1}{2}}</answer>`)
	f.Fuzz(func(t *testing.T, text string) {
		answer, tags := reward.ExtractBoxed(text)
		if _, same := reward.ExtractAnswer(text); same != tags {
			t.Errorf("%d tags, want %d", tags, same)
		}
		if answer != "" && (tags == 0 || !strings.Contains(text, answer)) {
			t.Errorf("answer %q of %d tags is not in the text", answer, tags)
		}
	})
}

func TestEqual(t *testing.T) {
	tests := []struct {
		answer, gold string
		want         bool
	}{
		{"116", "116", true}, {" 116\n", "116", true}, {"0116", "116", true}, {"-5", "-5", true},
		{"117", "116", false}, {"k116", "116", false}, {"k116", "k116", true}, {"", "", false},
		{"1_16", "116", false}, {"116.0", "116", false}, {strings.Repeat("0", 2000) + "1", "1", false},
	}
	for _, c := range tests {
		if got := reward.Equal(c.answer, c.gold); got != c.want {
			t.Errorf("Equal(%.20q, %q) = %v", c.answer, c.gold, got)
		}
	}
}

func TestExactDecidesPlainNumbersOnly(t *testing.T) {
	tests := []struct {
		answer, gold   string
		equal, decided bool
	}{
		{"34", "34", true, true}, {"035", "35", true, true}, {"34", "35", false, true}, {"0.5", "1/2", true, true},
		{"2/4", "1/2", true, true}, {"0.33", "1/3", false, true}, {"-3/7", "3/7", false, true}, {`\frac12`, `\frac12`, true, true},
		{`\frac{1}{2}`, "1/2", false, false}, {"50%", "1/2", false, false}, {"1/0", "1", false, false}, {"", "", false, false},
		{"1e3", "1000", false, false}, {"0x10", "16", false, false}, {"1_0", "10", false, false}, {strings.Repeat("0", 2000) + "1", "1", false, false},
	}
	for _, c := range tests {
		if equal, decided := reward.Exact(c.answer, c.gold); equal != c.equal || decided != c.decided {
			t.Errorf("Exact(%.20q, %q) = %v, %v", c.answer, c.gold, equal, decided)
		}
	}
}

func TestScorePaysOnlyFinishedCorrectTrajectories(t *testing.T) {
	for _, stop := range []rl.StopReason{rl.StopAnswered, rl.StopMaxTokens, rl.StopMaxTurns, rl.StopInfraError} {
		want := 0.0
		if stop == rl.StopAnswered {
			want = 1
		}
		if got := reward.Score(stop, true); got != want {
			t.Errorf("correct and %s: reward %v, want %v", stop, got, want)
		}
		if got := reward.Score(stop, false); got != 0 {
			t.Errorf("wrong and %s: reward %v", stop, got)
		}
	}
}

func FuzzExtractAnswer(f *testing.F) {
	f.Add("<answer>1</answer>")
	f.Add("<answer><answer></answer></answer>")
	f.Fuzz(func(t *testing.T, text string) {
		answer, tags := reward.ExtractAnswer(text)
		if strings.Contains(answer, "<answer>") || strings.Contains(answer, "</answer>") {
			t.Fatalf("answer %q of %q holds a tag", answer, text)
		}
		if tags > strings.Count(text, "</answer>") || (answer != "" && tags == 0) {
			t.Fatalf("%d tags, answer %q in %q", tags, answer, text)
		}
	})
}
