package session

import (
	"container/list"
	"fmt"
	"time"

	"temper/sandbox"
)

// session is one named session.
type session struct {
	key  key
	turn chan struct{} // held by the call that runs

	// Written with the turn and table.mu, read with either.
	known   bool // a first call has set the fields below
	fixture string
	profile sandbox.Profile
	limits  sandbox.Limits // of the kernel and the fixture
	proven  bool           // a kernel has started before
	lost    string         // why no kernel can be made from cells; empty when one can
	fresh   bool           // its first call did not state that it begins, and has no answer yet
	branch  string         // the session that it branches from, until the first answer
	cells   []entry
	bytes   int64

	// Guarded by table.mu.
	kernel    Kernel        // nil when there is none
	idle      *list.Element // in table.idle; nil while a cell runs
	inactive  *list.Element // in table.inactive; nil while a call is inside
	inside    int           // calls that run or wait
	last      time.Time     // when a call has left
	idleSince time.Time     // when the kernel began to wait
	dropped   bool
}

// entry is one cell of a history.
type entry struct {
	code, stdin string
	took        time.Duration // the larger of wall and processor time; 0 while it is not known
	wall, cpu   time.Duration // its limits; 0 for the defaults
	// fatal is a cell of a Request.History that ended its kernel when it was run
	// again: it stays, because the caller counts it, but does not run any more.
	fatal bool
}

// again returns the least time that a replay of e may take: twice its first time plus a
// second, because the first machine may have been faster. It is 0 while the time is
// unknown.
func (e entry) again() time.Duration {
	if e.took == 0 {
		return 0
	}
	return 2*e.took + time.Second
}

// prepare sets the history of s for req. It returns why req cannot be the next cell, empty
// when it can.
func (m *Manager) prepare(s *session, req sandbox.Request) (why string, err error) {
	switch {
	case len(req.HistoryStdin) > len(req.History):
		return fmt.Sprintf("history_stdin has %d inputs for the %d cells of history", len(req.HistoryStdin), len(req.History)), nil
	case len(req.HistoryTimes) > len(req.History):
		return fmt.Sprintf("history_ns has %d times for the %d cells of history", len(req.HistoryTimes), len(req.History)), nil
	case req.BranchOf != "" && len(req.BranchOf) > maxName:
		return fmt.Sprintf("the name in branch_of is above the limit of %d bytes", maxName), nil
	}
	m.table.mu.Lock()
	if s.dropped {
		m.table.mu.Unlock()
		return "", errDropped
	}
	var stale Kernel
	switch {
	case req.BranchOf != "" && req.History == nil:
		why, err = m.table.inherit(s, req)
	case !s.known || req.History != nil && !s.ran(req):
		if err = s.expected(req, len(req.History)); err != nil {
			break
		}
		if why, err = m.table.adopt(s, req, statedCells(s, req)); why == "" && err == nil {
			stale = m.table.detach(s)
		}
	default:
		err = s.expected(req, len(s.cells))
	}
	if why == "" && err == nil {
		why, err = m.table.fits(s, req)
	}
	m.table.mu.Unlock()
	discard(stale)
	return why, err
}

// ran reports whether s has run the history that req states. Without HistoryStdin only the
// code is compared.
func (s *session) ran(req sandbox.Request) bool {
	if len(s.cells) != len(req.History) {
		return false
	}
	for i, cell := range s.cells {
		if !cell.is(req, i) {
			return false
		}
	}
	return true
}

// expected returns ErrSessionLost when req expects another number of cells.
func (s *session) expected(req sandbox.Request, cells int) error {
	switch {
	case req.SessionCells == nil || *req.SessionCells == cells:
		return nil
	case !s.known && req.History == nil:
		return fmt.Errorf("%w: it is not known here, and the call expects %d cells before it", sandbox.ErrSessionLost, *req.SessionCells)
	default:
		return fmt.Errorf("%w: it has run %d cells, and the call expects %d", sandbox.ErrSessionLost, cells, *req.SessionCells)
	}
}

// statedCell returns cell i of the history that req states.
func statedCell(req sandbox.Request, i int) entry {
	cell := entry{code: req.History[i]}
	if i < len(req.HistoryStdin) {
		cell.stdin = req.HistoryStdin[i]
	}
	if i < len(req.HistoryTimes) {
		cell.took = max(req.HistoryTimes[i], 0)
	}
	cell.wall, cell.cpu = req.Limits.Wall, req.Limits.CPU
	return cell
}

