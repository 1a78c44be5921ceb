package ui

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode"

	"temper/internal/export"
	"temper/internal/history"
	"temper/internal/run"
)

func (rp *runPages) showNotes(r *request) (run.Notes, error) {
	h, err := rp.reader.open(r)
	if err != nil {
		return run.Notes{}, err
	}
	return run.ReadNotes(r.Context(), h.Store(), h.ID())
}

func (rp *runPages) putNotes(r *request, n run.Notes) (run.Notes, error) {
	if rp.storeNotes == nil {
		return n, problem{http.StatusForbidden, "this dashboard only reads"}
	}
	h, err := rp.reader.open(r)
	if err != nil {
		return n, err
	}
	if n.By == "" {
		n.By = "browser"
	}
	n.Tags, n.By, n.Time = orEmpty(n.Tags), "ui/"+n.By, rp.now().UTC()
	err = rp.storeNotes(r.Context(), h.ID(), n)
	return n, err
}

func (rp *runPages) showUsage(r *request) (history.Usage, error) {
	h, err := rp.reader.open(r)
	if err != nil {
		return history.Usage{}, err
	}
	return h.Usage(r.Context())
}

// exportTime bounds how long a client may take for an export.
const exportTime = 10 * time.Minute

func (rp *runPages) exportParquet(w http.ResponseWriter, r *request) error {
	h, err := rp.reader.open(r)
	if err != nil {
		return err
	}
	from, err := r.queryNumber("from", 1)
	if err != nil {
		return err
	}
	to, err := r.queryNumber("to", math.MaxInt)
	if err != nil {
		return err
	}
	attachment(w, "application/vnd.apache.parquet", h.ID()+".parquet")
	// A connection that cannot have a deadline is one of a test.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(exportTime))
	if _, err := export.Rollouts(r.Context(), h, from, to, w); err != nil {
		rp.log.Warn("export was cut off", "run_id", h.ID(), "err", err)
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

// Look is a page that the open pages shall show.
type Look struct {
	// Path is that of a page of this dashboard, with its query.
	Path string `json:"path"`
}

// Looked is how many open pages were told.
type Looked struct {
	Pages int `json:"pages"`
}

// maxLook bounds the address of a page.
const maxLook = 2000

// pointPages tells the pages that follow a run to show another page: so a program can show
// people what it means.
func (es *eventStreams) pointPages(_ *request, l Look) (Looked, error) {
	if !strings.HasPrefix(l.Path, "/") || strings.HasPrefix(l.Path, "//") || strings.Contains(l.Path, `\`) || len(l.Path) > maxLook || strings.ContainsFunc(l.Path, unicode.IsControl) {
		return Looked{}, problem{http.StatusBadRequest, fmt.Sprintf("path is %s, want that of a page of this dashboard, such as /runs/demo/steps/3", brief(l.Path))}
	}
	return Looked{Pages: es.hub.point(l.Path)}, nil
}
