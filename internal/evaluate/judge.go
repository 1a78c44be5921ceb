package evaluate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"temper/internal/answer"
	"temper/internal/dataset/rows"
	"temper/internal/fault"
	"temper/internal/reward"
)

// Judge judges lines of responses by their keys.
type Judge struct {
	Mode   reward.Mode
	Name   string // of the input, for errors
	MaxBad int    // lines that are tolerated although they cannot be judged
}

// Lines reads {"gold", "response"} lines and writes one verdict per line. It reports an
// unreadable line on errs and writes a line for it too, so that the output has as many
// lines as the input; more than maxBad of them end it.
func (j Judge) Lines(in io.Reader, w, errs io.Writer) error {
	lines, err := rows.NewLines(in)
	if err != nil {
		return fault.New(fault.Dataset, fmt.Errorf("%s: %w", j.Name, err))
	}
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	bad := 0
	for end := false; !end; {
		var data []byte
		data, end, err = lines.Next()
		if err != nil && !errors.Is(err, rows.ErrLong) {
			return errors.Join(out.Flush(), fmt.Errorf("%s: %w", j.Name, err))
		}
		var verdict reward.Verdict
		if err == nil {
			if len(bytes.TrimSpace(data)) == 0 {
				continue
			}
			verdict, err = j.line(data)
		}
		if err != nil {
			err = fmt.Errorf("%s: line %d: %w", j.Name, lines.Num(), err)
			if bad++; bad > j.MaxBad {
				return fault.New(fault.Dataset, errors.Join(out.Flush(), err, j.tooMany(bad)))
			}
			fmt.Fprintln(errs, err)
			verdict = reward.Verdict{Method: methodBad, Reason: err.Error()}
		}
		if err := enc.Encode(verdict); err != nil {
			return err
		}
	}
	return out.Flush()
}

// methodBad is the method of a line that cannot be judged.
const methodBad answer.Method = "bad"

func (j Judge) tooMany(bad int) error {
	if j.MaxBad == 0 {
		return nil // the line says it all
	}
	return fmt.Errorf("%d lines cannot be judged, and --max-bad is %d", bad, j.MaxBad)
}

// line judges one line. A key may be a number, or a list of one.
func (j Judge) line(data []byte) (reward.Verdict, error) {
	var row struct {
		Gold     json.RawMessage
		Response *string
	}
	if !utf8.Valid(data) {
		return reward.Verdict{}, errors.New("not UTF-8")
	}
	if err := json.Unmarshal(data, &row); err != nil {
		return reward.Verdict{}, err
	}
	if row.Gold == nil || row.Response == nil {
		return reward.Verdict{}, errors.New(`want the fields "gold" and "response", which are text`)
	}
	gold, err := keyText(row.Gold)
	if err != nil {
		return reward.Verdict{}, err
	}
	verdict, err := reward.Response(j.Mode, *row.Response, gold)
	if err != nil {
		return reward.Verdict{}, fmt.Errorf("gold: %w", err)
	}
	return verdict, nil
}

// keyText is a key as text: numbers are written as they are.
func keyText(data json.RawMessage) (string, error) {
	var list []json.RawMessage
	if json.Unmarshal(data, &list) == nil && len(list) == 1 {
		data = list[0]
	}
	var text string
	if err := json.Unmarshal(data, &text); err == nil && string(data) != "null" {
		return text, nil
	}
	var number json.Number
	if err := json.Unmarshal(data, &number); err == nil && number != "" {
		return number.String(), nil
	}
	return "", fmt.Errorf("gold: is %.40s, want a text, a number or a list of one", data)
}