// is reports whether e equals cell i of the history that req states.
func (e entry) is(req sandbox.Request, i int) bool {
	stated := statedCell(req, i)
	return e.code == stated.code && (req.HistoryStdin == nil || e.stdin == stated.stdin)
}

// statedCells returns the cells that req states. A prefix that s has run keeps its inputs
// and times.
func statedCells(s *session, req sandbox.Request) []entry {
	cells := make([]entry, 0, len(req.History)+1)
	same := true
	for i := range req.History {
		cell := statedCell(req, i)
		if same = same && i < len(s.cells) && s.cells[i].is(req, i); same {
			cell = s.cells[i]
		}
		cells = append(cells, cell)
	}
	return cells
}

// adopt sets cells as the history of s, and req as its first call. mu is held.
func (t *table) adopt(s *session, req sandbox.Request, cells []entry) (why string, err error) {
	var bytes int64
	for _, cell := range cells {
		bytes += int64(len(cell.code) + len(cell.stdin))
	}
	if len(cells) > t.cfg.MaxCells || bytes > t.cfg.MaxBytes {
		return fmt.Sprintf("history of %d cells and %d bytes is above the limit of %d and %d",
			len(cells), bytes, t.cfg.MaxCells, t.cfg.MaxBytes), nil
	}
	bytes += int64(len(req.Fixture))
	if t.held()-s.bytes+bytes+int64(len(cells)-len(s.cells))*cellWeight > t.cfg.TotalBytes {
		return "", overloaded("histories hold %d bytes", t.held())
	}
	t.bytes += bytes - s.bytes
	t.cells += len(cells) - len(s.cells)
	s.fresh = !s.known && req.History == nil && req.SessionCells == nil && req.BranchOf == ""
	s.known, s.fixture, s.profile, s.limits = true, req.Fixture, req.Profile, req.Limits
	s.bytes, s.cells, s.lost = bytes, cells, ""
	return "", nil
}

// fits returns why req cannot be the next cell of s, "" when it can. mu is held.
func (t *table) fits(s *session, req sandbox.Request) (why string, err error) {
	size := int64(len(req.Code) + len(req.Stdin))
	switch {
	case s.lost != "":
		return "", fmt.Errorf("%w: %s", sandbox.ErrSessionLost, s.lost)
	case req.Fixture != s.fixture:
		return "the fixture differs from that of the session's first cell", nil
	case len(s.cells) >= t.cfg.MaxCells:
		return fmt.Sprintf("the session has run %d cells, the limit", t.cfg.MaxCells), nil
	case s.bytes-int64(len(s.fixture))+size > t.cfg.MaxBytes:
		return fmt.Sprintf("the cells of the session are above the limit of %d bytes", t.cfg.MaxBytes), nil
	case t.held()+size+cellWeight > t.cfg.TotalBytes:
		return "", overloaded("histories hold %d bytes", t.held())
	}
	return "", nil
}

// record adds an answered cell to the history, unless the cell ended its kernel. mu is
// held.
func (t *table) record(s *session, req sandbox.Request, res *sandbox.Result) {
	t.stats.Cells++
	res.SessionNew, s.fresh, s.branch = s.fresh, false, ""
	if s.dropped || res.SessionEnded || res.Status != sandbox.StatusOK && res.Status != sandbox.StatusError {
		return
	}
	s.cells = append(s.cells, entry{
		code: req.Code, stdin: req.Stdin, took: max(res.Usage.Wall, res.Usage.CPU, 1),
		wall: req.Limits.Wall, cpu: req.Limits.CPU,
	})
	size := int64(len(req.Code) + len(req.Stdin))
	s.bytes += size
	t.bytes += size
	t.cells++
}

// forget removes s from the table, except for its kernel. mu is held.
func (t *table) forget(s *session) {
	delete(t.sessions, s.key)
	if t.byRun[s.key.run]--; t.byRun[s.key.run] == 0 {
		delete(t.byRun, s.key.run)
	}
	t.bytes -= s.bytes
	t.cells -= len(s.cells)
	s.dropped = true
	if s.inactive != nil {
		t.inactive.Remove(s.inactive)
		s.inactive = nil
	}
}
