package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"temper/sandbox"
	"temper/sandbox/budget"
)

// callerOf returns the name under which a request is charged. The protocol has no callers,
// so it is the client machine.
func callerOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// readBody reads a body of at most limit bytes. The caller releases the charge for it with
// done, also after a Failure.
func (h *handler) readBody(w http.ResponseWriter, r *http.Request, limit int64) (_ []byte, done func(), _ *Failure) {
	caller, bodies := callerOf(r), h.cfg.Budget.Bodies
	limit = min(limit, bodies.Half()/budget.Weight)
	var held int64
	done = func() { bodies.Release(caller, held) }
	data, err := budget.ReadBody(w, r, limit, h.cfg.Patience, func(n int64) error {
		err := bodies.TryAcquire(caller, n)
		if err == nil {
			held += n
		}
		return err
	})
	return data, done, bodyFailure(err, bodies)
}

// bodyFailure returns the Failure for a body that was not read, nil for a complete body.
func bodyFailure(err error, bodies *budget.Account) *Failure {
	var large *http.MaxBytesError
	var slow *budget.SlowError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return tooLarge("body", large.Limit)
	case errors.As(err, &slow):
		return &Failure{Code: CodeSlow, Message: slow.Error()}
	case errors.Is(err, budget.ErrFull):
		return noRoom("bodies hold", bodies)
	default:
		return invalid("body: %v", err)
	}
}

// noRoom returns the Failure for a request above the budget.
func noRoom(what string, a *budget.Account) *Failure {
	return &Failure{
		Code: CodeOverloaded, RetryAfterMS: time.Second.Milliseconds(),
		Message: fmt.Sprintf("%v: %s %d bytes; they may hold %d in all and %d of one caller", sandbox.ErrOverloaded, what, a.Held(), a.Most(), a.Half()),
	}
}

// patientFor is how long a call waits for unread answers, of its caller or of all callers,
// before it is refused.
const patientFor = 30 * time.Second

// makeRoom acquires n bytes for answers. With n = 0 it only waits until the account has
// room. It waits for at most patient.
func (h *handler) makeRoom(ctx context.Context, caller string, n int64, patient time.Duration) *Failure {
	answers := h.cfg.Budget.Answers
	err := answers.TryAcquire(caller, n) // usually succeeds, without a timer
	if errors.Is(err, budget.ErrFull) {
		inTime, cancel := context.WithTimeout(ctx, patient)
		defer cancel()
		err = answers.Acquire(inTime, caller, n)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, budget.ErrTooMuch):
		return &Failure{Code: CodeTooLarge, Message: fmt.Sprintf(
			"output_bytes needs %d bytes of this server, and the answers of one caller may hold %d: ask for less, or start it with a larger --budget", n, answers.Half())}
	case ctx.Err() != nil:
		return failure(ctx, err)
	default:
		return noRoom("answers that nobody has read hold", answers)
	}
}

// withDeadline bounds the call by the remaining time that the caller stated.
func withDeadline(r *http.Request) (context.Context, context.CancelFunc, *Failure) {
	text := r.Header.Get(deadlineHeader)
	if text == "" {
		return r.Context(), func() {}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 0 || ms > maxDeadline {
		return nil, nil, invalid("header %s: %q is not a number of milliseconds", deadlineHeader, text)
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(ms)*time.Millisecond)
	return ctx, cancel, nil
}
