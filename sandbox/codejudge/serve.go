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
		if !h.room.take(1, 0) {
			h.busy(w)
			return
		}
		defer h.room.give(1, 0)
		ctx, cancel := context.WithTimeoutCause(r.Context(), h.cfg.Wait, errTimeIsUp)
		defer cancel()
		res, err := h.run(ctx, sub, newOrigin(r))
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
		if held := int64(len(items)); h.room.take(held, 0) {
			defer h.room.give(held, 0)
		} else {
			h.busy(w)
			return
		}
		ctx, cancel := context.WithTimeoutCause(r.Context(), wait, errTimeIsUp)
		defer cancel()
		results, err := h.runBatch(ctx, items, newOrigin(r))
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

// read takes in the body, which has to be JSON. It answers the request itself
// and returns a nil done when there is nothing to work on.
func (h *handler) read(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, done func()) {
	size := r.ContentLength
	if size < 0 || size > limit {
		size = limit
	}
	if !h.room.take(0, size) {
		h.busy(w)
		return nil, nil
	}
	done = func() { h.room.give(0, size) }
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		h.fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body is above the limit of %d bytes", large.Limit))
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
