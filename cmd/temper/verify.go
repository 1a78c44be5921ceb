package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"temper/internal/answer"
	"temper/internal/cli"
	"temper/internal/dataset/rows"
	"temper/internal/reward"
)

// verifying is what a person asks for.
type verifying struct {
	mode   reward.Mode
	name   string // of the input
	maxBad int
}

func verifyCommand() *cobra.Command {
	var v verifying
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Judge responses by their keys: JSON lines in, JSON lines out",
		Long: "Judge responses by their keys. Each line of FILE, or of standard input, is {\"gold\": KEY, \"response\": TEXT};\n" +
			"each line that is printed is {\"correct\", \"extracted\", \"method\", \"reason\"}, in the same order. A line that cannot\n" +
			"be judged stops it, unless --max-bad allows it; then it is named on standard error, and its method is \"bad\".\n\n" +
			"Modes: paper takes the last \\boxed in the last <answer> block; tag takes that block as it is; integer accepts whole\n" +
			"numbers alone; released takes the last box anywhere, or what follows a phrase such as \"the answer is\", and accepts\n" +
			"numbers that are near enough, as the released grader of rStar2-Agent does.",
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar((*string)(&v.mode), "mode", string(reward.Paper), "paper, tag, integer or released")
	cmd.Flags().IntVar(&v.maxBad, "max-bad", 0, "lines that are tolerated which cannot be judged")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := v.mode.Check(); err != nil {
			return cli.Usagef("--%v", err)
		}
		if v.maxBad < 0 {
			return cli.Usagef("--max-bad %d, want 0 or more", v.maxBad)
		}
		in := cmd.InOrStdin()
		v.name = "standard input"
		if len(args) > 0 {
			f, err := os.Open(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			defer func() { _ = f.Close() }() // only read
			in, v.name = f, args[0]
		}
		return v.lines(in, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// lines judges line by line. A line that cannot be read is named on errs and gets a
// line of its own, so that the output has one for each; more than maxBad of them end it.
func (v *verifying) lines(in io.Reader, w, errs io.Writer) error {
	lines, err := rows.NewLines(in)
	if err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", v.name, err))
	}
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	bad := 0
	for end := false; !end; {
		var data []byte
		data, end, err = lines.Next()
		if err != nil && !errors.Is(err, rows.ErrLong) {
			return errors.Join(out.Flush(), fmt.Errorf("%s: %w", v.name, err))
		}
		var verdict reward.Verdict
		if err == nil {
			if len(bytes.TrimSpace(data)) == 0 {
				continue
			}
			verdict, err = v.line(data)
		}
		if err != nil {
			err = fmt.Errorf("%s: line %d: %w", v.name, lines.Num(), err)
			if bad++; bad > v.maxBad {
				return cli.Usage(errors.Join(out.Flush(), err, v.tooMany(bad)))
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

func (v *verifying) tooMany(bad int) error {
	if v.maxBad == 0 {
		return nil // the line says it all
	}
	return fmt.Errorf("%d lines cannot be judged, and --max-bad is %d", bad, v.maxBad)
}

// line judges one line. A key may be a number, or a list of one.
func (v *verifying) line(data []byte) (reward.Verdict, error) {
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
	verdict, err := reward.Response(v.mode, *row.Response, gold)
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
