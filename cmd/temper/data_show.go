package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"temper/internal/chat"
	"temper/internal/cli"
	"temper/internal/dataset/importer"
	"temper/internal/dataset/layout"
	"temper/internal/dataset/rows"
)

func dataShowCommand() *cobra.Command {
	var format formatFlags
	var row, num int
	var spans bool
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print the tokens of a row, and which of them are learned",
		Long: `Prints the tokens of a row of dialogues or problems as a run would make them, one a line:
its place, its id, # if the loss covers it and . if not, and its text. Rows of any layout
that temper data import knows are shown as what they become. Without --model and --config
tokens are bytes of the small ChatML.`,
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.IntVar(&row, "row", 1, "first row to show, from 1")
	f.IntVar(&num, "num", 1, "rows to show")
	f.BoolVar(&spans, "spans", false, "one line for all tokens in a row that are learned, or that are not")
	format.add(f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if row < 1 || num < 1 {
			return cli.Usagef("--row and --num are %d and %d: want numbers from 1", row, num)
		}
		chatFormat, err := format.open(cmd.Context())
		if err != nil {
			return cli.Usage(err)
		}
		s := shown{out: cmd.OutOrStdout(), format: chatFormat, spans: spans, file: args[0]}
		return dataError(cmd, s.rows(row, num))
	}
	return cmd
}

// shown prints rows.
type shown struct {
	out    io.Writer
	format *chat.Format
	spans  bool
	file   string
}

// errShown ends the reading of a file.
var errShown = errors.New("all is shown")

func (s *shown) rows(first, num int) error {
	at := 0
	err := importer.ReadItems(s.file, layout.Options{}, func(row rows.Row, l *layout.Layout, item *layout.Item) error {
		if at++; at < first {
			return nil
		}
		if err := s.row(row.Num, l, item); err != nil {
			return err
		}
		if at == first+num-1 {
			return errShown
		}
		return nil
	})
	switch {
	case errors.Is(err, errShown):
		return nil
	case err == nil && at < first:
		return fmt.Errorf("%s: has %d rows, not %d", s.file, at, first)
	}
	return err
}

func (s *shown) row(num int64, l *layout.Layout, item *layout.Item) error {
	if l.Kind == layout.Problems {
		t, err := s.format.Begin(item.Prompt)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s:%d: problem of %s, answer %q, %d tokens of the prompt\n", s.file, num, l.Name, item.Answer, t.PromptTokens())
		return s.tokens(t)
	}
	d, changed := s.format.Fit(item.Dialogue)
	t, err := s.format.Render(d)
	if err != nil {
		return err
	}
	learned := 0
	for _, m := range t.LossMask() {
		if m {
			learned++
		}
	}
	fmt.Fprintf(s.out, "%s:%d: dialogue of %s, %d messages, %s, %d tokens, %d of them learned\n",
		s.file, num, l.Name, len(d.Messages), toolsText(d), len(t.Tokens()), learned)
	if changed {
		fmt.Fprintln(s.out, "fitted to the format: the opening of its turns was put in, or the tool was renamed")
	}
	return s.tokens(t)
}

func toolsText(d chat.Dialogue) string {
	switch {
	case d.Tools == nil:
		return "the run's tools"
	case len(d.Tools) == 0:
		return "no tools"
	case len(d.Tools) == 1:
		return "1 tool of its own"
	}
	return fmt.Sprintf("%d tools of its own", len(d.Tools))
}

// tokens prints each token or each span.
func (s *shown) tokens(t *chat.Transcript) error {
	tokens, mask := t.Tokens(), t.LossMask()
	sign := map[bool]string{true: "#", false: "."}
	for from := 0; from < len(tokens); {
		to := from + 1
		for s.spans && to < len(tokens) && mask[to] == mask[from] {
			to++
		}
		text := s.format.Tokenizer().Decode(tokens[from:to])
		var err error
		if s.spans {
			_, err = fmt.Fprintf(s.out, "%6d..%d  %s  %q\n", from, to-1, sign[mask[from]], text)
		} else {
			_, err = fmt.Fprintf(s.out, "%6d  %7d  %s  %q\n", from, tokens[from], sign[mask[from]], text)
		}
		if err != nil {
			return err
		}
		from = to
	}
	return nil
}
