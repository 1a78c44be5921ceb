// Package rows reads rows from files of every form in which public data sets come: JSON
// lines, a JSON list or a sequence of JSON objects, and Parquet. It hands out each row as
// one JSON object and does not interpret the fields.
//
// Invariant: no row is skipped in silence. Memory holds one row and the pages of a Parquet
// file that contain it, which MaxPages bounds.
package rows

import (
	"bufio"
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxBytes bounds one row as JSON.
const MaxBytes = 16 << 20

// ErrLong is a row of more than MaxBytes, of which nothing is kept.
var ErrLong = fmt.Errorf("is longer than %d MiB, the limit of one row", MaxBytes>>20)

// Row is one row of a file.
type Row struct {
	// Num is its line in JSON lines, and its number from 1 elsewhere.
	Num int64
	// JSON is the text of the row, valid until the next call. Only rows of Parquet are
	// known to be objects.
	JSON []byte
	// Err says why the row cannot be read; JSON is nil then.
	Err error
}

// Reader reads the rows of one file. It is not safe for concurrent use.
type Reader struct {
	src  source
	file *os.File
	form string
}

// source is a form of files.
type source interface {
	// next returns the next row, or io.EOF. Another error ends the file: nothing behind
	// it can be read.
	next() (Row, error)
	// skip passes n rows without reading them, as far as the form allows that.
	skip(n int64) error
}

// Forms of files.
const (
	FormLines   = "JSON lines"
	FormJSON    = "JSON"
	FormParquet = "Parquet"
)

// Open opens a file. The first bytes decide on its form. The error names the file.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open data: %w", err)
	}
	r := &Reader{file: f}
	if err := r.findForm(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return r, nil
}

func (r *Reader) findForm() error {
	magic := make([]byte, 4)
	if _, err := r.file.ReadAt(magic, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if string(magic) == "PAR1" || string(magic) == "PARE" {
		r.form = FormParquet
		src, err := openParquet(r.file)
		r.src = src
		return err
	}
	buffered := bufio.NewReaderSize(r.file, 256<<10)
	if err := CheckEncoding(buffered); err != nil {
		return err
	}
	r.form = FormLines
	if begins, isList, err := beginsJSON(buffered); err != nil {
		return err
	} else if begins {
		r.form, r.src = FormJSON, &values{in: buffered, list: isList}
		return nil
	}
	r.src = &lineRows{lines: Lines{in: buffered}}
	return nil
}

// beginsJSON tells a JSON list, or objects over several lines, from JSON lines.
func beginsJSON(in *bufio.Reader) (begins, isList bool, err error) {
	head, err := in.Peek(64 << 10)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return false, false, err
	}
	head = bytes.TrimLeft(head, " \t\r\n")
	if bytes.HasPrefix(head, []byte("[")) {
		return true, true, nil
	}
	line, _, whole := bytes.Cut(head, []byte("\n"))
	line = bytes.TrimSpace(line)
	if !whole || !bytes.HasPrefix(line, []byte("{")) || jsontext.Value(line).IsValid() {
		return false, false, nil
	}
	last := line[len(line)-1]
	return last == '{' || last == '[' || last == ',', false, nil
}

// Form says what the file is: FormLines, FormJSON or FormParquet.
func (r *Reader) Form() string { return r.form }

// Next returns the next row, or io.EOF. A row that cannot be read has Err; any other
// error ends the file.
func (r *Reader) Next() (Row, error) { return r.src.next() }

// Skip passes n rows.
func (r *Reader) Skip(n int64) error {
	if n == 0 {
		return nil
	}
	return r.src.skip(n)
}

// Close closes the file.
func (r *Reader) Close() error {
	if c, ok := r.src.(io.Closer); ok {
		return errors.Join(c.Close(), r.file.Close())
	}
	return r.file.Close()
}

// lineRows are the non-empty lines of a file.
type lineRows struct {
	lines Lines
	ended bool
}

func (l *lineRows) next() (Row, error) {
	for !l.ended {
		line, end, err := l.lines.Next()
		l.ended = end
		row := Row{Num: int64(l.lines.num), JSON: line}
		switch {
		case errors.Is(err, ErrLong):
			return Row{Num: row.Num, Err: err}, nil
		case err != nil:
			return Row{}, err
		case len(bytes.TrimSpace(line)) > 0:
			return row, nil
		}
	}
	return Row{}, io.EOF
}

func (l *lineRows) skip(n int64) error { return skipRows(l, n) }

func skipRows(s source, n int64) error {
	for i := range n {
		if _, err := s.next(); err != nil {
			return fmt.Errorf("skip row %d: %w", i+1, err)
		}
	}
	return nil
}
