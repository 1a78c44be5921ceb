package jail

import (
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mark replaces the middle part that was cut out of a text.
const mark = "...(truncated)..."

// floodFactor and floodFloor bound all the output of a program, kept or
// not, before it is stopped.
const (
	floodFactor = 16
	floodFloor  = 1 << 20
)

// capture keeps the head and the tail of one output stream. It reads a pipe either while
// the program runs (open, read) or without waiting (takeFrom).
type capture struct {
	fd      int      // non-blocking; -1 when file owns it or it is closed
	file    *os.File // set by open
	limit   int64
	bound   int64
	flood   chan<- struct{}
	head    []byte
	tail    []byte // ring once full
	at      int    // next write in tail
	total   int64
	flooded bool
}

func newCapture(fd int, limit int64, flood chan<- struct{}) *capture {
	return &capture{fd: fd, limit: limit, bound: max(limit*floodFactor, floodFloor), flood: flood}
}

// open gives the pipe to the runtime's poller.
func (c *capture) open() {
	c.file, c.fd = os.NewFile(uintptr(c.fd), "output"), -1
}

// read reads the stream until it ends, exceeds its bound, or a deadline passes. At the
// deadline it still takes the bytes in the pipe: on a busy machine it may not have read any
// before.
func (c *capture) read() {
	buf := make([]byte, 8<<10)
	for {
		n, err := c.file.Read(buf)
		c.add(buf[:n])
		if c.total > c.bound && !c.flooded {
			c.flooded = true
			c.flood <- struct{}{} // has room for both streams
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if raw, err := c.file.SyscallConn(); err == nil {
				_ = raw.Control(func(fd uintptr) { c.takeFrom(int(fd)) }) // fails with a closed file only
			}
		}
		if err != nil || c.flooded {
			break
		}
	}
	_ = c.file.Close() // read side; nothing to lose
}

// close ends read, and closes the pipe if it was never read.
func (c *capture) close() {
	if c.file != nil {
		// An error means that read has closed the file already.
		_ = c.file.SetReadDeadline(time.Now())
		return
	}
	if c.fd >= 0 {
		_ = unix.Close(c.fd) // read side; nothing to lose
		c.fd = -1
	}
}

func (c *capture) add(p []byte) {
	c.total += int64(len(p))
	half := int(c.limit / 2)
	keep := min(len(p), int(c.limit)-half-len(c.head))
	c.head = append(c.head, p[:keep]...)
	p = p[keep:]
	if len(p) > half {
		p = p[len(p)-half:]
		c.tail, c.at = append(c.tail[:0], p...), 0
		return
	}
	room := min(len(p), half-len(c.tail))
	c.tail = append(c.tail, p[:room]...)
	for _, b := range p[room:] {
		c.tail[c.at] = b
		c.at = (c.at + 1) % half
	}
}

// text returns the kept output, with the mark in place of missing bytes.
func (c *capture) text() string {
	var b strings.Builder
	b.Grow(len(c.head) + len(mark) + len(c.tail)) // a long output is held twice, not more
	b.Write(c.head)
	if c.total > int64(len(c.head)+len(c.tail)) {
		b.WriteString(mark)
	}
	b.Write(c.tail[c.at:])
	b.Write(c.tail[:c.at])
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}
