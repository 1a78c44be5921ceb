// Package importer imports public data sets: it reads their files row by row, turns the
// rows into problems or dialogues, cleans them, and reports the fate of each. An
// interrupted import resumes where it was.
//
// Invariant: rows read are rows kept, dropped and bad, whatever happens; the output is a
// function of the files and the options, with or without interruptions.
package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"temper/internal/dataset"
	"temper/internal/dataset/layout"
	"temper/internal/dataset/rows"
	"temper/internal/openai/chatclient"
)

// Options are the choices of an import.
type Options struct {
	// Layout is the name of a layout; "" recognizes it from the rows.
	Layout string `json:"layout"`
	// Fields names the fields of a row; see layout.Options.
	Fields layout.Options `json:"fields"`
	// Source and License apply to rows that state none; "" looks further.
	Source  string `json:"source"`
	License string `json:"license"`
	// Env is the environment that judges problems that name none.
	Env string `json:"env"`
	// Rules are what answers must be.
	Rules dataset.Rules `json:"rules"`
	// KeepDuplicates keeps problems with the same prompt.
	KeepDuplicates bool `json:"keep_duplicates"`
	// MaxPromptChars drops longer prompts; 0 for no bound. MaxPromptTokens does by Tokens.
	MaxPromptChars  int `json:"max_prompt_chars"`
	MaxPromptTokens int `json:"max_prompt_tokens"`
	// MaxBad is how many malformed rows are tolerated. It may change between a start and
	// its continuation.
	MaxBad int64 `json:"-"`
	// Tokens counts the tokens of a problem's prompt with all that stands around it, or of
	// a whole dialogue; nil where MaxPromptTokens is 0. CountedBy names the counter.
	Tokens    func(*layout.Item) (int, error) `json:"-"`
	CountedBy string                          `json:"counted_by"`
	// Agreement drops problems whose answer samples do not confirm; nil for none.
	// AgreementOf names its file.
	Agreement   *dataset.Agreement `json:"-"`
	AgreementOf string             `json:"agreement_of"`
	// Benchmarks drops rows that share words with a benchmark; nil for none. BenchmarksOf
	// names the files.
	Benchmarks   *dataset.Index `json:"-"`
	BenchmarksOf string         `json:"benchmarks_of"`
	// AlsoRead are the files of Agreement and Benchmarks, none of which the output may be.
	AlsoRead []string `json:"-"`
	// Overwrite replaces a file of the output's name once the import is whole.
	Overwrite bool `json:"-"`
}

// ErrTooManyBad means that more rows are malformed than tolerated.
var ErrTooManyBad = errors.New("too many bad rows")

// checkpointRows is how many rows an import may lose.
const checkpointRows = 50_000

// Run imports files into one file out, in their order. If ctx ends, Run stops and stores
// what a later Run needs to resume. The report is never nil. Errors: ErrTooManyBad; errors
// of files, which name them.
func Run(ctx context.Context, files []string, out string, opts Options) (*Report, error) {
	if len(files) == 0 {
		return newReport(), errors.New("no files to import")
	}
	w, err := openOutput(files, out, opts)
	if err != nil {
		return newReport(), err
	}
	im := &imported{opts: opts, out: w, report: w.state.Report, seen: w.seen}
	defer im.report.listLargest() // after the checkpoint is written
	for n := w.state.File; n < len(files); n++ {
		if err := im.readFile(ctx, n, files[n]); err != nil && im.report.Read == 0 {
			return im.report, errors.Join(err, w.discard())
		} else if err != nil {
			return im.report, errors.Join(err, w.suspend(ctx.Err() == nil || im.over(), n, im.report))
		}
	}
	if im.over() {
		return im.report, errors.Join(im.tooManyBad(), w.suspend(true, 0, im.report))
	}
	if im.report.Kept == 0 {
		return im.report, errors.Join(fmt.Errorf("%w: %d rows read, %d dropped, %d bad", ErrNothingLeft, im.report.Read, im.report.NumDropped(), im.report.NumBad()),
			w.discard())
	}
	im.report.Complete = true
	if err := im.report.Check(); err != nil {
		return im.report, err
	}
	return im.report, w.finish(im.report)
}

