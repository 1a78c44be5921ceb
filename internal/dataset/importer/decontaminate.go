package importer

import (
	"bufio"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"temper/internal/dataset"
	"temper/internal/dataset/layout"
	"temper/internal/dataset/rows"
)

// Decontaminated says which rows share words with a benchmark.
type Decontaminated struct {
	Read int64 `json:"read"`
	Kept int64 `json:"kept"`
	// Same counts dropped rows that have the prompt of a benchmark problem; Overlapping
	// counts dropped rows that share a sequence of words with one.
	Same        int64 `json:"same"`
	Overlapping int64 `json:"overlapping"`
	// Benchmarks counts the dropped rows by file of the benchmark, and Problems the
	// problems of which they are.
	Benchmarks map[string]int64 `json:"benchmarks"`
	Problems   map[string]int64 `json:"problems"`
	// Dropped are the first rows that were dropped.
	Dropped []Hit `json:"dropped"`
}

// Hit is a dropped row.
type Hit struct {
	File string `json:"file"`
	Row  int64  `json:"row"`
	dataset.Overlap
}

// ErrNothingLeft means that no row was kept, and no file written.
var ErrNothingLeft = errors.New("nothing is left")

// Decontaminate writes the rows of files that share nothing with the benchmarks into out,
// as they are, one a line. A row that cannot be read is an error: nothing is known of it. against
// are the files of the benchmarks, which no output replaces.
func Decontaminate(ctx context.Context, files, against []string, out string, index *dataset.Index) (*Decontaminated, error) {
	d := &Decontaminated{Benchmarks: map[string]int64{}, Problems: map[string]int64{}, Dropped: []Hit{}}
	return d, WriteWhole(out, slices.Concat(files, against), func(w *bufio.Writer) error {
		for _, file := range files {
			if err := ReadItems(file, layout.Options{}, func(row rows.Row, _ *layout.Layout, item *layout.Item) error {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return d.take(file, row, item, index, w)
			}); err != nil {
				return err
			}
		}
		if d.Kept == 0 {
			return fmt.Errorf("%w: %d rows read, all of them in a benchmark", ErrNothingLeft, d.Read)
		}
		return nil
	})
}

// take writes a row that shares nothing with the benchmarks, and counts one that does.
func (d *Decontaminated) take(file string, row rows.Row, item *layout.Item, index *dataset.Index, w *bufio.Writer) error {
	d.Read++
	if o, found := index.Find(PromptOf(item)); found {
		d.drop(file, row.Num, o)
		return nil
	}
	d.Kept++
	line := jsontext.Value(row.JSON)
	if err := line.Compact(); err != nil {
		return err
	}
	if _, err := w.Write(line); err != nil {
		return err
	}
	return w.WriteByte('\n')
}

func (d *Decontaminated) drop(file string, row int64, o dataset.Overlap) {
	if o.Words == "" {
		d.Same++
	} else {
		d.Overlapping++
	}
	name := o.Benchmark
	if at := strings.LastIndexByte(name, ':'); at > 0 {
		name = name[:at]
	}
	d.Benchmarks[name]++
	d.Problems[o.Benchmark]++
	if len(d.Dropped) < maxHits {
		d.Dropped = append(d.Dropped, Hit{file, row, o})
	}
}

// maxHits bounds the dropped rows that are listed.
const maxHits = 1000

// ReadItems calls yield with each row of a file and what it becomes, in any layout. A row
// that becomes nothing is an error. The row and the item are valid until the next call.
func ReadItems(path string, opts layout.Options, yield func(rows.Row, *layout.Layout, *layout.Item) error) error {
	return eachItem(path, opts, func(row rows.Row, l *layout.Layout, item *layout.Item, err error) error {
		if err != nil {
			return err
		}
		return yield(row, l, item)
	})
}

// eachItem calls visit with each row of a file and the error of reading the row, if any. An
// error of visit ends it, with the row's place.
func eachItem(path string, opts layout.Options, visit func(rows.Row, *layout.Layout, *layout.Item, error) error) (err error) {
	l, err := DetectFile(path)
	if err != nil {
		return err
	}
	r, err := rows.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var o layout.Object
	var item layout.Item
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		item = layout.Item{}
		if err = row.Err; err == nil {
			err = o.Parse(row.JSON)
		}
		if err == nil {
			err = l.Read(&o, &item, opts)
		}
		if err = visit(row, l, &item, err); err != nil {
			return fmt.Errorf("%s:%d: %w", path, row.Num, err)
		}
	}
}
