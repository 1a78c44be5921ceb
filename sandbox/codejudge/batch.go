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
	// batchWorkers bounds the calls of one batch that are on their way at once.
	batchWorkers = 1024
	// itemBytes is what a submission of a batch takes besides its texts, nearly.
	itemBytes = 512
	// writePart is how much of an answer is written at a time.
	writePart = 32 << 10
	// mostAhead is how many results may wait for one before them, where the budget has
	// room for so many.
	mostAhead = 4096
	// resultBytes is what a result takes besides its texts, nearly.
	resultBytes = 256
)

// batchRun is a batch on its way. Its results are written in the order of its items, and
// each is dropped when it is written: a long batch does not hold all of them.
type batchRun struct {
	h       *handler
	from    origin
	items   []item
	results []result
	next    atomic.Int64 // the first item that nobody has taken
	workers sync.WaitGroup
	// turns holds one for each item that has begun and is not written: its capacity is
	// how far the items may be ahead of what is read.
	turns chan struct{}
	quit  chan struct{} // closed when nobody reads the answer any more

	mu        sync.Mutex
	changed   *sync.Cond // with the fields below, and the results of what has ended
	ended     []bool
	left      int // items that have not ended
	ran       bool
	unreached error
	gone      error // the caller has gone
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

// start works on the items; the caller calls wait.
func (b *batchRun) start(ctx context.Context) {
	for range min(len(b.items), batchWorkers) {
		b.workers.Go(func() { b.work(ctx) })
	}
}

// wait ends what has not begun, and waits for the rest.
func (b *batchRun) wait() {
	close(b.quit)
	b.workers.Wait()
	for i := range b.results { // what was not written
		b.drop(i)
	}
}

// work takes items until none is left.
func (b *batchRun) work(ctx context.Context) {
	for {
		select {
		case b.turns <- struct{}{}: // before it takes an item: the first that is not written always has its turn
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

// end notes what became of item i.
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
	b.changed.Signal() // only the one who writes waits
}

// reached waits until a program has run, or all items have ended that may before one is
// written. The error says that no
// item at all could be run because no executor was reached, or that the caller has gone.
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

// answer writes the results as they come. The error is that of the connection.
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
		text.Truncate(text.Len() - 1) // the end of a line
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

// await returns when item i has ended, or an error when the caller has gone.
func (b *batchRun) await(i int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.ended[i] && b.gone == nil {
		b.changed.Wait()
	}
	return b.gone
}

// drop forgets the result of an item, if it has ended.
func (b *batchRun) drop(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended[i] {
		b.h.cfg.Budget.Answers.Release(b.from.host, b.results[i].size())
		b.results[i] = result{}
	}
}

// size is what a result takes of the budget.
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
