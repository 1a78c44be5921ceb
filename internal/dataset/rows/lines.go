package rows

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Lines reads the lines of a text of bounded length each.
type Lines struct {
	in  *bufio.Reader
	num int
}

// NewLines passes a byte order mark and refuses what is no text in UTF-8 by its first
// bytes.
func NewLines(r io.Reader) (*Lines, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, err := in.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte("PAR")) {
		return nil, errors.New("is Parquet, want JSON lines: temper data import reads it")
	}
	return &Lines{in: in}, CheckEncoding(in)
}

// Num is the number of the line that Next returned last, from 1.
func (l *Lines) Num() int { return l.num }

// Next reads up to the next line break and past it. end is true with the last line,
// which may be empty. The bytes are valid until the next call. The error is ErrLong for a
// line that was passed without being kept.
func (l *Lines) Next() (line []byte, end bool, err error) {
	l.num++
	long := false
	for {
		part, err := l.in.ReadSlice('\n')
		if end = errors.Is(err, io.EOF); err != nil && !end && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, false, err
		}
		whole := err == nil || end
		if whole && line == nil && !long {
			return part, end, nil
		}
		if long = long || len(line)+len(part) > MaxBytes; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if whole {
			if long {
				return nil, end, ErrLong
			}
			return line, end, nil
		}
	}
}

// CheckEncoding passes a UTF-8 byte order mark and refuses text in another encoding and
// compressed files, by their first bytes.
func CheckEncoding(r *bufio.Reader) error {
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
	case bytes.HasPrefix(head, []byte("\x1f\x8b")), bytes.HasPrefix(head, []byte("\x28\xb5\x2f")), bytes.HasPrefix(head, []byte("PK\x03")):
		return errors.New("is compressed: unpack it first")
	}
	return nil
}
