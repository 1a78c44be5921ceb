package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// maxLine bounds one line of a file.
	maxLine = 16 << 20
	// maxReported bounds the bad lines that one error lists.
	maxReported = 20
)

// readLines decodes each non-empty line strictly and checks it. The error has a
// line of its own for each bad line, up to a bound.
func readLines[T any](r io.Reader, name string, check func(line int, v *T) error) ([]T, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	if err := checkEncoding(buffered); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []T
	bad := badLines{file: name}
	for n := 1; ; n++ {
		line, end, err := nextLine(buffered)
		switch {
		case errors.Is(err, errLongLine):
			bad.add(n, err)
		case err != nil:
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		case len(bytes.TrimSpace(line)) == 0:
		default:
			var v T
			err := decode(line, &v)
			if err == nil {
				err = check(n, &v)
			}
			if err != nil {
				bad.add(n, err)
			} else {
				out = append(out, v)
			}
		}
		if end {
			break
		}
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no lines", name)
	}
	return out, nil
}

// badLines collects the errors of lines.
type badLines struct {
	file   string
	errs   []error
	others int
}

func (b *badLines) add(line int, err error) {
	if len(b.errs) == maxReported {
		b.others++
		return
	}
	b.errs = append(b.errs, fmt.Errorf("%s:%d: %w", b.file, line, err))
}

func (b *badLines) err() error {
	if b.others > 0 {
		b.errs = append(b.errs, fmt.Errorf("%s: %d more bad lines", b.file, b.others))
	}
	return errors.Join(b.errs...)
}

// checkEncoding skips a UTF-8 byte order mark and refuses files that are no text of
// ours at all, by their first bytes.
func checkEncoding(r *bufio.Reader) error {
	head, err := r.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case bytes.Equal(head, []byte("\xef\xbb\xbf")):
		_, err = r.Discard(len(head))
		return err
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return errors.New("is UTF-16, want UTF-8")
	case bytes.HasPrefix(head, []byte("\x1f\x8b")), bytes.HasPrefix(head, []byte("\x28\xb5\x2f")):
		return errors.New("is compressed, want plain JSON lines")
	case bytes.HasPrefix(head, []byte("PAR")):
		return errors.New("is Parquet, want JSON lines")
	}
	return nil
}

// errLongLine is a line of more than maxLine bytes, of which nothing is kept.
var errLongLine = fmt.Errorf("is longer than %d MiB, the limit of one line", maxLine>>20)

// nextLine reads up to the next line break and past it. end is true with the last
// line, which may be empty. The bytes are valid until the next call.
func nextLine(r *bufio.Reader) (line []byte, end bool, err error) {
	long := false
	for {
		part, err := r.ReadSlice('\n')
		if end = errors.Is(err, io.EOF); err != nil && !end && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, false, err
		}
		whole := err == nil || end
		if whole && line == nil && !long {
			return part, end, nil
		}
		if long = long || len(line)+len(part) > maxLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if whole {
			if long {
				return nil, end, errLongLine
			}
			return line, end, nil
		}
	}
}
