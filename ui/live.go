package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"temper/internal/blob"
	"temper/internal/history"
)

const (
	// maxStreams bounds the streams at a time.
	maxStreams = 256
	// maxFollowed bounds the runs of one stream.
	maxFollowed = 16
	// maxBacklog bounds the entries of a run that a watcher remembers. A stream that asks for
	// older ones gets a reset: it reads everything again.
	maxBacklog = 4096
	// queued bounds the events that wait for a client. A client that reads none is cut off
	// and reconnects with its cursor.
	queued = 512
	// pulse is the period of keep-alives on a silent stream.
	pulse = 15 * time.Second
	// eventTime bounds how long a client may take for one event.
	eventTime = 10 * time.Second
	// livePace and endedPace are the periods of polling the store.
	livePace  = 500 * time.Millisecond
	endedPace = 5 * time.Second
	// linger is how long a run is watched after its last stream has ended: a reloaded page
	// reconnects.
	linger = 20 * time.Second
)

// place is the position of a client in a run: the newest step that it got, the number of
// other entries, and the sum of the hashes of their keys. Times cannot be positions: an older
// entry may arrive after a younger one.
type place struct {
	step, num int
	sum       uint64
}

func (p *place) advance(e history.Entry) {
	if e.Step != nil {
		p.step = max(p.step, e.Step.Step)
		return
	}
	p.num++
	p.sum += sumOf(e.Key)
}

// stepKind is the kind of the events of steps.
const stepKind = "step"

// event is the event of one entry in a stream.
type event struct {
	run, kind string
	place     place // after the entry
	data      []byte
}

// hub holds one watcher for each run that a stream follows.
type hub struct {
	store blob.Store
	log   *slog.Logger

	ctx    context.Context // ends all watchers
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	streams  int
	pages    map[*client]bool // all streams
	watchers map[string]*watcher
}

