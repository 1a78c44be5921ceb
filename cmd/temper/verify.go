package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/verify"
)

// maxVerifyLine bounds a line of what is verified.
const maxVerifyLine = 16 << 20

func verifyCommand() *cobra.Command {
	var mode string
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Judge responses by their keys: JSON lines in, JSON lines out",
		Long: "Judge responses by their keys. Each line of FILE, or of standard input, is {\"gold\": KEY, \"response\": TEXT};\n" +
			"each line that is printed is {\"correct\", \"extracted\", \"method\", \"reason\"}, in the same order.\n\n" +
			"Modes: paper takes the last \\boxed in the last <answer> block; tag takes that block as it is; integer accepts whole\n" +
			"numbers alone; released takes the last box anywhere, or what follows a phrase such as \"the answer is\", and accepts\n" +
			"numbers that are near enough, as the released grader of rStar2-Agent does.",
		Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&mode, "mode", string(verify.Paper), "paper, tag, integer or released")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := verify.Mode(mode).Check(); err != nil {
			return cli.Usagef("--%v", err)
		}
		in, name := cmd.InOrStdin(), "standard input"
		if len(args) > 0 {
			f, err := os.Open(args[0])
			if err != nil {
				return cli.Usage(err)
			}
			defer func() { _ = f.Close() }() // only read
			in, name = f, args[0]
		}
		return verifyLines(verify.Mode(mode), in, name, cmd.OutOrStdout())
	}
	return cmd
}

// verifyLines judges line by line. It stops at the first line that it cannot read.
func verifyLines(mode verify.Mode, in io.Reader, name string, w io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxVerifyLine)
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	n := 0
	fail := func(err error) error {
		return errors.Join(out.Flush(), fmt.Errorf("%s: line %d: %w", name, n, err))
	}
	for lines.Scan() {
		n++
		var row struct{ Gold, Response *string }
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return fail(err)
		}
		if row.Gold == nil || row.Response == nil {
			return fail(errors.New(`want the fields "gold" and "response", which are text`))
		}
		verdict, err := verify.Response(mode, *row.Response, *row.Gold)
		if err != nil {
			return fail(fmt.Errorf("gold: %w", err))
		}
		if err := enc.Encode(verdict); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		n++
		return fail(err)
	}
	return out.Flush()
}
