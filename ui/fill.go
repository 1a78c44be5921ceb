package ui

import (
	"context"
	"fmt"
	"sync"
	"time"

	"temper/internal/run"
)

// What a row of the table of runs has beside its entry of the catalog takes the records
// of all steps and the configuration of the run. They are read behind the answer: a table
// of 200 runs on a far store shows at once, and fills.
const (
	// fillReaders is how many runs are read at once.
	fillReaders = 8
	// fillTime is how long an answer waits for rows that are being read.
	fillTime = 20 * time.Millisecond
)

// filler reads facts of runs, each run once at a time.
type filler struct {
	slots chan struct{}
	mu    sync.Mutex
	busy  map[string]chan struct{} // closed when the facts of a run are there
}

func newFiller() *filler {
	return &filler{slots: make(chan struct{}, fillReaders), busy: map[string]chan struct{}{}}
}

// rowFacts are what a row has beside its entry; they change with the entry alone.
type rowFacts struct {
	version                string
	rewards                []float64
	toolErrors, throughput *float64
	keys                   map[string]string
	problem                string
}

func versionOf(e *run.CatalogEntry) string { return fmt.Sprintf("%d/%d", e.Step, e.Updated.UnixNano()) }

// fillRow adds the facts that are known, maybe those of an earlier step, and returns what
// ends when newer ones are there, nil when these are the newest.
func (s *Server) fillRow(row *RunRow) <-chan struct{} {
	version := versionOf(&row.CatalogEntry)
	if s.showFacts(row) == version {
		return nil
	}
	return s.fill.start(s.hub, row.RunID, func(ctx context.Context) {
		f := s.readRow(ctx, row.RunID)
		if f.problem == "" { // else it is read again: a store that did not answer may do so
			f.version = version
		}
		if ctx.Err() == nil {
			s.cache.put("row/"+row.RunID, f, 8*len(f.rewards)+64*len(f.keys)+200)
		}
	})
}

// start reads the facts of a run in the background, unless somebody does already.
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

// fillRows fills rows, waits a moment for those that are being read, and returns how
// many of them are not there yet.
func (s *Server) fillRows(ctx context.Context, rows []*RunRow) int {
	enough := time.NewTimer(fillTime)
	defer enough.Stop()
	waits := make([]<-chan struct{}, len(rows))
	for i, row := range rows {
		waits[i] = s.fillRow(row)
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
			s.showFacts(row)
		default:
			late++
		}
	}
	return late
}

// showFacts adds the facts that are known and returns their version, "" for none.
func (s *Server) showFacts(row *RunRow) string {
	facts, ok := s.cache.get("row/" + row.RunID)
	if !ok {
		return ""
	}
	f := facts.(rowFacts) //nolint:forcetypeassert // the key is of this type alone
	row.Rewards, row.ToolErrors, row.Throughput, row.Keys, row.Problem = f.rewards, f.toolErrors, f.throughput, f.keys, f.problem
	return f.version
}