// imported is the state of one import.
type imported struct {
	opts   Options
	out    *output
	report *Report
	seen   map[dataset.Key]struct{}

	object layout.Object
	item   layout.Item
	line   []byte
}

func (im *imported) over() bool { return im.report.NumBad() > im.opts.MaxBad }

func (im *imported) tooManyBad() error {
	return fmt.Errorf("%w: %d, and --max-bad is %d", ErrTooManyBad, im.report.NumBad(), im.opts.MaxBad)
}

// readFile imports the rows of one file that are left.
func (im *imported) readFile(ctx context.Context, number int, path string) (err error) {
	r, err := rows.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	l, err := im.layoutOf(number, path, r.Form())
	if err != nil {
		return err
	}
	file := &im.report.Files[number]
	if err := r.Skip(file.Read); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = im.countRow(l, file, row)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := im.pause(ctx, number); err != nil {
			return err
		}
	}
	if im.over() {
		return nil // the last checkpoint stays
	}
	return im.out.checkpoint(number+1, im.report)
}

// layoutOf returns the layout of a file, which the report keeps.
func (im *imported) layoutOf(number int, path, form string) (*layout.Layout, error) {
	if number == len(im.report.Files) {
		l, err := im.findLayout(path)
		if err != nil {
			return nil, err
		}
		im.report.Files = append(im.report.Files, File{Path: path, Form: form, Layout: l.Name, License: fileLicense(path)})
	}
	name := im.report.Files[number].Layout
	l := layout.Mapped(im.opts.Fields.Map)
	if name != l.Name {
		var err error
		if l, err = layout.ByName(name); err != nil {
			return nil, err
		}
	}
	return l, im.sameKind(number, l)
}

// countRow takes a row into the output or into the report.
func (im *imported) countRow(l *layout.Layout, file *File, row rows.Row) error {
	im.report.Read++
	file.Read++
	kept, err := im.takeRow(file.Path, l, file, row)
	if kept {
		file.Kept++
	}
	return err
}

// pause ends an import that has too many bad rows or is to stop, and writes a checkpoint
// now and then.
func (im *imported) pause(ctx context.Context, number int) error {
	switch n := im.report.Read; {
	case im.over() && im.report.NumBad() >= im.opts.MaxBad+maxExamples:
		return im.tooManyBad()
	case n%1024 == 0 && ctx.Err() != nil:
		return fmt.Errorf("interrupted after %d rows; the same command goes on: %w", n, ctx.Err())
	case n%checkpointRows == 0 && !im.over():
		return im.out.checkpoint(number, im.report)
	}
	return nil
}

// takeRow writes a row or counts why not.
func (im *imported) takeRow(path string, l *layout.Layout, file *File, row rows.Row) (kept bool, err error) {
	why := im.convert(l, file, row)
	if why == nil {
		why, err = im.write(l, file)
	}
	if err != nil {
		return false, err
	}
	if why != nil {
		im.report.refuse(path, row.Num, why)
		return false, nil
	}
	im.report.keep(im.item.Source, im.item.License, im.item.Notes)
	return true, nil
}

// convert reads a row into im.item and judges it.
func (im *imported) convert(l *layout.Layout, file *File, row rows.Row) *layout.Reject {
	if row.Err != nil {
		return rowReject(row.Err)
	}
	err := im.object.Parse(row.JSON)
	if err == nil {
		err = l.Read(&im.object, &im.item, im.opts.Fields)
	}
	if err != nil {
		var why *layout.Reject
		if errors.As(err, &why) {
			return why
		}
		return &layout.Reject{Reason: layout.WrongType, Detail: err.Error()}
	}
	im.fillOrigin(file)
	if l.Kind == layout.Problems {
		return im.judgeProblem()
	}
	return im.judgeLength()
}

func rowReject(err error) *layout.Reject {
	reason := layout.NotJSON
	switch {
	case errors.Is(err, rows.ErrLong):
		reason = layout.TooLong
	case errors.Is(err, rows.ErrNotUTF8):
		reason = layout.NotUTF8
	}
	return &layout.Reject{Reason: reason, Detail: err.Error()}
}

