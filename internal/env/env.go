// Package env owns the environments. Each one makes problems, decides whether an
// answer is right, and has an imperfect teacher whose dialogues teach the format. It
// runs no tools: the tool results in dialogues are written as the sandbox would
// write them.
//
// Invariant: problems and dialogues are pure functions of their arguments, and
// no held-out problem is ever a training problem or in a dialogue, whatever the
// seeds.
package env

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"temper/internal/chat"
	"temper/internal/reward"
	"temper/internal/rl"
	"temper/internal/tool/builtin"
	"temper/sandbox/status"
)

// Split is the purpose of problems.
type Split string

// The two splits of each environment.
const (
	Train   Split = "train"
	HeldOut Split = "heldout"
)

// heldOutShare is the number of problems of which one is held out, chosen by the hash
// of its content.
const heldOutShare = 8

// Environment makes problems of one kind. Implementations are stateless.
type Environment interface {
	// Name is the name of the environment in problems and configurations.
	Name() string
	// CheckLevel refuses a level that the environment does not have.
	CheckLevel(level int) error
	// Problems returns n different problems of the split.
	Problems(seed uint64, split Split, level, n int) ([]rl.Problem, error)
	// Dialogue returns the i-th training dialogue over a problem of the train split.
	Dialogue(seed uint64, i, level int) (chat.Dialogue, error)
	// Verify reports whether answer is right.
	Verify(p rl.Problem, answer string) bool
}

// Verdict is what an environment finds about an answer without a program.
type Verdict string

// Verdicts.
const (
	Right Verdict = "right"
	Wrong Verdict = "wrong"
	// Open answers need a comparison of formulas.
	Open Verdict = "open"
)

// Checker is an Environment that cannot decide every answer by itself. Its Verify
// treats Open as wrong.
type Checker interface {
	Environment
	// Check is a pure function. Where it decides, it agrees with the program.
	Check(p rl.Problem, answer string) Verdict
}

// ByName returns the environment with the given name.
func ByName(name string) (Environment, error) {
	for _, e := range all() {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("unknown environment %q, want one of %s", name, strings.Join(Names(), ", "))
}

// Names lists the environments.
func Names() []string {
	var names []string
	for _, e := range all() {
		names = append(names, e.Name())
	}
	return names
}

func all() []Environment { return []Environment{Chase{}, Verbs{}, Math{}, Reckon{}} }

// contentHash identifies a problem by its content, so that equal problems have equal
// ids and belong to the same split.
func contentHash(p *rl.Problem) uint64 {
	return rl.Seed(0, "problem", rl.Hash(p.Env), uint64(p.Level), rl.Hash(p.Prompt), rl.Hash(p.Fixture), rl.Hash(p.Answer))
}

func splitOf(hash uint64) Split {
	if hash%heldOutShare == 0 {
		return HeldOut
	}
	return Train
}

// generate draws n different problems of a split by rejection.
func generate(rng *rand.Rand, split Split, n int, draw func(*rand.Rand) rl.Problem) ([]rl.Problem, error) {
	return generateBy(rng, split, n, func(rng *rand.Rand) (rl.Problem, uint64) {
		p := draw(rng)
		return p, contentHash(&p)
	})
}

// generateBy is generate for problems whose split follows from a hash other than their
// content hash.
func generateBy(rng *rand.Rand, split Split, n int, draw func(*rand.Rand) (rl.Problem, uint64)) ([]rl.Problem, error) {
	const maxTriesPerProblem = 1000
	seen := map[uint64]bool{}
	problems := make([]rl.Problem, 0, n)
	for range maxTriesPerProblem {
		for range n {
			if len(problems) == n {
				return problems, nil
			}
			p, by := draw(rng)
			h := contentHash(&p)
			if seen[h] || splitOf(by) != split {
				continue
			}
			seen[h] = true
			p.ID = fmt.Sprintf("%s%d-%016x", p.Env, p.Level, h)
			problems = append(problems, p)
		}
	}
	if len(problems) == n {
		return problems, nil
	}
	return nil, fmt.Errorf("only %d different %s problems found, want %d", len(problems), split, n)
}

func checkLevel(env string, level, highest int) error {
	if level < 1 || level > highest {
		return fmt.Errorf("environment %s has levels 1 to %d, not %d", env, highest, level)
	}
	return nil
}

// verify is the rule of chase and verbs: the same integer or the same text.
func verify(p rl.Problem, answer string) bool { return reward.Equal(answer, p.Answer) }

// teacher writes one dialogue.
type teacher struct {
	rng      *rand.Rand
	messages []chat.Message
}

func newTeacher(rng *rand.Rand, prompt string) *teacher {
	return &teacher{rng: rng, messages: []chat.Message{{Role: chat.RoleUser, Content: prompt}}}
}

// chance is true with probability p.
func (t *teacher) chance(p float64) bool { return t.rng.Float64() < p }

// call makes one tool call with its result.
func (t *teacher) call(code string, result chat.Outcome) {
	t.messages = append(t.messages,
		chat.CallMessage(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: code}.Arguments()}),
		chat.Message{Role: chat.RoleTool, Content: result.Text(0)})
}

func (t *teacher) answer(text string) {
	t.messages = append(t.messages, chat.Message{
		Role: chat.RoleAssistant, Content: chat.TokenAnswer + text + chat.TokenAnswerEnd,
	})
}

// maxBrokenInARow bounds the broken calls before a good one, to keep dialogues short.
const maxBrokenInARow = 3

// try makes a good call, after some broken ones: each call is one of the broken
// variants with the given probability, and the teacher then tries again.
func (t *teacher) try(code, output string, broken []brokenCall, pBroken float64) {
	for range maxBrokenInARow {
		if !t.chance(pBroken) {
			break
		}
		b := broken[t.rng.IntN(len(broken))]
		t.call(b.code, b.result)
	}
	t.call(code, printed(output))
}

// brokenCall is a wrong program with the error that Python 3.10 to 3.14 gives.
type brokenCall struct {
	code   string
	result chat.Outcome
}

func printed(text string) chat.Outcome {
	return chat.Outcome{Status: status.OK, Stdout: text + "\n"}
}

func raised(kind, message string) chat.Outcome {
	return chat.Outcome{Status: status.Error, ErrType: kind, ErrMsg: message, ErrLine: 1}
}