func newHub(store blob.Store, log *slog.Logger) *hub {
	h := &hub{store: store, log: log, watchers: map[string]*watcher{}, pages: map[*client]bool{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

func (h *hub) close() {
	h.cancel()
	h.done.Wait()
}

// watcher follows a run for all streams that want it.
type watcher struct {
	run     string
	hub     *hub
	primed  chan struct{} // closed when the first poll is done
	mu      sync.Mutex
	log     []event
	first   place // before the log; older entries are forgotten
	at      place
	clients map[*client]bool
	idle    time.Time // since when it has no client
}

// client is one stream.
type client struct {
	events chan event
	// slow is closed when the client could not take an event.
	slow chan struct{}
	once sync.Once
}

func (c *client) send(e event) {
	select {
	case c.events <- e:
	default:
		c.once.Do(func() { close(c.slow) })
	}
}

// join adds a client to the watcher of a run and sends the entries after a place; nil means
// the present. reset reports that the entries after the place are unknown.
func (h *hub) join(ctx context.Context, c *client, runID string, after *place) (at place, reset bool, err error) {
	h.mu.Lock()
	w, ok := h.watchers[runID]
	if !ok {
		w = &watcher{run: runID, hub: h, primed: make(chan struct{}), clients: map[*client]bool{}}
		h.watchers[runID] = w
		h.done.Go(func() { w.follow(h.ctx) })
	}
	w.mu.Lock()
	w.clients[c] = false // gets no event yet, but keeps the watcher alive
	w.mu.Unlock()
	h.mu.Unlock()
	select {
	case <-w.primed:
	case <-ctx.Done():
		return at, false, ctx.Err()
	case <-h.ctx.Done():
		return at, false, context.Canceled
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clients[c] = true
	if after == nil {
		return w.at, false, nil
	}
	missed, known := w.since(*after)
	if !known || len(missed) > cap(c.events)-len(c.events) {
		return w.at, true, nil
	}
	for _, e := range missed {
		c.send(e)
	}
	return w.at, false, nil
}

// since returns the entries after a place. known is false where the place is forgotten, or
// where the client got the entries in another order: another watcher sorts a late entry by
// its time.
func (w *watcher) since(p place) (missed []event, known bool) {
	known = p.num == w.first.num && p.sum == w.first.sum
	for _, e := range w.log {
		if e.place.num == p.num && e.place.sum == p.sum {
			known = true
		}
		if e.kind == stepKind && e.place.step > p.step || e.kind != stepKind && e.place.num > p.num {
			missed = append(missed, e)
		}
	}
	return missed, known && p.step >= w.first.step && p.step <= w.at.step
}

func (h *hub) leave(c *client, runID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w, ok := h.watchers[runID]; ok {
		w.mu.Lock()
		delete(w.clients, c)
		w.idle = time.Now()
		w.mu.Unlock()
	}
}

// follow polls the store until ctx ends or the watcher has had no client for linger.
func (w *watcher) follow(ctx context.Context) {
	feed := history.Follow(w.hub.store, w.run)
	first, ended, silent := true, false, false
	for {
		entries, err := feed.Poll(ctx)
		if err != nil && ctx.Err() == nil && !silent {
			w.hub.log.Warn("run cannot be followed", "run_id", w.run, "err", err)
		}
		silent = err != nil
		for _, e := range entries {
			ended = ended || e.Summary != nil
			w.add(e)
		}
		if first && (err == nil || ctx.Err() != nil || !errors.Is(err, blob.ErrUnavailable)) { // damage does not heal by waiting
			first = false
			close(w.primed)
		}
		pace := livePace
		if ended {
			pace = endedPace
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
		if w.hub.drop(w) {
			return
		}
	}
}

// drop forgets a watcher that has had no client for linger.
func (h *hub) drop(w *watcher) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.clients) > 0 || time.Since(w.idle) < linger {
		return false
	}
	delete(h.watchers, w.run)
	return true
}

func (w *watcher) add(e history.Entry) {
	kind := "event"
	switch {
	case e.Step != nil:
		kind = stepKind
	case e.Evaluation != nil:
		kind = "evaluation"
	case e.SFT != nil:
		kind = "sft"
	case e.Summary != nil:
		kind = "summary"
	}
	data, err := json.Marshal(struct {
		Run string `json:"run"`
		history.Entry
	}{w.run, e})
	if err != nil {
		w.hub.log.Error("entry is not sent", "run_id", w.run, "err", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at.advance(e)
	out := event{run: w.run, kind: kind, place: w.at, data: data}
	w.log = append(w.log, out)
	if over := len(w.log) - maxBacklog; over > 0 {
		w.first = w.log[over-1].place
		w.log = slices.Delete(w.log, 0, over)
	}
	for c, ready := range w.clients {
		if ready {
			c.send(out)
		}
	}
}

// eventStreams serves the event streams of pages.
type eventStreams struct {
	store blob.Store
	hub   *hub
}

// stream sends the entries of the runs of a page. Its event ids are cursors of all runs, so
// that a page that reconnects misses nothing.
func (es *eventStreams) stream(w http.ResponseWriter, r *request) error {
	runs := r.URL.Query()["run"]
	if len(runs) == 0 || len(runs) > maxFollowed {
		return problem{http.StatusBadRequest, fmt.Sprintf("run is given %d times, want 1 to %d", len(runs), maxFollowed)}
	}
	for _, id := range runs {
		if ok, err := history.Exists(r.Context(), es.store, checkedID(id)); err != nil {
			return err
		} else if !ok {
			return missing("no run %s in %s", brief(id), es.store.Locate(history.Folder))
		}
	}
	places, err := parsePlaces(firstOf(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	if err != nil {
		return err
	}
	if !es.hub.admit() {
		w.Header().Set("Retry-After", "5")
		return problem{http.StatusServiceUnavailable, fmt.Sprintf("%d pages follow runs already: close some", maxStreams)}
	}
	defer es.hub.release()
	out := &streamWriter{w: w, control: http.NewResponseController(w), places: places}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	if err := out.begin(); err != nil {
		return nil //nolint:nilerr // the client has gone
	}
	c := &client{events: make(chan event, queued), slow: make(chan struct{})}
	defer es.hub.list(c)()
	for _, id := range runs {
		defer es.hub.leave(c, id)
		var after *place
		if at, ok := places[id]; ok {
			after = &at
		}
		at, reset, err := es.hub.join(r.Context(), c, id, after)
		if err != nil {
			return nil //nolint:nilerr // the client has gone, or the server ends
		}
		if after == nil || reset {
			places[id] = at
			if out.send("reset", []byte(strconv.Quote(id))) != nil {
				return nil
			}
		}
	}
	es.pump(r.Context(), c, out)
	return nil
}

// pump sends events until the client goes, or is too slow, or the server ends.
func (es *eventStreams) pump(ctx context.Context, c *client, out *streamWriter) {
	beat := time.NewTicker(pulse)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-es.hub.ctx.Done():
			return
		case <-c.slow:
			return
		case e := <-c.events:
			if e.run != "" {
				out.places[e.run] = e.place
			}
			err = out.send(e.kind, e.data)
		case <-beat.C:
			err = out.write(":\n\n")
		}
		if err != nil {
			return
		}
	}
}

func (h *hub) admit() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.streams >= maxStreams {
		return false
	}
	h.streams++
	return true
}

func (h *hub) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
}

// list makes point reach a stream until the returned function is called.
func (h *hub) list(c *client) (forget func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pages[c] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.pages, c)
	}
}

// point tells all pages to show another one, and returns how many there are.
func (h *hub) point(path string) int {
	data, err := json.Marshal(map[string]string{"path": path})
	if err != nil { // texts always encode
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.pages {
		c.send(event{kind: "view", data: data})
	}
	return len(h.pages)
}

// checkedID returns id, or an id that no run has where id is malformed.
func checkedID(id string) string {
	if history.CheckRunID(id) != nil {
		return "no-such-run"
	}
	return id
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// streamWriter writes events with the places of all runs as their id.
type streamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	places  map[string]place
}

func (o *streamWriter) begin() error { return o.write("retry: 2000\n\n") }

func (o *streamWriter) send(kind string, data []byte) error {
	return o.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", formatPlaces(o.places), kind, data))
}

func (o *streamWriter) write(text string) error {
	deadline := time.Now().Add(eventTime)
	if err := o.control.SetWriteDeadline(deadline); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := o.w.Write([]byte(text)); err != nil {
		return err
	}
	return o.control.Flush()
}

// formatPlaces writes places as "run@step.number.sum", with commas.
func formatPlaces(places map[string]place) string {
	var out []string
	for id, p := range places {
		out = append(out, fmt.Sprintf("%s@%d.%d.%x", id, p.step, p.num, p.sum))
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func parsePlaces(text string) (map[string]place, error) {
	out := map[string]place{}
	if text == "" {
		return out, nil
	}
	bad := problem{http.StatusBadRequest, "the cursor " + brief(text) + " is none of this server"}
	for _, part := range strings.Split(text, ",") {
		id, numbers, ok := strings.Cut(part, "@")
		fields := strings.Split(numbers, ".")
		if !ok || len(fields) != 3 || history.CheckRunID(id) != nil || len(out) >= maxFollowed {
			return nil, bad
		}
		step, err1 := strconv.Atoi(fields[0])
		num, err2 := strconv.Atoi(fields[1])
		sum, err3 := strconv.ParseUint(fields[2], 16, 64)
		if errors.Join(err1, err2, err3) != nil {
			return nil, bad
		}
		out[id] = place{step: step, num: num, sum: sum}
	}
	return out, nil
}
