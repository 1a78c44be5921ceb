package env_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/reward"
	"temper/internal/rl"
)

func environments(t *testing.T) []env.Environment {
	t.Helper()
	var all []env.Environment
	for _, name := range env.Names() {
		e, err := env.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestSplitsNeverShareAProblem, whatever the seeds, and ids follow content.
func TestSplitsNeverShareAProblem(t *testing.T) {
	for _, e := range environments(t) {
		rapid.Check(t, func(t *rapid.T) {
			level := rapid.IntRange(1, 3).Draw(t, "level")
			byID := map[string]rl.Problem{}
			for _, split := range []env.Split{env.Train, env.HeldOut} {
				problems, err := e.Problems(rapid.Uint64().Draw(t, "seed"), split, level, 60)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range problems {
					if other, ok := byID[p.ID]; ok {
						t.Fatalf("%s: %+v and %+v share an id", e.Name(), p, other)
					}
					byID[p.ID] = p
					if p.Env != e.Name() || p.Level != level || strings.Contains(p.ID, "/") || !e.Verify(p, p.Answer) {
						t.Fatalf("bad problem %+v", p)
					}
				}
			}
			contents := map[string]bool{}
			for _, p := range byID {
				key := p.Prompt + "|" + p.Fixture
				if contents[key] {
					t.Fatalf("%s: content %q has two ids", e.Name(), key)
				}
				contents[key] = true
			}
		})
	}
}

// TestDialoguesKeepOffHeldOutPrompts: a prompt of verbs or math is the whole
// problem, so a held-out one must never be in a dialogue.
func TestDialoguesKeepOffHeldOutPrompts(t *testing.T) {
	for _, c := range []struct {
		env      env.Environment
		level, n int
	}{{env.Verbs{}, 1, 4000}, {env.Math{}, 3, 900}} {
		held, err := c.env.Problems(1, env.HeldOut, c.level, c.n)
		if err != nil {
			t.Fatal(err)
		}
		prompts := map[string]bool{}
		for _, p := range held {
			prompts[p.Prompt] = true
		}
		for i := range 4000 {
			d, err := c.env.Dialogue(2, i, c.level)
			if err != nil {
				t.Fatal(err)
			}
			if prompts[d.Messages[0].Content] {
				t.Fatalf("dialogue %d is about held-out %q", i, d.Messages[0].Content)
			}
		}
	}
}

func TestProblemsAreAFunctionOfTheSeed(t *testing.T) {
	for _, e := range environments(t) {
		a, _ := e.Problems(7, env.Train, 2, 20)
		b, _ := e.Problems(7, env.Train, 2, 20)
		c, _ := e.Problems(8, env.Train, 2, 20)
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%s: same seed, other problems:\n%s", e.Name(), diff)
		}
		if cmp.Equal(a, c) {
			t.Errorf("%s: another seed gave the same problems", e.Name())
		}
	}
}

func TestImpossibleRequestsAreNamed(t *testing.T) {
	if _, err := env.ByName("maze"); err == nil || !strings.Contains(err.Error(), "chase, verbs, math") {
		t.Errorf("unknown name: %v", err)
	}
	for _, e := range environments(t) {
		for _, level := range []int{0, -1, 99} {
			if _, err := e.Problems(1, env.Train, level, 1); err == nil {
				t.Errorf("%s: level %d accepted", e.Name(), level)
			}
			if _, err := e.Dialogue(1, 0, level); err == nil {
				t.Errorf("%s: dialogue of level %d accepted", e.Name(), level)
			}
		}
	}
}

// rates counts what the teacher does over many dialogues.
type rates struct {
	dialogues, guesses, calls, broken, pointers, followed int
}

func measure(t *testing.T, e env.Environment, level, n int) rates {
	t.Helper()
	r := rates{dialogues: n}
	for i := range n {
		d, err := e.Dialogue(3, i, level)
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		for j, m := range d.Messages {
			if m.Role != chat.RoleTool {
				continue
			}
			calls++
			switch {
			case strings.Contains(m.Content, " at line 1"):
				r.broken++
			case strings.HasPrefix(m.Content, "k"):
				r.pointers++
				if len(d.Messages[j+1].ToolCalls) > 0 {
					r.followed++
				}
			}
		}
		r.calls += calls
		if calls == 0 {
			r.guesses++
		}
		answer, tags := reward.ExtractAnswer(d.Messages[len(d.Messages)-1].Content)
		if tags != 1 || answer == "" {
			t.Fatalf("dialogue %d ends with %+v", i, d.Messages[len(d.Messages)-1])
		}
	}
	return r
}

func near(t *testing.T, what string, got, of int, want float64) {
	t.Helper()
	if rate := float64(got) / float64(of); rate < want-0.03 || rate > want+0.03 {
		t.Errorf("%s: %d of %d = %.3f, want %.2f", what, got, of, rate, want)
	}
}

func TestTeachersAreAsImperfectAsStated(t *testing.T) {
	r := measure(t, env.Chase{}, 2, 3000)
	near(t, "chase guesses", r.guesses, r.dialogues, env.ChaseGuess)
	near(t, "chase broken calls", r.broken, r.calls, env.ChaseBroken)
	near(t, "chase followed pointers", r.followed, r.pointers, env.ChaseFollow)
	if env.ChaseFollow >= 0.5 {
		t.Error("following is the likelier continuation: greedy decoding would solve two hops before RL")
	}
	r = measure(t, env.Verbs{}, 1, 3000)
	near(t, "verbs guesses", r.guesses, r.dialogues, env.VerbsGuess)
	near(t, "verbs broken calls", r.broken, r.calls, env.VerbsBroken)
	for level := 1; level <= 3; level++ {
		r = measure(t, env.Math{}, level, 2000)
		near(t, "math guesses", r.guesses, r.dialogues, env.MathGuess)
		near(t, "math broken calls", r.broken, r.calls, env.MathBroken)
	}
}

// TestAnswerHidesInTheFixture: prompt and key alone do not give the number away,
// and following the dict does.
func TestChaseFollowsItsDict(t *testing.T) {
	for level := 1; level <= 3; level++ {
		problems, err := env.Chase{}.Problems(5, env.Train, level, 50)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			key, hops := strings.TrimSuffix(p.Prompt, "?"), 0
			for strings.HasPrefix(key, "k") {
				_, after, ok := strings.Cut(p.Fixture, "'"+key+"': ")
				if !ok {
					t.Fatalf("%s: key %s is not in %s", p.ID, key, p.Fixture)
				}
				value, _, _ := strings.Cut(strings.TrimSuffix(after, "}"), ",")
				key = strings.Trim(value, "'")
				hops++
			}
			if key != p.Answer || hops != level || len(key) != 3 {
				t.Errorf("%s: %d hops to %s, want %d to %s", p.ID, hops, key, level, p.Answer)
			}
			if strings.Count(p.Fixture, ":") != 6 {
				t.Errorf("%s: %s has not 6 keys", p.ID, p.Fixture)
			}
		}
	}
}

// TestVerbsWorkLeftToRight, with the remainder of Python: below a negative
// number it is still not negative.
func TestVerbsWorkLeftToRight(t *testing.T) {
	problems, err := env.Verbs{}.Problems(5, env.Train, 3, 2000)
	if err != nil {
		t.Fatal(err)
	}
	negativeMods := 0
	for _, p := range problems {
		words := strings.Fields(strings.TrimSuffix(p.Prompt, "?"))
		value, _ := strconv.Atoi(words[0])
		for i := 1; i < len(words); i += 2 {
			b, _ := strconv.Atoi(words[i+1])
			switch words[i] {
			case "add":
				value += b
			case "sub":
				value -= b
			case "mul":
				value *= b
			case "xor":
				value ^= b
			case "mod":
				if value < 0 {
					negativeMods++
				}
				value -= b * int(math.Floor(float64(value)/float64(b)))
			}
		}
		if p.Answer != strconv.Itoa(value) {
			t.Errorf("%s is %d, the answer says %s", p.Prompt, value, p.Answer)
		}
	}
	if negativeMods == 0 {
		t.Error("no problem takes a remainder of a negative number")
	}
}
