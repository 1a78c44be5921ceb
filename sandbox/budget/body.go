package budget

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Patience is how long a part of a body may take to arrive where nobody chose.
const Patience = 10 * time.Second

// Parts of a body on its way: what may take patience, how many times as long the whole
// may take, and the room for the first bytes of those who announce and do not send.
const (
	bodyPart  = 64 << 10
	bodyTimes = 12
	firstRead = 1 << 10
	// leftover is how long the rest of a body that is refused may take, so that its
	// caller reads the answer before the connection ends.
	leftover = time.Second
)

// Weight is what a byte of a body is charged: it is there once as it came, and once in
// the calls that were read from it.
const Weight = 2

// Whole is how long a body may take, where a part of it may take patience.
func Whole(patience time.Duration) time.Duration { return bodyTimes * patience }

// SlowError refuses a body that did not arrive in time.
type SlowError struct{ Patience time.Duration }

// Error implements error.
func (e *SlowError) Error() string {
	return fmt.Sprintf("the body did not arrive: %d KiB of it may take %v, and all of it %v", bodyPart>>10, e.Patience, Whole(e.Patience))
}

// ReadBody reads a body of at most limit bytes part by part. It charges each part when
// it is there: who announces a body and does not send it holds nothing. Errors: that of
// charge, *http.MaxBytesError, *SlowError, those of the connection.
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
		_ = control.SetReadDeadline(until) // a stand-in for a connection has no deadlines
	}()
	return receive(http.MaxBytesReader(w, r.Body, limit), patience, charge, func(until time.Time) {
		_ = control.SetReadDeadline(until) // as above
	})
}

func receive(from io.Reader, patience time.Duration, charge func(int64) error, bound func(time.Time)) ([]byte, error) {
	end := time.Now().Add(Whole(patience))
	body := make([]byte, 0, firstRead)
	for part := 0; ; {
		if part <= 0 { // the first part, or the one before is there
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
			if waited := time.Since(began); waited > patience/100 { // for others, which is not this caller's time
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
