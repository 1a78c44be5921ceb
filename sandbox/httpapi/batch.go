package httpapi

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"temper/sandbox"
)

// batch answers a batch: together, or a line for each call as it ends.
func (h *handler) batch(w http.ResponseWriter, r *http.Request) { //nolint:contextcheck // withDeadline derives ctx from the request
	data, f := readBody(w, r, maxBatchBody)
	if f != nil {
		h.fail(w, f)
		return
	}
	raws, f := splitBatch(data)
	if f != nil {
		h.fail(w, f)
		return
	}
	ctx, cancel, f := withDeadline(r)
	if f != nil {
		h.fail(w, f)
		return
	}
	defer cancel()
	if strings.Contains(r.Header.Get("Accept"), typeLines) {
		h.batchLines(ctx, w, raws) //nolint:contextcheck // see above
		return
	}
	answers := make([]Answer, len(raws))
	var calls sync.WaitGroup
	for i, raw := range raws {
		calls.Go(func() { _, answers[i] = h.answerRaw(ctx, raw) })
	}
	calls.Wait()
	body := []byte(`{"answers":[`)
	for i := range answers {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, '{')
		body = append(appendAnswer(body, &answers[i]), '}')
	}
	h.send(w, http.StatusOK, append(body, "]}"...))
}

// splitBatch finds the calls of a batch without decoding them, so that a bad call
// does not spoil its neighbours.
func splitBatch(data []byte) ([]jsontext.Value, *Failure) {
	var body struct {
		Calls rawCalls `json:"calls"`
	}
	err := json.Unmarshal(data, &body, json.RejectUnknownMembers(true),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, invalid("body: %s", reason(err))
	}
	if n := len(body.Calls); n > MaxBatch {
		return nil, &Failure{Code: CodeTooLarge, Message: fmt.Sprintf("batch of %d calls is above the limit of %d", n, MaxBatch)}
	}
	return body.Calls, nil
}

// rawCalls is an array; a body may give it only once.
type rawCalls []jsontext.Value

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (c *rawCalls) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if *c != nil {
		return jsontext.ErrDuplicateName
	}
	calls := []jsontext.Value{}
	if err := json.UnmarshalDecode(dec, &calls); err != nil {
		return err
	}
	*c = calls
	return nil
}

// batchLines answers each call as it ends.
func (h *handler) batchLines(ctx context.Context, w http.ResponseWriter, raws []jsontext.Value) {
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
				return append(appendAnswer(append(b, ','), &answer), '}')
			})
		})
	}
	calls.Wait()
	out.close()
	sender.Wait()
}

// answerRaw answers one item of a batch; the answer is a Failure if it is no call.
func (h *handler) answerRaw(ctx context.Context, raw jsontext.Value) (id string, _ Answer) {
	if len(raw) > maxCallBody {
		return idOf(raw), Answer{Error: tooLarge("call", maxCallBody)}
	}
	var req sandbox.Request
	if err := unmarshal(raw, &req); err != nil {
		return idOf(raw), Answer{Error: invalid("call: %s", reason(err))}
	}
	if reflect.DeepEqual(req, sandbox.Request{}) {
		return "", Answer{Error: invalid("call: it has no field, so it names no program")}
	}
	return req.ID, h.answer(ctx, &req)
}