func (im *imported) judgeProblem() *layout.Reject {
	item := &im.item
	if why := im.opts.Rules.Check(item.Prompt, item.Answer); why != nil {
		return why
	}
	if im.opts.Agreement != nil {
		if why := im.opts.Agreement.Check(item.Prompt, item.Answer); why != nil {
			return why
		}
	}
	return im.judgeLength()
}

// judgeLength drops rows that are too long or contaminated.
func (im *imported) judgeLength() *layout.Reject {
	prompt := PromptOf(&im.item)
	if n := len(prompt); im.opts.MaxPromptChars > 0 && n > im.opts.MaxPromptChars {
		if n = len([]rune(prompt)); n > im.opts.MaxPromptChars {
			return &layout.Reject{Reason: layout.LongPrompt, Detail: fmt.Sprintf("%d characters", n)}
		}
	}
	if im.opts.MaxPromptTokens > 0 {
		n, err := im.opts.Tokens(&im.item)
		if err != nil {
			return &layout.Reject{Reason: layout.WrongType, Detail: err.Error()}
		}
		if n > im.opts.MaxPromptTokens {
			return &layout.Reject{Reason: layout.LongPrompt, Detail: fmt.Sprintf("%d tokens", n)}
		}
	}
	if im.opts.Benchmarks != nil {
		if o, found := im.opts.Benchmarks.Find(prompt); found {
			return &layout.Reject{Reason: layout.Contaminated, Detail: overlapText(o)}
		}
	}
	return nil
}

func overlapText(o dataset.Overlap) string {
	if o.Words == "" {
		return "is " + o.Benchmark
	}
	return fmt.Sprintf("shares %q with %s", o.Words, o.Benchmark)
}

// findLayout recognizes the layout of a file by its first rows that are whole.
func (im *imported) findLayout(path string) (*layout.Layout, error) {
	if im.opts.Fields.Map != nil {
		return layout.Mapped(im.opts.Fields.Map), nil
	}
	if im.opts.Layout != "" {
		return layout.ByName(im.opts.Layout)
	}
	return DetectFile(path)
}

// rowsToDetect bounds the rows that decide on a layout.
const rowsToDetect = 100

// DetectFile recognizes the layout of a file. The error names the fields that it has.
func DetectFile(path string) (l *layout.Layout, err error) {
	r, err := rows.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var o layout.Object
	var names []string
	var last error
	for range rowsToDetect {
		row, err := r.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				last = err
			}
			break
		}
		if row.Err == nil {
			row.Err = o.Parse(row.JSON)
		}
		if row.Err != nil {
			last = row.Err
			continue
		}
		if l := layout.Detect(&o); l != nil {
			return l, nil
		}
		if names == nil {
			names = o.Names()
		}
	}
	return nil, unknownLayout(path, names, last)
}

func unknownLayout(path string, names []string, last error) error {
	switch {
	case names != nil:
		return fmt.Errorf("%s: no layout is known that has the fields %s: name one with --layout, or say where the fields are, as in --map prompt=%s,answer=FIELD",
			path, chatclient.Escape(joined(names)), chatclient.Escape(names[0]))
	case last != nil:
		return fmt.Errorf("%s: no row can be read: %w", path, last)
	}
	return fmt.Errorf("%s: has no rows", path)
}

// sameKind refuses a file of problems behind one of dialogues, and the reverse.
func (im *imported) sameKind(number int, l *layout.Layout) error {
	if number == 0 {
		return nil
	}
	first, err := layout.ByName(im.report.Files[0].Layout)
	if err == nil && first.Kind != l.Kind {
		return fmt.Errorf("%s has %s and %s has %s: import them apart", im.report.Files[0].Path, first.Kind, im.report.Files[number].Path, l.Kind)
	}
	return nil
}

// Files returns the files of paths: a folder stands for its files of rows, by name.
func Files(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			out = append(out, p)
			continue
		}
		inside, err := filesIn(p)
		if err != nil {
			return nil, err
		}
		if len(inside) == 0 {
			return nil, fmt.Errorf("%s: has no file that ends in .parquet, .jsonl, .ndjson or .json", p)
		}
		out = append(out, inside...)
	}
	return out, nil
}
