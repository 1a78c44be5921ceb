package importer

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"temper/internal/dataset"
	"temper/internal/dataset/rows"
	"temper/internal/fault"
)

// Units of the shares of a mix.
const (
	ByEpochs  = "epochs"
	ByWeights = "weights"
)

var (
	errNoWeight = errors.New("want FILE=SHARE with a number from 0")
	errNoEpochs = errors.New("want FILE=SHARE with a number above 0")
)

// Mix mixes files of rows.
type Mix struct {
	Out  string // the file to write
	By   string // ByEpochs or ByWeights
	Num  int    // rows of a mix by weights; 0 is as many as the files have
	Seed uint64 // of the order
}

// mixFile is a file of a mix with the places of its lines.
type mixFile struct {
	path  string
	file  *os.File
	lines []span
}

type span struct {
	at   int64
	size int
}

// Write mixes files, each FILE or FILE=SHARE, and prints to w what each has given.
func (m *Mix) Write(ctx context.Context, w io.Writer, args []string) (err error) {
	if m.Out == "" {
		return fault.Newf(fault.InvalidConfig, "--out is missing: name the file to write")
	}
	if m.By != ByEpochs && m.By != ByWeights {
		return fault.Newf(fault.InvalidConfig, "--by is %q, want epochs or weights", m.By)
	}
	files, parts, err := m.open(ctx, args)
	defer func() { err = errors.Join(err, closeFiles(files)) }()
	if err != nil {
		return asDataset(ctx, err)
	}
	picks, err := dataset.Mix(parts, m.Num, m.Seed)
	if err != nil {
		return fault.New(fault.Dataset, err)
	}
	if err := m.write(ctx, files, picks); err != nil {
		return err
	}
	given := make([]int, len(files))
	for _, p := range picks {
		given[p.Part]++
	}
	for i, f := range files {
		fmt.Fprintf(w, "%s: %d of %d rows, %.3g passes, %.1f %% of the mix\n",
			f.path, given[i], len(f.lines), float64(given[i])/float64(len(f.lines)), 100*float64(given[i])/float64(len(picks)))
	}
	fmt.Fprintf(w, "%d rows in %s\n", len(picks), m.Out)
	return nil
}

// open opens the files and reads their shares.
func (m *Mix) open(ctx context.Context, args []string) (files []*mixFile, parts []dataset.Part, err error) {
	var bad []error
	for _, arg := range args {
		path, share, err := m.share(arg)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		f, err := openLines(ctx, path)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		files = append(files, f)
		part := dataset.Part{Rows: len(f.lines), Epochs: share}
		if m.By == ByWeights {
			part = dataset.Part{Rows: len(f.lines), Weight: share}
		}
		parts = append(parts, part)
	}
	if m.By == ByWeights && len(bad) == 0 {
		bad = append(bad, checkWeights(parts))
	}
	return files, parts, errors.Join(bad...)
}

func checkWeights(parts []dataset.Part) error {
	total := 0.0
	for _, p := range parts {
		total += p.Weight
	}
	if total == 0 {
		return errors.New("the weights of the mix sum to nothing")
	}
	return nil
}

// share reads FILE=SHARE. Without a share it is 1.
func (m *Mix) share(arg string) (path string, share float64, err error) {
	at := strings.LastIndexByte(arg, '=')
	if at < 0 {
		return arg, 1, nil
	}
	share, err = strconv.ParseFloat(arg[at+1:], 64)
	number := err == nil && share >= 0 && !math.IsInf(share, 0)
	switch {
	case m.By == ByEpochs && (!number || share == 0):
		return "", 0, fmt.Errorf("%s: %w", arg, errNoEpochs)
	case !number:
		return "", 0, fmt.Errorf("%s: %w", arg, errNoWeight)
	}
	return arg[:at], share, nil
}

// openLines finds the lines of a file.
func openLines(ctx context.Context, path string) (*mixFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	m := &mixFile{path: path, file: f}
	if err := m.index(ctx, f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return m, nil
}

// index finds the lines of r, which is the file.
func (m *mixFile) index(ctx context.Context, r io.Reader) error {
	in := bufio.NewReaderSize(r, 256<<10)
	_, _ = in.Peek(3) // of which the check below tells what is wrong
	begin := in.Buffered()
	if err := rows.CheckEncoding(in); err != nil {
		return err
	}
	at := int64(begin - in.Buffered()) // behind a byte order mark
	if head, err := in.Peek(1); err == nil && head[0] == '[' {
		return errors.New("is a JSON list, want JSON lines: temper data import writes them")
	}
	for ctx.Err() == nil {
		line, err := in.ReadSlice('\n')
		size := len(line)
		blank := len(bytes.TrimSpace(line)) == 0
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = in.ReadSlice('\n')
			size += len(line)
			blank = blank && len(bytes.TrimSpace(line)) == 0
		}
		if !blank {
			if size > rows.MaxBytes {
				return rows.ErrLong
			}
			m.lines = append(m.lines, span{at, size})
		}
		at += int64(size)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil { // what is behind it would be missing in the mix
			return err
		}
	}
	if len(m.lines) == 0 && ctx.Err() == nil {
		return errors.New("has no rows")
	}
	return ctx.Err()
}

func closeFiles(files []*mixFile) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.file.Close())
	}
	return errors.Join(errs...)
}

// write copies the lines in the order of the mix.
func (m *Mix) write(ctx context.Context, files []*mixFile, picks []dataset.Pick) error {
	inputs := make([]string, len(files))
	for i, f := range files {
		inputs[i] = f.path
	}
	err := WriteWhole(m.Out, inputs, func(w *bufio.Writer) error {
		var line []byte
		for _, p := range picks {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			from := files[p.Part].lines[p.Row]
			line = append(line[:0], make([]byte, from.size)...)
			if _, err := files[p.Part].file.ReadAt(line, from.at); err != nil {
				return err
			}
			if _, err := w.Write(append(bytes.TrimSpace(line), '\n')); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, ErrExists) || errors.Is(err, ErrIsRead) || errors.Is(err, ErrBusy) {
		return fault.New(fault.Dataset, err)
	}
	return err
}

// asDataset marks an error that the data is to blame for. An interruption stays as it is.
func asDataset(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return fault.New(fault.Dataset, err)
}
