package codejudge

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"temper/sandbox"
	"temper/sandbox/budget"
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
		if err := h.room.Acquire(inLine, from.host, 1); err != nil {
			h.busy(w)
			return
		}
		defer h.room.Release(from.host, 1)
		res, err := h.run(ctx, sub, from)
		if err != nil {
			h.unreached(w, err)
			return
		}
		h.write(w, http.StatusOK, see(res))
	}
}

// batch serves a list of submissions; each may wait for wait after the arrival of the
// request.
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
		from := newOrigin(r)
		release, ok := h.admit(inLine, from, len(items))
		if !ok {
			h.busy(w)
			return
		}
		defer release()
		body = nil                                                     //nolint:ineffassign,wastedassign // the items hold their copies, and the batch may take an hour
		if h.cfg.Budget.Answers.Acquire(inLine, from.host, 0) != nil { // the caller does not read its other answers
			h.busy(w)
			return
		}
		b := h.newBatch(items, from)
		defer b.wait()
		defer cancel() // ends the running calls when the caller does not read
		b.start(ctx)
		if err := b.reached(ctx); err != nil {
			h.unreached(w, err)
			return
		}
		if err := b.answer(w, id, see); err != nil {
			h.cfg.Logger.Debug("write response", "err", err)
		}
	}
}

// admit acquires the room of a batch: its concurrent submissions, and bytes for every
// submission, waiting ones included.
func (h *handler) admit(ctx context.Context, from origin, items int) (release func(), ok bool) {
	calls, bytes := int64(min(items, batchWorkers)), int64(items)*itemBytes
	if h.room.Acquire(ctx, from.host, calls) != nil {
		return nil, false
	}
	if h.cfg.Budget.Bodies.Acquire(ctx, from.host, bytes) != nil {
		h.room.Release(from.host, calls)
		return nil, false
	}
	return func() {
		h.room.Release(from.host, calls)
		h.cfg.Budget.Bodies.Release(from.host, bytes)
	}, true
}

// refusal is the body of an answer about the request itself: a sentence, or a list of
// details.
type refusal struct {
	Detail any `json:"detail"`
}

const unreadable = "There was an error parsing the body"

// read reads the body, which has to be JSON. If there is nothing to work on, it answers the
// request itself and returns a nil done.
func (h *handler) read(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, done func()) {
	caller, bodies := newOrigin(r).host, h.cfg.Budget.Bodies
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Wait)
	defer cancel()
	var held int64
	done = func() { bodies.Release(caller, held) }
	body, err := budget.ReadBody(w, r, limit, h.cfg.Patience, func(n int64) error {
		err := bodies.Acquire(ctx, caller, n)
		if err == nil {
			held += n
		}
		return err
	})
	var large *http.MaxBytesError
	var slow *budget.SlowError
	switch {
	case errors.As(err, &large):
		h.fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body is above the limit of %d bytes", large.Limit))
	case errors.Is(err, budget.ErrTooMuch), errors.Is(err, context.DeadlineExceeded):
		h.busy(w)
	case errors.As(err, &slow):
		h.fail(w, http.StatusRequestTimeout, slow.Error())
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

// busy answers a request for which there is no room.
func (h *handler) busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	h.fail(w, http.StatusTooManyRequests, "too many submissions wait, come back later")
}

// unreached answers a request when none of its programs could be run. A caller that has
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
	if err := enc.Encode(v); err != nil { // only Config.Load can cause this
		h.cfg.Logger.Error("encode response", "err", err)
		code = http.StatusInternalServerError
		body.Reset()
		body.WriteString(`{"detail":"Internal Server Error"}`)
	}
	text := bytes.TrimSuffix(body.Bytes(), []byte("\n"))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(code)
	to := budget.NewResponse(w, stall)
	_, err := to.Write(text)
	if err = errors.Join(err, to.End()); err != nil {
		h.cfg.Logger.Debug("write response", "err", err)
	}
}
