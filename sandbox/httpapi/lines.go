package httpapi

import (
	"bytes"
	"errors"
	"io"
)

// maxHead is the number of bytes that are kept of a line that is too long, to find its id.
const maxHead = 4 << 10

// leastLines is the smallest size of the buffer of lines.
const leastLines = 64 << 10

// lines reads lines of at most limit bytes, which exceeds maxHead. A longer line
// is read to its end, and next returns its start with tooLong.
type lines struct {
	r     io.Reader
	limit int
	// cut stops reading at a line that is too long.
	cut bool
	// grow, when set, is called before the buffer grows by n bytes, or shrinks. If it
	// fails, next skips the line and returns its start with the error and tooLong.
	grow func(n int) error
	// unfinished, when set, is called with true when the start of a line has arrived without
	// its end, and with false after that.
	unfinished func(bool)

	buf        []byte
	start, end int // bounds of the bytes in buf that next has not returned
}

// next returns the next line without its end. It is valid until the next call.
func (l *lines) next() (line []byte, tooLong bool, err error) {
	for scanned := 0; ; {
		if i := bytes.IndexByte(l.buf[l.start+scanned:l.end], '\n'); i >= 0 {
			line = l.buf[l.start : l.start+scanned+i]
			l.start += scanned + i + 1
			if l.unfinished != nil {
				l.unfinished(false)
			}
			if len(line) > l.limit {
				return line[:maxHead], true, nil
			}
			return line, false, nil
		}
		scanned = l.end - l.start
		if scanned > l.limit {
			head := bytes.Clone(l.buf[l.start : l.start+maxHead])
			if l.cut {
				return head, true, nil
			}
			return head, true, l.skip()
		}
		if l.unfinished != nil {
			l.unfinished(scanned > 0)
		}
		switch err := l.fill(); {
		case errors.Is(err, errNoGrowth):
			head := bytes.Clone(l.buf[l.start : l.start+min(scanned, maxHead)])
			return head, true, errors.Join(l.skip(), err)
		case errors.Is(err, io.EOF) && scanned > 0: // the last line may lack its end
			line = l.buf[l.start:l.end]
			l.start = l.end
			return line, false, nil
		case err != nil:
			return nil, false, err
		}
	}
}

// errNoGrowth means that there is no room for a line.
var errNoGrowth = errors.New("no room for a line")

// skip drops the rest of a line.
func (l *lines) skip() error {
	for {
		if i := bytes.IndexByte(l.buf[l.start:l.end], '\n'); i >= 0 {
			l.start += i + 1
			return nil
		}
		l.start = l.end
		if err := l.fill(); err != nil && !errors.Is(err, io.EOF) {
			return err
		} else if err != nil {
			return nil
		}
	}
}

// fill reads more bytes after the unread ones.
func (l *lines) fill() error {
	if l.start == l.end && len(l.buf) > 16*leastLines {
		l.shrink(leastLines) // do not keep the memory of one long line
	}
	if l.start > 0 && (l.start == l.end || len(l.buf)-l.end < leastLines/2) {
		l.end = copy(l.buf, l.buf[l.start:l.end])
		l.start = 0
	}
	if len(l.buf)-l.end < leastLines/2 {
		more := max(leastLines, 2*len(l.buf))
		if l.grow != nil && l.grow(more-len(l.buf)) != nil {
			return errNoGrowth
		}
		l.buf = append(make([]byte, 0, more), l.buf[:l.end]...)[:more]
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	if n > 0 {
		return nil // the next Read returns the error again
	}
	return err
}

// shrink empties the buffer and releases it except for size bytes. These are kept, because
// other callers may have acquired them when they are needed again.
func (l *lines) shrink(size int) {
	if l.grow != nil && len(l.buf) > size {
		_ = l.grow(size - len(l.buf)) // shrinking always succeeds
	}
	l.buf, l.start, l.end = make([]byte, size), 0, 0
}
