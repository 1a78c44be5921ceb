package importer

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"temper/internal/dataset/layout"
	"temper/internal/openai/chatclient"
)

const (
	// maxExamples bounds the rows that a report lists for each reason.
	maxExamples = 20
	// maxSources bounds the sources that a report lists, and maxCounted those of which an
	// import counts the rows: a set may name another one in each row.
	maxSources = 100
	maxCounted = 10_000
)

// Report says what became of each row. Kept and all counts of Dropped and Bad sum to Read.
type Report struct {
	// Complete is false where the import stopped early.
	Complete bool   `json:"complete"`
	Out      string `json:"out,omitempty"`
	// OutSHA256 and OutBytes describe the file that was written.
	OutSHA256 string `json:"out_sha256,omitempty"`
	OutBytes  int64  `json:"out_bytes,omitempty"`
	Files     []File `json:"files"`
	Read      int64  `json:"read"`
	Kept      int64  `json:"kept"`
	// Dropped are rows of no use, by reason; Bad are malformed ones.
	Dropped map[layout.Reason]int64 `json:"dropped"`
	Bad     map[layout.Reason]int64 `json:"bad"`
	// Notes count the kept rows in which something was changed.
	Notes map[layout.Note]int64 `json:"notes,omitempty"`
	// Sources count the kept rows by where they come from. Where there are many, they are the
	// largest ones, and OtherRows are the rows of the others.
	Sources   []SourceCount `json:"sources"`
	OtherRows int64         `json:"other_rows,omitempty"`
	// Examples are the first rows of each reason.
	Examples map[layout.Reason][]Example `json:"examples,omitempty"`

	// places maps a source without its row count to its index in Sources; nil before the
	// first row.
	places map[SourceCount]int
}

// File is one file that was read.
type File struct {
	Path    string `json:"path"`
	Form    string `json:"form"`
	Layout  string `json:"layout"`
	License string `json:"license"`
	Read    int64  `json:"read"`
	Kept    int64  `json:"kept"`
}

// SourceCount counts the rows of a source.
type SourceCount struct {
	Source  string `json:"source"`
	License string `json:"license"`
	Rows    int64  `json:"rows"`
}

// Example is a row that was not kept.
type Example struct {
	File   string `json:"file"`
	Row    int64  `json:"row"`
	Detail string `json:"detail"`
}

func newReport() *Report {
	return &Report{
		Dropped: map[layout.Reason]int64{}, Bad: map[layout.Reason]int64{},
		Notes: map[layout.Note]int64{}, Examples: map[layout.Reason][]Example{},
	}
}

// NumBad is the number of malformed rows.
func (r *Report) NumBad() int64 { return sum(r.Bad) }

// NumDropped is the number of rows of no use.
func (r *Report) NumDropped() int64 { return sum(r.Dropped) }

func sum(counts map[layout.Reason]int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// refuse counts a row that is not kept.
func (r *Report) refuse(file string, row int64, why *layout.Reject) {
	if why.Reason.Bad() {
		r.Bad[why.Reason]++
	} else {
		r.Dropped[why.Reason]++
	}
	if list := r.Examples[why.Reason]; len(list) < maxExamples {
		r.Examples[why.Reason] = append(list, Example{file, row, why.Detail})
	}
}

// keep counts a row that is written.
func (r *Report) keep(source, license string, notes []layout.Note) {
	r.Kept++
	for _, n := range notes {
		r.Notes[n]++
	}
	if r.places == nil {
		r.places = map[SourceCount]int{}
		for i, s := range r.Sources {
			r.places[SourceCount{Source: s.Source, License: s.License}] = i
		}
	}
	s := SourceCount{Source: source, License: license}
	i, known := r.places[s]
	switch {
	case known:
		r.Sources[i].Rows++
	case len(r.Sources) == maxCounted:
		r.OtherRows++
	default:
		r.places[s] = len(r.Sources)
		s.Rows = 1
		r.Sources = append(r.Sources, s)
	}
}

// listLargest drops all but the largest of many sources. A report that is still filled must
// not call it.
func (r *Report) listLargest() {
	if len(r.Sources) <= maxSources {
		return
	}
	slices.SortStableFunc(r.Sources, func(a, b SourceCount) int { return cmp.Compare(b.Rows, a.Rows) })
	for _, s := range r.Sources[maxSources:] {
		r.OtherRows += s.Rows
	}
	r.Sources, r.places = r.Sources[:maxSources], nil
}

// Check reports counts that do not sum up, which would be a fault of this program.
func (r *Report) Check() error {
	if r.Read != r.Kept+r.NumDropped()+r.NumBad() {
		return fmt.Errorf("the report does not add up: %d rows read, %d kept, %d dropped, %d bad", r.Read, r.Kept, r.NumDropped(), r.NumBad())
	}
	var fromFiles, fromSources int64
	for _, f := range r.Files {
		fromFiles += f.Read
	}
	for _, s := range r.Sources {
		fromSources += s.Rows
	}
	fromSources += r.OtherRows
	if fromFiles != r.Read || fromSources != r.Kept {
		return fmt.Errorf("the report does not add up: %d rows read of files, %d in all; %d rows of sources, %d kept", fromFiles, r.Read, fromSources, r.Kept)
	}
	return nil
}

// Markdown writes the report to read.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	state := "complete"
	if !r.Complete {
		state = "stopped early"
	}
	fmt.Fprintf(&b, "# Import (%s)\n\n%d rows read = %d kept + %d dropped + %d bad\n", state, r.Read, r.Kept, r.NumDropped(), r.NumBad())
	if r.Out != "" && r.Complete {
		fmt.Fprintf(&b, "\nWritten to %s: %d bytes, sha256 %s\n", r.Out, r.OutBytes, r.OutSHA256)
	}
	b.WriteString("\n| file | form | layout | licence | read | kept |\n|---|---|---|---|---|---|\n")
	for _, f := range r.Files {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %d |\n", cell(f.Path), f.Form, f.Layout, cell(f.License), f.Read, f.Kept)
	}
	counts(&b, "Dropped", r.Dropped)
	counts(&b, "Bad", r.Bad)
	if len(r.Sources) > 0 {
		b.WriteString("\n## Sources of the rows kept\n\n| source | licence | rows |\n|---|---|---|\n")
		for _, s := range r.Sources {
			fmt.Fprintf(&b, "| %s | %s | %d |\n", cell(s.Source), cell(s.License), s.Rows)
		}
		if r.OtherRows > 0 {
			fmt.Fprintf(&b, "\n%d rows are of other sources.\n", r.OtherRows)
		}
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n## Changed in rows kept\n\n| change | rows |\n|---|---|\n")
		for _, n := range slices.Sorted(maps.Keys(r.Notes)) {
			fmt.Fprintf(&b, "| %s | %d |\n", n, r.Notes[n])
		}
	}
	if len(r.Examples) > 0 {
		b.WriteString("\n## First rows of each reason\n\n")
		for _, reason := range slices.Sorted(maps.Keys(r.Examples)) {
			for _, e := range r.Examples[reason] {
				fmt.Fprintf(&b, "- %s: %s:%d: %s\n", reason, e.File, e.Row, strings.Join(strings.Fields(e.Detail), " "))
			}
		}
	}
	_, err := io.WriteString(w, chatclient.Escape(b.String())) // rows may steer a terminal
	return err
}

func counts(b *strings.Builder, title string, of map[layout.Reason]int64) {
	if len(of) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n| reason | rows |\n|---|---|\n", title)
	for _, reason := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(b, "| %s | %d |\n", reason, of[reason])
	}
}

// cell keeps a text of a data set within its cell.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}
