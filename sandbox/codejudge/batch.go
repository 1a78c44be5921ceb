package codejudge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"temper/sandbox/budget"
)

const (
	// batchWorkers bounds the concurrent calls of one batch.
	batchWorkers = 1024
	// itemBytes estimates the bytes of a submission of a batch besides its texts.
	itemBytes = 512
	// writePart is the number of bytes of an answer in one write.
	writePart = 32 << 10
	// mostAhead bounds the results that may wait for an earlier one, if the budget has
	// room for them.
	mostAhead = 4096
	// resultBytes estimates the bytes of a result besides its texts.
	resultBytes = 256
)

// batchRun is a running batch. It writes results in the order of its items and drops each
// one after writing it, so that a long batch does not hold all of them.
type batchRun struct {
	h       *handler
	from    origin
	items   []item
	results []result
	next    atomic.Int64 // the first item without a worker
	workers sync.WaitGroup
	// turns holds one value for each item that has begun and is not written: its capacity
	// bounds how far the items run ahead of the reader.
	turns chan struct{}
	quit  chan struct{} // closed when the caller no longer reads the answer

	mu        sync.Mutex
	changed   *sync.Cond // guards the fields below and the results of ended items
	ended     []bool
	left      int // number of items that have not ended
	ran       bool
	unreached error
	gone      error // set when the caller has gone
}

func (h *handler) newBatch(items []item, from origin) *batchRun {
	b := &batchRun{
		h: h, from: from, items: items, results: make([]result, len(items)), ended: make([]bool, len(items)), left: len(items),
	}
	const longest = resultBytes + 2*4*streamRunes
	b.turns = make(chan struct{}, max(1, min(mostAhead, h.cfg.Budget.Answers.Half()/4/longest)))
	b.quit = make(chan struct{})
	b.changed = sync.NewCond(&b.mu)
	return b
}

// start starts the workers; the caller calls wait.
func (b *batchRun) start(ctx context.Context) {
	for range min(len(b.items), batchWorkers) {
		b.workers.Go(func() { b.work(ctx) })
	}
}

// wait drops the items that have not begun and waits for the running ones.
func (b *batchRun) wait() {
	close(b.quit)
	b.workers.Wait()
	for i := range b.results { // release the unwritten results
		b.drop(i)
	}
}

// work runs items until none is left.
func (b *batchRun) work(ctx context.Context) {
	for {
		select {
		case b.turns <- struct{}{}: // before taking an item, so that the first unwritten item always has a turn
		case <-b.quit:
			return
		}
		i := b.next.Add(1) - 1
		if i >= int64(len(b.items)) {
			return
		}
		it := b.items[i]
		b.items[i] = item{} // its code is not needed once it has run
		if it.wrong != nil {
			b.end(ctx, int(i), failed(it.sub.id, reasonInvalidInput, complaints(it.wrong)), nil, false)
			continue
		}
		res, err := b.h.run(ctx, it.sub, b.from)
		b.end(ctx, int(i), res, err, err == nil)
	}
}

// end stores the outcome of item i.
func (b *batchRun) end(ctx context.Context, i int, res result, err error, ran bool) {
	b.h.cfg.Budget.Answers.Add(b.from.host, res.size())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results[i], b.ended[i] = res, true
	b.left--
	b.ran = b.ran || ran
	if err != nil {
		b.unreached = err
		if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTimeIsUp) {
			b.gone = ctx.Err()
		}
	}
	b.changed.Signal() // only the writer waits
}

// reached waits until a program has run, or until every item has ended that may run before
// the first result is written. It returns an error if no executor was reached for any item,
// or if the caller has gone.
func (b *batchRun) reached(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.left > 0 && !b.ran && b.gone == nil && len(b.results)-b.left < cap(b.turns) {
		b.changed.Wait()
	}
	if err := ctx.Err(); err != nil && !errors.Is(context.Cause(ctx), errTimeIsUp) {
		return err
	}
	if b.ran {
		return nil
	}
	return b.unreached
}

// answer writes the results as they come. It returns an error of the connection.
func (b *batchRun) answer(w http.ResponseWriter, id string, see view) error {
	name, err := json.Marshal(id)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	to := budget.NewResponse(w, stall)
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	text.WriteString(`{"sub_id":` + string(name) + `,"results":[`)
	for i := range b.results {
		if i > 0 {
			text.WriteByte(',')
		}
		if err := b.await(i); err != nil {
			return err
		}
		if err := enc.Encode(see(b.results[i])); err != nil {
			return err
		}
		text.Truncate(text.Len() - 1) // drop the newline of the encoder
		b.drop(i)
		<-b.turns
		if text.Len() > writePart {
			if _, err := to.Write(text.Bytes()); err != nil {
				return err
			}
			text.Reset()
		}
	}
	text.WriteString("]}")
	_, err = to.Write(text.Bytes())
	return errors.Join(err, to.End())
}

// await waits until item i has ended. It returns an error when the caller has gone.
func (b *batchRun) await(i int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.ended[i] && b.gone == nil {
		b.changed.Wait()
	}
	return b.gone
}

// drop releases the result of an item, if it has ended.
func (b *batchRun) drop(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended[i] {
		b.h.cfg.Budget.Answers.Release(b.from.host, b.results[i].size())
		b.results[i] = result{}
	}
}

// size returns the bytes that a result takes from the budget.
func (r *result) size() int64 {
	if *r == (result{}) {
		return 0
	}
	n := int64(resultBytes + len(r.SubID))
	for _, text := range []*string{r.Stdout, r.Stderr} {
		if text != nil {
			n += int64(len(*text))
		}
	}
	return n
}
