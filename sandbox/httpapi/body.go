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

// callerOf names who is charged for a request: the protocol knows no callers, so each
// machine is one.
func callerOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// readBody reads a body of at most limit bytes. The caller gives back what was charged
// for it with done, also after a Failure.
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

// bodyFailure says why a body was not read; nil where it was.
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

// noRoom is the Failure of what is above the budget now.
func noRoom(what string, a *budget.Account) *Failure {
	return &Failure{
		Code: CodeOverloaded, RetryAfterMS: time.Second.Milliseconds(),
		Message: fmt.Sprintf("%v: %s %d bytes; they may hold %d in all and %d of one caller", sandbox.ErrOverloaded, what, a.Held(), a.Most(), a.Half()),
	}
}

// patientFor is how long a call waits for answers to be read, those of its caller or of
// all, before it is refused.
const patientFor = 30 * time.Second

// makeRoom takes n bytes for answers, also none: then it only waits until there is room
// for one. It waits for patient at most.
func (h *handler) makeRoom(ctx context.Context, caller string, n int64, patient time.Duration) *Failure {
	answers := h.cfg.Budget.Answers
	err := answers.TryAcquire(caller, n) // without a timer, as a rule
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

// withDeadline bounds the call by what the caller said it has left.
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
