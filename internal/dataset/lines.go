package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"temper/internal/dataset/rows"
)

// maxReported bounds the bad lines that one error lists.
const maxReported = 20

// readLines decodes each non-empty line strictly and checks it. The error has one line for
// each bad line, up to a bound.
func readLines[T any](r io.Reader, name string, check func(line int, v *T) error) ([]T, error) {
	lines, err := rows.NewLines(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []T
	bad := badLines{file: name}
	for n := 1; ; n++ {
		line, end, err := lines.Next()
		switch {
		case errors.Is(err, rows.ErrLong):
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
