package session

import (
	"container/list"
	"fmt"
	"time"

	"temper/sandbox"
)

// session is one name and what has happened under it.
type session struct {
	key  key
	turn chan struct{} // held by the call that runs

	// Written with the turn and Manager.mu, read with either.
	known   bool // by a first call, which decides the fields below
	fixture string
	profile sandbox.Profile
	limits  sandbox.Limits // of the kernel and the fixture
	proven  bool           // a kernel could be made
	lost    string         // why no kernel can be made from cells any more; empty when one can
	fresh   bool           // it began with a call that did not say so, and was not answered yet
	branch  string         // the session that it branches from, until it was answered
	cells   []entry
	bytes   int64

	// Guarded by Manager.mu.
	kernel  Kernel        // nil when there is none
	place   *list.Element // in Manager.idle; nil while a cell runs
	rest    *list.Element // in Manager.resting; nil while a call is inside
	inside  int           // calls that run or wait
	last    time.Time     // when a call has left
	rested  time.Time     // when the kernel began to wait
	dropped bool
}

// entry is one cell of a history.
type entry struct {
	code, stdin string
	took        time.Duration // the larger of wall and processor time; 0 while it is not known
	wall, cpu   time.Duration // its limits; 0 for the defaults
	// fatal is a cell of a Request.History that ended its kernel when it was run
	// again: it stays, since the caller counts it, and is not run any more.
	fatal bool
}

// again is what e may take in any case when it is run again: it was answered in the time
// that it took, perhaps on a faster machine. 0 while that is not known.
func (e entry) again() time.Duration {
	if e.took == 0 {
		return 0
	}
	return 2*e.took + time.Second
}

// prepare decides what the history of s is before req runs. It returns why req cannot
// be the next cell, empty when it can.
func (m *Manager) prepare(s *session, req sandbox.Request) (why string, err error) {
	switch {
	case len(req.HistoryStdin) > len(req.History):
		return fmt.Sprintf("history_stdin has %d inputs for the %d cells of history", len(req.HistoryStdin), len(req.History)), nil
	case len(req.HistoryTimes) > len(req.History):
		return fmt.Sprintf("history_ns has %d times for the %d cells of history", len(req.HistoryTimes), len(req.History)), nil
	case req.BranchOf != "" && len(req.BranchOf) > maxName:
		return fmt.Sprintf("the name in branch_of is above the limit of %d bytes", maxName), nil
	}
	m.mu.Lock()
	if s.dropped {
		m.mu.Unlock()
		return "", errDropped
	}
	var stale Kernel
	switch {
	case req.BranchOf != "" && req.History == nil:
		why, err = m.inherit(s, req)
	case !s.known || req.History != nil && !s.ran(req):
		if err = s.expected(req, len(req.History)); err != nil {
			break
		}
		if why, err = m.adopt(s, req, statedCells(s, req)); why == "" && err == nil {
			stale = m.detach(s)
		}
	default:
		err = s.expected(req, len(s.cells))
	}
	if why == "" && err == nil {
		why, err = m.fits(s, req)
	}
	m.mu.Unlock()
	m.discard(stale)
	return why, err
}

// ran reports whether the history of s is the one that req states. Where req does
// not know the inputs, the codes decide.
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

// expected returns ErrSessionLost when req counts on another number of cells than there
// are, or when they cannot be run again.
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

// statedCell is the cell at place i of the history that req states.
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

// is reports whether e is the cell at place i of the history that req states.
func (e entry) is(req sandbox.Request, i int) bool {
	stated := statedCell(req, i)
	return e.code == stated.code && (req.HistoryStdin == nil || e.stdin == stated.stdin)
}

// statedCells are the cells that req states. Those at the start that are known here keep
// the input that they had and the time that they took.
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

// adopt makes cells the history of the session, and req its first call. mu is held.
func (m *Manager) adopt(s *session, req sandbox.Request, cells []entry) (why string, err error) {
	var bytes int64
	for _, cell := range cells {
		bytes += int64(len(cell.code) + len(cell.stdin))
	}
	if len(cells) > m.cfg.MaxCells || bytes > m.cfg.MaxBytes {
		return fmt.Sprintf("history of %d cells and %d bytes is above the limit of %d and %d",
			len(cells), bytes, m.cfg.MaxCells, m.cfg.MaxBytes), nil
	}
	bytes += int64(len(req.Fixture))
	if m.held()-s.bytes+bytes+int64(len(cells)-len(s.cells))*cellWeight > m.cfg.TotalBytes {
		return "", overloaded("histories hold %d bytes", m.held())
	}
	m.bytes += bytes - s.bytes
	m.cells += len(cells) - len(s.cells)
	s.fresh = !s.known && req.History == nil && req.SessionCells == nil && req.BranchOf == ""
	s.known, s.fixture, s.profile, s.limits = true, req.Fixture, req.Profile, req.Limits
	s.bytes, s.cells, s.lost = bytes, cells, ""
	return "", nil
}

// fits returns why req cannot be the next cell of s, if so. mu is held.
func (m *Manager) fits(s *session, req sandbox.Request) (why string, err error) {
	size := int64(len(req.Code) + len(req.Stdin))
	switch {
	case s.lost != "":
		return "", fmt.Errorf("%w: %s", sandbox.ErrSessionLost, s.lost)
	case req.Fixture != s.fixture:
		return "the fixture differs from that of the session's first cell", nil
	case len(s.cells) >= m.cfg.MaxCells:
		return fmt.Sprintf("the session has run %d cells, the limit", m.cfg.MaxCells), nil
	case s.bytes-int64(len(s.fixture))+size > m.cfg.MaxBytes:
		return fmt.Sprintf("the cells of the session are above the limit of %d bytes", m.cfg.MaxBytes), nil
	case m.held()+size+cellWeight > m.cfg.TotalBytes:
		return "", overloaded("histories hold %d bytes", m.held())
	}
	return "", nil
}

// learn adds a cell that was answered to the history, unless it ended its kernel. mu
// is held.
func (m *Manager) learn(s *session, req sandbox.Request, res *sandbox.Result) {
	m.stats.Cells++
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
	m.bytes += size
	m.cells++
}

// forget removes s from the books, except for its kernel. mu is held.
func (m *Manager) forget(s *session) {
	delete(m.sessions, s.key)
	if m.byRun[s.key.run]--; m.byRun[s.key.run] == 0 {
		delete(m.byRun, s.key.run)
	}
	m.bytes -= s.bytes
	m.cells -= len(s.cells)
	s.dropped = true
	if s.rest != nil {
		m.resting.Remove(s.rest)
		s.rest = nil
	}
}
