package env_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/rl"
)

// question is one form of a question with its answer by the plainest way there is, which
// shares nothing with the programs of the environment.
type question struct {
	form   *regexp.Regexp
	answer func(n []int) int
}

var questions = []question{
	{regexp.MustCompile(`^(\d+) boxes of (\d+) and (\d+) more\?$`), func(n []int) int {
		total := n[2]
		for range n[0] {
			total += n[1]
		}
		return total
	}},
	{regexp.MustCompile(`^(\d+) to the (\d+) mod (\d+)\?$`), func(n []int) int {
		power := 1
		for range n[1] {
			power = power * n[0] % n[2]
		}
		return power
	}},
	{regexp.MustCompile(`^squares (\d+) to (\d+)\?$`), func(n []int) int {
		upTo := func(k int) int { return k * (k + 1) * (2*k + 1) / 6 }
		return upTo(n[1]) - upTo(n[0]-1)
	}},
	{regexp.MustCompile(`^gcd of (\d+) and (\d+)\?$`), func(n []int) int {
		d := min(n[0], n[1])
		for n[0]%d > 0 || n[1]%d > 0 {
			d--
		}
		return d
	}},
	{regexp.MustCompile(`^up to (\d+) by (\d+) not (\d+)\?$`), func(n []int) int {
		count := 0
		for i := n[1]; i <= n[0]; i += n[1] {
			if i/n[2]*n[2] != i {
				count++
			}
		}
		return count
	}},
}

var (
	hiddenTask = regexp.MustCompile(`(?m)^task = "(.*)"$`)
	heldNumber = regexp.MustCompile(`\d+`)
	// brokenResult is what a failed call shows.
	brokenResult = regexp.MustCompile(`^\w+Error at line 1: `)
)

// asked is what a problem asks, wherever it stands, with the numbers that the sandbox has.
func asked(t *testing.T, p rl.Problem) string {
	t.Helper()
	switch p.Level {
	case 1:
		return p.Prompt
	case 2:
		m := hiddenTask.FindStringSubmatch(p.Fixture)
		if m == nil {
			t.Fatalf("no task in %q", p.Fixture)
		}
		return m[1]
	}
	return p.Prompt + " with " + p.Fixture
}

// reckoned is the answer to a question of the first two levels, and the form it has.
func reckoned(t *testing.T, text string) (form, answer int) {
	t.Helper()
	for i, q := range questions {
		m := q.form.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		var n []int
		for _, s := range m[1:] {
			v, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			n = append(n, v)
		}
		return i, q.answer(n)
	}
	t.Fatalf("%q has no known form", text)
	return 0, 0
}

// TestReckonAnswersAreRight by another computation, from the words of the question alone.
func TestReckonAnswersAreRight(t *testing.T) {
	for level := 1; level <= 3; level++ {
		problems, err := env.Reckon{}.Problems(11, env.Train, level, 1500)
		if err != nil {
			t.Fatal(err)
		}
		forms := map[int]int{}
		for _, p := range problems {
			var form, want int
			if level < 3 {
				form, want = reckoned(t, asked(t, p))
			} else {
				n := heldNumber.FindAllString(p.Fixture, -1)
				a, _ := strconv.Atoi(n[0])
				b, _ := strconv.Atoi(n[1])
				if want = a + b; p.Prompt == "b times 3?" {
					form, want = 1, b+b+b
				}
			}
			forms[form]++
			if p.Answer != strconv.Itoa(want) {
				t.Fatalf("%q with %q: the answer is %s, want %d", p.Prompt, p.Fixture, p.Answer, want)
			}
		}
		if want := map[int]int{1: 5, 2: 5, 3: 2}[level]; len(forms) != want {
			t.Errorf("level %d has %d forms of questions, want %d: %v", level, len(forms), want, forms)
		}
	}
}

// TestReckonHoldsQuestionsOut: a held-out question is in no training problem and in no
// dialogue, also not in those of another level.
func TestReckonHoldsQuestionsOut(t *testing.T) {
	held := map[string]string{}
	for level := 1; level <= 3; level++ {
		problems, err := env.Reckon{}.Problems(1, env.HeldOut, level, 1500)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			held[asked(t, p)] = p.ID
		}
	}
	for level := 1; level <= 3; level++ {
		problems, err := env.Reckon{}.Problems(2, env.Train, level, 4000)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if id, ok := held[asked(t, p)]; ok {
				t.Fatalf("level %d trains on %q, which is held out as %s", level, asked(t, p), id)
			}
		}
	}
	for i := range 6000 {
		d, err := env.Reckon{}.Dialogue(2, i, 1+i%2)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range d.Messages {
			if id, ok := held[m.Content]; ok && m.Role != chat.RoleAssistant {
				t.Fatalf("dialogue %d is about %q, which is held out as %s", i, m.Content, id)
			}
		}
	}
}

// TestReckonCannotBeGuessed: whoever knows the form of the question and the likeliest
// answer to it is right less than once in twenty.
func TestReckonCannotBeGuessed(t *testing.T) {
	for level := 1; level <= 3; level++ {
		problems, err := env.Reckon{}.Problems(5, env.HeldOut, level, 1500)
		if err != nil {
			t.Fatal(err)
		}
		answers := map[string]map[string]int{}
		for _, p := range problems {
			form := p.Prompt
			if level < 3 {
				i, _ := reckoned(t, asked(t, p))
				form = fmt.Sprint(i)
			}
			if answers[form] == nil {
				answers[form] = map[string]int{}
			}
			answers[form][p.Answer]++
		}
		right := 0
		for _, counts := range answers {
			most := 0
			for _, n := range counts {
				most = max(most, n)
			}
			right += most
		}
		if share := float64(right) / float64(len(problems)); share > 0.05 {
			t.Errorf("level %d: the likeliest answer to each form is right for %.3f of the problems, want at most 0.05", level, share)
		}
	}
}

// TestReckonTextsBetrayThemselves: joined numbers have more digits than any right answer,
// so that the output alone shows the mistake.
func TestReckonTextsBetrayThemselves(t *testing.T) {
	problems, err := env.Reckon{}.Problems(3, env.Train, 3, 500)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !strings.Contains(p.Fixture, "'") {
			continue
		}
		n := heldNumber.FindAllString(p.Fixture, -1)
		joined := n[0] + n[1]
		if p.Prompt == "b times 3?" {
			joined = strings.Repeat(n[1], 3)
		}
		if len(joined) <= len("1998") || len(p.Answer) > len("2997") {
			t.Fatalf("%q with %q prints %s first, and the answer is %s", p.Prompt, p.Fixture, joined, p.Answer)
		}
	}
}
