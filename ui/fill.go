package ui

import (
	"context"
	"fmt"
	"sync"
	"time"

	"temper/internal/run"
)

// A row of the table of runs needs the records of all steps and the configuration of the
// run. They are read in the background, so that a table of 200 runs on a far store shows at
// once and fills later.
const (
	// fillReaders bounds the runs that are read at once.
	fillReaders = 8
	// fillTime bounds how long an answer waits for rows that are being read.
	fillTime = 20 * time.Millisecond
)

// filler reads the facts of runs, each run once at a time.
type filler struct {
	slots chan struct{}
	mu    sync.Mutex
	busy  map[string]chan struct{} // by run; closed when its facts are read
}

func newFiller() *filler {
	return &filler{slots: make(chan struct{}, fillReaders), busy: map[string]chan struct{}{}}
}

// rowFacts holds the facts of a row beside its catalog entry. They change only with the entry.
type rowFacts struct {
	version                string
	rewards                []float64
	toolErrors, throughput *float64
	keys                   map[string]string
	problem                string
}

func versionOf(e *run.CatalogEntry) string { return fmt.Sprintf("%d/%d", e.Step, e.Updated.UnixNano()) }

// fillRow adds the known facts, perhaps of an earlier step. It returns a channel that closes
// when newer facts are read, or nil when these are the newest.
func (rt *runTable) fillRow(row *RunRow) <-chan struct{} {
	version := versionOf(&row.CatalogEntry)
	if rt.showFacts(row) == version {
		return nil
	}
	return rt.fill.start(rt.hub, row.RunID, func(ctx context.Context) {
		f := rt.readRow(ctx, row.RunID)
		if f.problem == "" { // otherwise it is read again: the store may answer then
			f.version = version
		}
		if ctx.Err() == nil {
			rt.reader.cache.put("row/"+row.RunID, f, 8*len(f.rewards)+64*len(f.keys)+200)
		}
	})
}

// start reads the facts of a run in the background, unless that is under way.
func (f *filler) start(h *hub, id string, read func(context.Context)) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done, ok := f.busy[id]; ok {
		return done
	}
	done := make(chan struct{})
	if h.ctx.Err() != nil { // the server ends
		close(done)
		return done
	}
	f.busy[id] = done
	h.done.Go(func() {
		defer func() {
			f.mu.Lock()
			delete(f.busy, id)
			f.mu.Unlock()
			close(done)
		}()
		select {
		case f.slots <- struct{}{}:
		case <-h.ctx.Done():
			return
		}
		defer func() { <-f.slots }()
		read(h.ctx)
	})
	return done
}

// fillRows fills rows, waits up to fillTime for those that are being read, and returns the
// number of rows still missing.
func (rt *runTable) fillRows(ctx context.Context, rows []*RunRow) int {
	enough := time.NewTimer(fillTime)
	defer enough.Stop()
	waits := make([]<-chan struct{}, len(rows))
	for i, row := range rows {
		waits[i] = rt.fillRow(row)
	}
	late, over := 0, false
	for i, row := range rows {
		if waits[i] == nil {
			continue
		}
		if !over {
			select {
			case <-waits[i]:
			case <-enough.C:
				over = true
			case <-ctx.Done():
				over = true
			}
		}
		select {
		case <-waits[i]:
			rt.showFacts(row)
		default:
			late++
		}
	}
	return late
}

// showFacts adds the known facts to a row and returns their version, "" for none.
func (rt *runTable) showFacts(row *RunRow) string {
	facts, ok := rt.reader.cache.get("row/" + row.RunID)
	if !ok {
		return ""
	}
	f := facts.(rowFacts) //nolint:forcetypeassert // the key is of this type alone
	row.Rewards, row.ToolErrors, row.Throughput, row.Keys, row.Problem = f.rewards, f.toolErrors, f.throughput, f.keys, f.problem
	return f.version
}
