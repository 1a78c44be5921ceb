package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"temper/internal/history"
)

func badQuery(err error) error {
	if code, text := status(err); code == http.StatusNotFound {
		return problem{http.StatusBadRequest, text}
	}
	return err
}

// searchEnd is the last line of a search.
type searchEnd struct {
	Done bool `json:"done"`
	Hits int  `json:"hits"`
	// Truncated means that there are more hits or steps, Reason which bound was met.
	Truncated bool   `json:"truncated"`
	Reason    string `json:"reason,omitempty"`
	Error     string `json:"error,omitempty"`
}

// Bounds of a search.
const (
	searchTime  = time.Minute
	searchHits  = 100
	mostHits    = 10_000
	maxSearches = 4
)

// search streams the hits of a text: a line for each, one for the progress after each
// step, and a last one. It ends when the client goes.
func (fi *finder) search(w http.ResponseWriter, r *request) error {
	h, err := fi.reader.open(r)
	if err != nil {
		return err
	}
	in := history.Search{Text: r.URL.Query().Get("q"), Regex: r.URL.Query().Get("regex") == "1"}
	for _, n := range []struct {
		name      string
		otherwise int
		to        *int
	}{{"from", 0, &in.From}, {"to", 0, &in.To}, {"limit", searchHits, &in.Limit}} {
		if *n.to, err = r.queryNumber(n.name, n.otherwise); err != nil {
			return err
		}
	}
	in.Limit = min(in.Limit, mostHits)
	select {
	case fi.searching <- struct{}{}:
		defer func() { <-fi.searching }()
	default:
		return problem{http.StatusServiceUnavailable, "other searches are under way: try again"}
	}
	ctx, cancel := context.WithTimeout(r.Context(), searchTime)
	defer cancel()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(searchTime + eventTime)) // for the last line, too; a test's writer has none
	l := &lines{w: w}
	end := searchEnd{Done: true}
	end.Truncated, err = history.RolloutsOf(h).Search(ctx, in, func(hit history.Hit) error {
		end.Hits++
		return l.put(hit)
	}, func(p history.Progress) error { return l.put(map[string]history.Progress{"progress": p}) })
	switch {
	case err != nil && !l.begun:
		return badQuery(err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		end.Truncated, end.Reason = true, "the search was stopped after a minute: name fewer steps"
	case err != nil:
		_, end.Error = status(err)
	case end.Truncated:
		end.Reason = "there are more hits than asked for"
	}
	_ = l.put(end) // the client has gone when this fails
	return nil
}

// lines writes JSON lines as they come.
type lines struct {
	w     http.ResponseWriter
	begun bool
}

func (l *lines) put(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.Header().Set("Cache-Control", "no-store")
	}
	if _, err := l.w.Write(append(data, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(l.w).Flush()
}
