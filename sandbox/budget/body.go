package budget

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Patience is the default time in which a part of a body has to arrive.
const Patience = 10 * time.Second

// Bounds of an arriving body: the part that may take patience, the factor for the whole
// body, and the buffer for the first bytes of a caller that announces more than it sends.
const (
	bodyPart  = 64 << 10
	bodyTimes = 12
	firstRead = 1 << 10
	// leftover is how long the rest of a refused body may take, so that its
	// caller reads the answer before the connection ends.
	leftover = time.Second
)

// Weight is the charge for a byte of a body: it is held once as it arrived and once in the
// calls that were decoded from it.
const Weight = 2

// Whole returns how long a body may take if each part of it may take patience.
func Whole(patience time.Duration) time.Duration { return bodyTimes * patience }

// SlowError refuses a body that did not arrive in time.
type SlowError struct{ Patience time.Duration }

// Error implements error.
func (e *SlowError) Error() string {
	return fmt.Sprintf("the body did not arrive: %d KiB of it may take %v, and all of it %v", bodyPart>>10, e.Patience, Whole(e.Patience))
}

// ReadBody reads a body of at most limit bytes in parts. It charges each part on arrival,
// so that a caller that announces a body and does not send it holds nothing. Errors: the
// error of charge, *http.MaxBytesError, *SlowError, and errors of the connection.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, patience time.Duration, charge func(bytes int64) error) (_ []byte, err error) {
	control := http.NewResponseController(w)
	defer func() {
		until := time.Time{}
		var slow *SlowError
		switch {
		case errors.As(err, &slow):
			until = time.Unix(1, 0) // the server would wait for the rest
		case err != nil:
			until = time.Now().Add(leftover)
		}
		_ = control.SetReadDeadline(until) // a connection in a test has no deadlines
	}()
	return receive(http.MaxBytesReader(w, r.Body, limit), patience, charge, func(until time.Time) {
		_ = control.SetReadDeadline(until) // as above
	})
}

func receive(from io.Reader, patience time.Duration, charge func(int64) error, bound func(time.Time)) ([]byte, error) {
	end := time.Now().Add(Whole(patience))
	body := make([]byte, 0, firstRead)
	for part := 0; ; {
		if part <= 0 { // at the first part, or after a complete one
			part = bodyPart
			bound(earlier(time.Now().Add(patience), end))
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		part -= n
		if n > 0 {
			began := time.Now()
			if err := charge(int64(n) * Weight); err != nil {
				return nil, err
			}
			if waited := time.Since(began); waited > patience/100 { // time spent waiting for other callers does not count
				end, part = end.Add(waited), 0
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, &SlowError{patience}
		case err != nil:
			return nil, err
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
