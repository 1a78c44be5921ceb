package rows

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// values are the elements of a JSON list, or JSON objects one after another.
type values struct {
	in   *bufio.Reader
	list bool
	num  int64
	buf  []byte
	// opened is set behind the bracket that opens the list; ended behind the last value.
	opened, ended bool
}

func (v *values) skip(n int64) error { return skipRows(v, n) }

func (v *values) next() (Row, error) {
	if v.ended {
		return Row{}, io.EOF
	}
	b, err := v.seek()
	if err != nil {
		v.ended = true
		return Row{}, err
	}
	v.num++
	if b != '{' && b != '[' && b != '"' {
		return v.scalar(), nil
	}
	long, err := v.cut()
	switch {
	case errors.Is(err, io.EOF):
		v.ended = true
		return Row{Num: v.num, Err: errors.New("the JSON value is cut short by the end of the file")}, nil
	case err != nil:
		return Row{}, err
	case long:
		return Row{Num: v.num, Err: ErrLong}, nil
	}
	return Row{Num: v.num, JSON: v.buf}, nil
}

// seek goes to the first byte of the next value, which it returns and leaves unread. At
// the end it returns io.EOF.
func (v *values) seek() (byte, error) {
	comma := !v.list || !v.opened || v.num == 0
	for {
		b, err := v.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF) && v.list:
			return 0, fmt.Errorf("the JSON list ends without ] behind element %d", v.num)
		case err != nil:
			return 0, err
		case b == ' ', b == '\t', b == '\r', b == '\n':
		case b == '[' && v.list && !v.opened:
			v.opened = true
		case b == ']' && v.list:
			return 0, v.finish()
		case b == ',' && !comma:
			comma = true
		case !comma || b == ',':
			return 0, fmt.Errorf("element %d of the JSON list is followed by %q, want a comma", v.num, string(b))
		default:
			return b, v.in.UnreadByte()
		}
	}
}

// finish refuses text behind the list.
func (v *values) finish() error {
	for {
		b, err := v.in.ReadByte()
		if err != nil {
			return err
		}
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return fmt.Errorf("text behind the JSON list: %q", string(b))
		}
	}
}

// cut reads an object, a list or a text into buf. A long one is passed, not kept.
func (v *values) cut() (long bool, err error) {
	v.buf = v.buf[:0]
	depth, inText, escaped := 0, false, false
	for {
		if _, err := v.in.Peek(1); err != nil {
			return long, err
		}
		chunk, _ := v.in.Peek(v.in.Buffered())
		n, done := 0, false
		for n < len(chunk) && !done {
			b := chunk[n]
			n++
			switch {
			case escaped:
				escaped = false
			case inText && b == '\\':
				escaped = true
			case b == '"':
				inText = !inText
				done = !inText && depth == 0
			case inText:
			case b == '{', b == '[':
				depth++
			case b == '}', b == ']':
				depth--
				done = depth == 0
			}
		}
		if long = long || len(v.buf)+n > MaxBytes; long {
			v.buf = v.buf[:0]
		} else {
			v.buf = append(v.buf, chunk[:n]...)
		}
		if _, err := v.in.Discard(n); err != nil {
			return long, err
		}
		if done {
			return long, nil
		}
	}
}

// scalar passes a value that is no object, which is no row.
func (v *values) scalar() Row {
	for {
		b, err := v.in.ReadByte()
		if err != nil {
			break // the next call finds it again
		}
		if b == ',' || b == ']' || b == '\n' {
			if v.in.UnreadByte() != nil {
				break
			}
			break
		}
	}
	return Row{Num: v.num, Err: errors.New("is no JSON object")}
}
