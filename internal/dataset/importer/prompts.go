package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"temper/internal/dataset"
	"temper/internal/dataset/layout"
	"temper/internal/dataset/rows"
)

// ReadPrompts calls yield with the prompt of each row of a file, in any layout. A row
// without one is an error: a benchmark has to be known whole.
func ReadPrompts(path string, yield func(row int64, prompt string)) error {
	return eachItem(path, layout.Options{}, func(row rows.Row, _ *layout.Layout, item *layout.Item, err error) error {
		prompt := PromptOf(item)
		if prompt == "" && err != nil {
			return err
		}
		yield(row.Num, prompt)
		return nil
	})
}

// sampleRow is a line of a file of samples: one response, or several.
type sampleRow struct {
	Prompt    string   `json:"prompt"`
	Problem   string   `json:"problem"`
	Question  string   `json:"question"`
	Response  string   `json:"response"`
	Solution  string   `json:"generated_solution"`
	Responses []string `json:"responses"`
}

// ReadSamples reads responses into an agreement filter: rows of prompt (problem, question)
// with response (generated_solution) or responses. A row that is none is an error.
func ReadSamples(path string, into *dataset.Agreement) (err error) {
	r, err := rows.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for n := 0; ; n++ {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				return fmt.Errorf("%s: has no samples", path)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		var s sampleRow
		if err = row.Err; err == nil {
			err = json.Unmarshal(row.JSON, &s)
		}
		if err == nil {
			err = into.Add(s.prompt(), s.responses()...)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, row.Num, err)
		}
	}
}

func (s sampleRow) prompt() string {
	for _, p := range []string{s.Prompt, s.Problem, s.Question} {
		if p != "" {
			return p
		}
	}
	return ""
}

func (s sampleRow) responses() []string {
	out := s.Responses
	for _, r := range []string{s.Response, s.Solution} {
		if r != "" {
			out = append(out, r)
		}
	}
	return out
}
