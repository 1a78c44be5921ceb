// Package dataset owns sets of problems and of training dialogues: their files,
// where a run's sources come from, and the ledger that hands out each problem
// once per epoch. It does not know how problems are made; package env does.
//
// Invariant: what a step trains on is a pure function of seed, problems and
// step, so that a crash changes nothing.
package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"temper/internal/chat"
	"temper/internal/env"
	"temper/internal/rl"
	"temper/sandbox/judge"
)

const (
	// maxLine bounds one line of a file.
	maxLine = 16 << 20
	// maxReported bounds the bad lines that one error lists.
	maxReported = 20
)

// ReadProblems reads a JSONL file of problems; name is what errors call it. The
// error lists all bad lines, up to a bound.
func ReadProblems(r io.Reader, name string) ([]rl.Problem, error) {
	lineOf := map[string]int{}
	return readLines(r, name, func(line int, p *rl.Problem) error {
		if err := checkProblem(p); err != nil {
			return err
		}
		if first, twice := lineOf[p.ID]; twice {
			return fmt.Errorf("id %q is on line %d already", p.ID, first)
		}
		lineOf[p.ID] = line
		return nil
	})
}

func checkProblem(p *rl.Problem) error {
	switch {
	case p.ID == "":
		return errors.New("id is missing")
	case !validID(p.ID):
		return fmt.Errorf("id %q: want visible ASCII without '/'", p.ID)
	case p.Env == "":
		return errors.New("env is missing")
	case p.Prompt == "":
		return errors.New("prompt is missing")
	case p.Answer == "":
		return errors.New("answer is missing")
	}
	return checkAnswer(p)
}

// checkAnswer finds keys that a verifier job could not compare anything with.
func checkAnswer(p *rl.Problem) error {
	e, err := env.ByName(p.Env)
	if err != nil {
		return nil // a matter of those who run the problem
	}
	if _, judged := e.(env.Checker); !judged {
		return nil
	}
	if err := judge.CheckTruth(p.Answer); err != nil {
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

// readLines decodes each non-empty line strictly and checks it.
func readLines[T any](r io.Reader, name string, check func(line int, v *T) error) ([]T, error) {
	var out []T
	var bad []error
	more := 0
	report := func(line int, err error) {
		if len(bad) < maxReported {
			bad = append(bad, fmt.Errorf("%s:%d: %w", name, line, err))
			return
		}
		more++
	}
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	line := 0
	for scanner.Scan() {
		line++
		if len(bytes.TrimSpace(scanner.Bytes())) == 0 {
			continue
		}
		var v T
		if err := decodeStrict(scanner.Bytes(), &v); err != nil {
			report(line, err)
			continue
		}
		if err := check(line, &v); err != nil {
			report(line, err)
			continue
		}
		out = append(out, v)
	}
	if err := scanner.Err(); err != nil {
		report(line+1, err)
	}
	if more > 0 {
		bad = append(bad, fmt.Errorf("%s: %d more bad lines", name, more))
	}
	if len(bad) == 0 && len(out) == 0 {
		return nil, fmt.Errorf("%s: no lines", name)
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	return out, nil
}

func decodeStrict(line []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the JSON object is cut short")
		}
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the JSON object")
	}
	return nil
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
