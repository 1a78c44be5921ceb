package httpapi

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"temper/sandbox"
	"temper/sandbox/budget"
)

// batch answers a batch: all calls together, or one line for each call when it ends.
func (h *handler) batch(w http.ResponseWriter, r *http.Request) {
	data, done, f := h.readBody(w, r, maxBatchBody)
	defer done()
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
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := &batchRun{h: h, caller: callerOf(r), packed: packs(r), raws: raws, stop: stop}
	if strings.Contains(r.Header.Get("Accept"), typeLines) {
		b.lines(ctx, w) //nolint:contextcheck // withDeadline derives ctx from the request
		return
	}
	b.list(ctx, w) //nolint:contextcheck // as above
}

// batchRun is a running batch.
type batchRun struct {
	h      *handler
	caller string
	packed bool
	raws   []jsontext.Value
	stop   context.CancelFunc // ends a batch whose caller does not read
}

// list answers all calls in their order, each after the calls before it.
func (b *batchRun) list(ctx context.Context, w http.ResponseWriter) {
	answers, account := make([]Answer, len(b.raws)), b.h.cfg.Budget.Answers
	ended := make([]chan struct{}, len(b.raws))
	for i := range ended {
		ended[i] = make(chan struct{})
	}
	var calls sync.WaitGroup
	calls.Go(func() {
		b.inOrder(ctx, &calls, func(i int, a Answer) {
			answers[i] = a
			account.Add(b.caller, int64(a.size()))
			close(ended[i])
		})
	})
	to := budget.NewResponse(w, b.h.bounds.stall)
	enc := &encoder{to: to, packed: b.packed, buf: []byte(`{"answers":[`)}
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(http.StatusOK)
	for i := range answers {
		<-ended[i]
		if i > 0 {
			enc.buf = append(enc.buf, ',')
		}
		enc.buf = append(enc.buf, '{')
		enc.answer(&answers[i])
		enc.buf = append(enc.buf, '}')
		enc.overflow()
		if enc.err != nil {
			b.stop()
		}
		account.Release(b.caller, int64(answers[i].size()))
		answers[i] = Answer{}
	}
	calls.Wait()
	enc.buf = append(enc.buf, "]}\n"...)
	b.h.logWriteError(errors.Join(enc.flush(), to.End()))
}

// lines answers each call as it ends.
func (b *batchRun) lines(ctx context.Context, w http.ResponseWriter) {
	w.Header().Set("Content-Type", typeLines)
	w.WriteHeader(http.StatusOK)
	out := newOutbox(maxUnsent)
	out.account, out.caller = b.h.cfg.Budget.Answers, b.caller
	var sender, calls sync.WaitGroup
	sender.Go(func() {
		to := budget.NewResponse(w, b.h.bounds.stall)
		if err := out.drain(to, to.Flush); err != nil {
			b.h.logWriteError(err)
			out.close()
			b.stop()
		}
		_ = to.End() // it has failed before, or nothing is left to send
	})
	for i, raw := range b.raws {
		calls.Go(func() {
			id, answer := b.answer(ctx, raw)
			out.reply(&answer, b.packed, func(head []byte) []byte {
				head = strconv.AppendInt(append(head, `{"index":`...), int64(i), 10)
				return append(appendString(append(head, `,"id":`...), id), ',')
			})
		})
	}
	b.raws = nil // the calls hold them
	calls.Wait()
	out.close()
	sender.Wait()
}

// splitBatch finds the calls of a batch without decoding them, so that a bad call does not
// fail the others.
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

// inOrder starts the calls in order, and passes each answer to end. An answer waits until
// the answers before it are written, so it must not hold the room for which an earlier call
// waits. After one call has waited for room in vain, the calls behind it do not wait.
func (b *batchRun) inOrder(ctx context.Context, calls *sync.WaitGroup, end func(i int, a Answer)) {
	patient := b.h.bounds.patient
	for i, raw := range b.raws {
		req, _, f := readCall(raw)
		var leave func()
		if f == nil {
			leave, f = b.h.enter(ctx, req, b.caller, patient)
			patient = b.h.bounds.patient
			if f != nil && f.Code == CodeOverloaded {
				patient = 0
			}
		}
		if f != nil {
			end(i, Answer{Error: f})
			continue
		}
		calls.Go(func() {
			answer := b.h.finish(ctx, req)
			leave()
			end(i, answer)
		})
	}
}

// answer answers one item of a batch; the answer to an invalid item is a Failure.
func (b *batchRun) answer(ctx context.Context, raw jsontext.Value) (id string, _ Answer) {
	req, id, f := readCall(raw)
	if f != nil {
		return id, Answer{Error: f}
	}
	return id, b.h.answer(ctx, req, b.caller)
}

// readCall decodes one item of a batch.
func readCall(raw jsontext.Value) (_ *sandbox.Request, id string, _ *Failure) {
	if len(raw) > maxCallBody {
		return nil, idOf(raw), tooLarge("call", maxCallBody)
	}
	req := new(sandbox.Request)
	if err := unmarshal(raw, req); err != nil {
		return nil, idOf(raw), invalid("call: %s", reason(err))
	}
	if reflect.DeepEqual(*req, sandbox.Request{}) {
		return nil, "", invalid("call: it has no field, so it names no program")
	}
	return req, req.ID, nil
}
