package codejudge

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"temper/sandbox"
)

// single serves one submission.
func (h *handler) single(see view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, done := h.read(w, r, min(maxSingleBody, h.cfg.MaxBody))
		if done == nil {
			return
		}
		defer done()
		if !utf8.Valid(body) {
			h.fail(w, http.StatusBadRequest, unreadable)
			return
		}
		sub, wrong := parseSubmission(body, []any{"body"})
		if len(wrong) > 0 {
			h.write(w, http.StatusUnprocessableEntity, refusal{Detail: wrong})
			return
		}
		if !jsontext.Value(body).IsValid(jsontext.AllowDuplicateNames(true)) {
			h.write(w, http.StatusOK, see(failed(sub.id, reasonInvalidInput, "Input should hold valid Unicode only")))
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), h.cfg.Wait+h.slack(), errTimeIsUp)
		defer cancel()
		inLine, leave := h.waitingTime(ctx)
		defer leave()
		from := newOrigin(r)
		if err := h.room.take(inLine, from.key, amount{calls: 1}); err != nil {
			h.busy(w)
			return
		}
		defer h.room.give(from.key, amount{calls: 1})
		res, err := h.run(ctx, sub, from)
		if err != nil {
			h.unreached(w, err)
			return
		}
		h.write(w, http.StatusOK, see(res))
	}
}

// batch serves a list of submissions, each within wait of the arrival of all.
func (h *handler) batch(see view, wait time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, done := h.read(w, r, h.cfg.MaxBody)
		if done == nil {
			return
		}
		defer done()
		id, items, wrong := parseBatch(body, h.cfg.MaxCalls)
		if len(wrong) > 0 {
			h.write(w, http.StatusUnprocessableEntity, refusal{Detail: wrong})
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), wait+h.slack(), errTimeIsUp)
		defer cancel()
		inLine, leave := h.waitingTime(ctx)
		defer leave()
		from, held := newOrigin(r), amount{calls: int64(len(items))}
		if err := h.room.take(inLine, from.key, held); err != nil {
			h.busy(w)
			return
		}
		defer h.room.give(from.key, held)
		results, err := h.runBatch(ctx, items, from)
		if err != nil {
			h.unreached(w, err)
			return
		}
		answer := batchAnswer{SubID: id, Results: make([]any, len(results))}
		for i, res := range results {
			answer.Results[i] = see(res)
		}
		h.write(w, http.StatusOK, answer)
	}
}

// refusal is the body of an answer that is not about programs: a sentence, or
// a list of details.
type refusal struct {
	Detail any `json:"detail"`
}

const unreadable = "There was an error parsing the body"

// Bounds of a body on its way: what is read and charged at a time, and how many times
// as long as a part of it the whole may take.
const (
	bodyPart  = 64 << 10
	bodyTimes = 12
)

// read takes in the body, which has to be JSON. It answers the request itself
// and returns a nil done when there is nothing to work on.
func (h *handler) read(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, done func()) {
	from := newOrigin(r)
	var held int64
	done = func() { h.room.give(from.key, amount{bytes: held}) }
	body, err := h.receive(w, r, limit, func(ctx context.Context, n int64) error {
		err := h.room.take(ctx, from.key, amount{bytes: n})
		if err == nil {
			held += n
		}
		return err
	})
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		h.fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body is above the limit of %d bytes", large.Limit))
	case errors.Is(err, errTooMuch), errors.Is(err, context.DeadlineExceeded):
		h.busy(w)
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.fail(w, http.StatusRequestTimeout, fmt.Sprintf("the body did not arrive: a part of it may take %v, and all of it %v", h.cfg.Patience, bodyTimes*h.cfg.Patience))
	case err != nil:
		h.fail(w, http.StatusBadRequest, unreadable)
	default:
		wrong := syntax(body)
		if wrong == nil {
			return body, done
		}
		h.write(w, http.StatusUnprocessableEntity, refusal{Detail: wrong})
	}
	done()
	return nil, nil
}

// receive reads a body of at most limit bytes part by part. Each part is charged when
// it is there: who announces a body and does not send it holds nothing.
func (h *handler) receive(w http.ResponseWriter, r *http.Request, limit int64, charge func(context.Context, int64) error) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Wait)
	defer cancel()
	control := http.NewResponseController(w)
	defer control.SetReadDeadline(time.Time{}) //nolint:errcheck // a stand-in for a connection has no deadlines
	end := time.Now().Add(bodyTimes * h.cfg.Patience)
	from := http.MaxBytesReader(w, r.Body, limit)
	part := make([]byte, min(bodyPart, max(1, limit+1)))
	var body []byte
	for {
		deadline := time.Now().Add(h.cfg.Patience)
		if deadline.After(end) {
			deadline = end
		}
		_ = control.SetReadDeadline(deadline) // as above
		n, err := fill(part, from)
		if n > 0 {
			if err := charge(ctx, int64(n)); err != nil {
				return nil, err
			}
			body = append(body, part[:n]...)
		}
		switch {
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

// fill reads until buf is full or r ends. Unlike io.ReadFull it leaves the error as it
// is: a connection that breaks off is no end of a body.
func fill(buf []byte, r io.Reader) (n int, err error) {
	for n < len(buf) && err == nil {
		var m int
		m, err = r.Read(buf[n:])
		n += m
	}
	return n, err
}

// busy answers a request for which there is no room at all.
func (h *handler) busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	h.fail(w, http.StatusTooManyRequests, "too many submissions wait, come back later")
}

// unreached answers a request when no program of it could be run. A caller that has
// gone does not read the answer.
func (h *handler) unreached(w http.ResponseWriter, err error) {
	if !errors.Is(err, context.Canceled) {
		h.cfg.Logger.Warn("sandbox is unavailable", "err", err)
	}
	after := sandbox.RetryAfter(err, time.Second)
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(after.Round(time.Second)/time.Second))))
	h.fail(w, http.StatusServiceUnavailable, "no executor could be reached, come back later")
}

func (h *handler) fail(w http.ResponseWriter, code int, message string) {
	h.write(w, code, refusal{Detail: message})
}

func (h *handler) write(w http.ResponseWriter, code int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // only a Load func of the caller can do this
		h.cfg.Logger.Error("encode response", "err", err)
		code = http.StatusInternalServerError
		body.Reset()
		body.WriteString(`{"detail":"Internal Server Error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if _, err := w.Write(bytes.TrimSuffix(body.Bytes(), []byte("\n"))); err != nil {
		h.cfg.Logger.Debug("write response", "err", err)
	}
}
