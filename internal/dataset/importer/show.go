package importer

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"temper/internal/chat"
	"temper/internal/dataset"
	"temper/internal/dataset/layout"
	"temper/internal/dataset/rows"
)

// Show prints the tokens of num rows of a file from the row first on, from 1, as a run with
// the format would make them; with spans, one line for all tokens in a row that are learned,
// or that are not.
func Show(out io.Writer, format *chat.Format, file string, first, num int, spans bool) error {
	return (&shown{out: out, format: format, spans: spans, file: file}).rows(first, num)
}

// shown prints rows of a file.
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
	err := ReadItems(s.file, layout.Options{}, func(row rows.Row, l *layout.Layout, item *layout.Item) error {
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

// Print prints what was dropped, of so many problems of the benchmarks.
func (d *Decontaminated) Print(w io.Writer, problems int) error {
	fmt.Fprintf(w, "%d rows read = %d kept + %d whose prompt is in a benchmark + %d that share words with one\n", d.Read, d.Kept, d.Same, d.Overlapping)
	fmt.Fprintf(w, "%d of %d benchmark problems are met\n", len(d.Problems), problems)
	for _, name := range slices.Sorted(maps.Keys(d.Benchmarks)) {
		fmt.Fprintf(w, "  %s: %d rows\n", name, d.Benchmarks[name])
	}
	const most = 20
	for _, h := range d.Dropped[:min(most, len(d.Dropped))] {
		if h.Words == "" {
			fmt.Fprintf(w, "dropped %s:%d: is %s\n", h.File, h.Row, h.Benchmark)
			continue
		}
		fmt.Fprintf(w, "dropped %s:%d: shares %q with %s\n", h.File, h.Row, h.Words, h.Benchmark)
	}
	if n := d.Same + d.Overlapping - most; n > 0 {
		fmt.Fprintf(w, "%d more\n", n)
	}
	return nil
}

// ReadBenchmarks makes an index of the prompts of files in any layout.
func ReadBenchmarks(paths []string, words int) (*dataset.Index, error) {
	index, err := dataset.NewIndex(words)
	if err != nil {
		return nil, err
	}
	files, err := Files(paths)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if err := ReadPrompts(file, func(row int64, prompt string) {
			index.Add(fmt.Sprintf("%s:%d", file, row), prompt)
		}); err != nil {
			return nil, err
		}
	}
	if index.Len() == 0 {
		return nil, errors.New("the benchmarks have no prompts")
	}
	return index, nil
}

// Tokens counts the tokens of a problem's prompt or of a whole dialogue.
func Tokens(format *chat.Format, item *layout.Item) (int, error) {
	if len(item.Dialogue.Messages) == 0 {
		t, err := format.Begin(item.Prompt)
		if err != nil {
			return 0, err
		}
		return t.PromptTokens(), nil
	}
	d, _ := format.Fit(item.Dialogue)
	t, err := format.Render(d)
	if err != nil {
		return 0, err
	}
	return len(t.Tokens()), nil
}
