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
	// fatal is a cell of a Request.History that ended its kernel when it was run
	// again: it stays, since the caller counts it, and is not run any more.
	fatal bool
}

// prepare decides what the history of s is before req runs. It returns why req cannot
// be the next cell, empty when it can.
func (m *Manager) prepare(s *session, req sandbox.Request) (why string, err error) {
	if len(req.HistoryStdin) > len(req.History) {
		return fmt.Sprintf("history_stdin has %d inputs for the %d cells of history", len(req.HistoryStdin), len(req.History)), nil
	}
	m.mu.Lock()
	if s.dropped {
		m.mu.Unlock()
		return "", errDropped
	}
	var stale Kernel
	if !s.known || req.History != nil && !s.ran(req) {
		if why, err = m.adopt(s, req); why == "" && err == nil {
			stale = m.detach(s)
		}
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

// statedCell is the cell at place i of the history that req states.
func statedCell(req sandbox.Request, i int) entry {
	cell := entry{code: req.History[i]}
	if i < len(req.HistoryStdin) {
		cell.stdin = req.HistoryStdin[i]
	}
	return cell
}

// is reports whether e is the cell at place i of the history that req states.
func (e entry) is(req sandbox.Request, i int) bool {
	stated := statedCell(req, i)
	return e.code == stated.code && (req.HistoryStdin == nil || e.stdin == stated.stdin)
}

// adopt makes the history of req that of the session. The cells at its start that are
// known here keep the input that they had. mu is held.
func (m *Manager) adopt(s *session, req sandbox.Request) (why string, err error) {
	cells := make([]entry, 0, len(req.History)+1)
	same := true
	var bytes int64
	for i := range req.History {
		cell := statedCell(req, i)
		if same = same && i < len(s.cells) && s.cells[i].is(req, i); same {
			cell = s.cells[i]
		}
		cells = append(cells, cell)
		bytes += int64(len(cell.code) + len(cell.stdin))
	}
	if len(req.History) > m.cfg.MaxCells || bytes > m.cfg.MaxBytes {
		return fmt.Sprintf("history of %d cells and %d bytes is above the limit of %d and %d",
			len(req.History), bytes, m.cfg.MaxCells, m.cfg.MaxBytes), nil
	}
	bytes += int64(len(req.Fixture))
	if m.held()-s.bytes+bytes+int64(len(cells)-len(s.cells))*cellWeight > m.cfg.TotalBytes {
		return "", overloaded("histories hold %d bytes", m.held())
	}
	m.bytes += bytes - s.bytes
	m.cells += len(cells) - len(s.cells)
	s.known, s.fixture, s.profile, s.limits = true, req.Fixture, req.Profile, req.Limits
	s.bytes, s.cells = bytes, cells
	return "", nil
}

// fits returns why req cannot be the next cell of s, if so. mu is held.
func (m *Manager) fits(s *session, req sandbox.Request) (why string, err error) {
	size := int64(len(req.Code) + len(req.Stdin))
	switch {
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
	if s.dropped || res.SessionEnded || res.Status != sandbox.StatusOK && res.Status != sandbox.StatusError {
		return
	}
	s.cells = append(s.cells, entry{code: req.Code, stdin: req.Stdin})
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
