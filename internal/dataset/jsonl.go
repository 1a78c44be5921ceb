package dataset

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"temper/internal/answer"
	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/rl"
)

// ReadProblems reads a JSONL file of problems; name is its name in errors. The error lists
// all bad lines, up to a bound, with the field that is wrong.
func ReadProblems(r io.Reader, name string) ([]rl.Problem, error) {
	lineOf := map[string]int{}
	return readLines(r, name, func(line int, p *rl.Problem) error {
		if err := checkProblem(p); err != nil {
			return err
		}
		if first, twice := lineOf[p.ID]; twice {
			return fmt.Errorf("id %.40q is on line %d already", p.ID, first)
		}
		lineOf[p.ID] = line
		return nil
	})
}

func checkProblem(p *rl.Problem) error {
	if !validID(p.ID) {
		return fmt.Errorf("id %.40q: want visible ASCII without '/'", p.ID)
	}
	return checkAnswer(p)
}

// checkAnswer refuses answers that the verifier cannot read.
func checkAnswer(p *rl.Problem) error {
	e, err := env.ByName(p.Env)
	if err != nil {
		return nil // a run refuses unknown environments; a file alone does not know them
	}
	if _, judged := e.(env.Checker); !judged {
		return nil
	}
	if err := answer.CheckTruth(p.Answer); err != nil {
		return fmt.Errorf("answer %.40q: %w", p.Answer, err)
	}
	return nil
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		if c < '!' || c > '~' || c == '/' {
			return false
		}
	}
	return true
}

// ReadDialogues reads a JSONL file of training dialogues; see ReadProblems.
func ReadDialogues(r io.Reader, name string) ([]chat.Dialogue, error) {
	return readLines(r, name, func(_ int, d *chat.Dialogue) error { return d.Validate() })
}

// Write writes values as JSONL.
func Write[T any](w io.Writer, values []T) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	for i := range values {
		if err := enc.Encode(values[i]); err != nil {
			return fmt.Errorf("write line %d: %w", i+1, err)
		}
	}
	return b.Flush()
}
