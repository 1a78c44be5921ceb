package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"temper/sandbox"
)

// batch answers a batch: together, or a line for each call as it ends.
func (h *handler) batch(w http.ResponseWriter, r *http.Request) { //nolint:contextcheck // withDeadline derives ctx from the request
	var batch Batch
	if f := decode(w, r, maxBatchBody, &batch); f != nil {
		h.fail(w, f)
		return
	}
	if n := len(batch.Calls); n > MaxBatch {
		h.fail(w, &Failure{Code: CodeTooLarge, Message: fmt.Sprintf("batch of %d calls is above the limit of %d", n, MaxBatch)})
		return
	}
	ctx, cancel, f := withDeadline(r)
	if f != nil {
		h.fail(w, f)
		return
	}
	defer cancel()
	if strings.Contains(r.Header.Get("Accept"), typeLines) {
		h.batchLines(ctx, w, batch.Calls)
		return
	}
	answers := make([]Answer, len(batch.Calls))
	var calls sync.WaitGroup
	for i, raw := range batch.Calls {
		calls.Go(func() { _, answers[i] = h.answerRaw(ctx, raw) })
	}
	calls.Wait()
	h.write(w, http.StatusOK, BatchAnswer{Answers: answers})
}

// batchLines answers each call as it ends.
func (h *handler) batchLines(ctx context.Context, w http.ResponseWriter, raws []json.RawMessage) {
	w.Header().Set("Content-Type", typeLines)
	w.WriteHeader(http.StatusOK)
	out := newOutbox(maxUnsent)
	var sender, calls sync.WaitGroup
	sender.Go(func() {
		if err := out.drain(w, func(bool) {}); err != nil {
			h.cfg.Logger.Debug("write response", "err", err)
		}
	})
	for i, raw := range raws {
		calls.Go(func() {
			id, answer := h.answerRaw(ctx, raw)
			out.put(func(b []byte) []byte {
				b = strconv.AppendInt(append(b, `{"index":`...), int64(i), 10)
				b = appendString(append(b, `,"id":`...), id)
				return append(appendAnswer(b, &answer), '}')
			})
		})
	}
	calls.Wait()
	out.close()
	sender.Wait()
}

// answerRaw answers one item of a batch, and one that is no call with a Failure.
func (h *handler) answerRaw(ctx context.Context, raw json.RawMessage) (id string, _ Answer) {
	if len(raw) > maxCallBody {
		return idOf(raw), Answer{Error: tooLarge("call", maxCallBody)}
	}
	var req sandbox.Request
	if err := unmarshal(raw, &req); err != nil {
		return idOf(raw), Answer{Error: invalid("call: %s", reason(err))}
	}
	return req.ID, h.answer(ctx, &req)
}
