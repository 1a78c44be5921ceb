package gateway

import (
	"container/list"
	"context"
	"fmt"
	"slices"
	"time"

	"temper/sandbox"
)

// SessionLimits bound the sessions of a gateway. Zero fields take the
// stated defaults.
type SessionLimits struct {
	// Count is the number of remembered sessions: 65,536. The session that
	// was used least recently goes first.
	Count int
	// Bytes bounds the cells of all sessions together: 256 MiB.
	Bytes int64
	// Cells and CellBytes bound the record of one session: 256 cells, 1 MiB. A
	// cell beyond them is refused, because the session could not be rebuilt.
	Cells     int
	CellBytes int64
	// Waiting is the number of cells that may wait for their own session: 16.
	Waiting int
	// Idle is how long an unused session is kept at least: 15 min. While all
	// sessions are younger, a new one has to wait: the next cell of a forgotten
	// one would get a wrong answer.
	Idle time.Duration
}

func (l SessionLimits) withDefaults() SessionLimits {
	if l.Count <= 0 {
		l.Count = 1 << 16
	}
	if l.Bytes <= 0 {
		l.Bytes = 256 << 20
	}
	if l.Cells <= 0 {
		l.Cells = 256
	}
	if l.Waiting <= 0 {
		l.Waiting = 16
	}
	if l.CellBytes <= 0 {
		l.CellBytes = 1 << 20
	}
	if l.Idle <= 0 {
		l.Idle = 15 * time.Minute
	}
	return l
}

// sessions is the bounded map of sessions; dispatcher.mu guards it.
type sessions struct {
	limits SessionLimits
	known  map[sessionKey]*session
	used   list.List // of *session, least recently used first
	bytes  int64     // of all records
	moved  int64     // cells that ran on another node than the cell before
}

// sessionKey names a session; each run has its own names.
type sessionKey struct{ run, name string }

func keyOf(req *sandbox.Request) sessionKey { return sessionKey{req.Run, req.Session} }

// session is one kernel of a trajectory: its node, the cells that it has run, and the calls
// that wait for their predecessor.
type session struct {
	key     sessionKey
	home    *node // node of the kernel, perhaps no longer live; nil before the first answer
	history []string
	stdin   []string        // inputs of the cells of history; nil when unknown
	times   []time.Duration // run times of the cells; shorter than history where unknown
	fresh   bool            // its first call did not state that it begins, and has no answer yet
	branch  string          // the session that it branches from, until the first answer
	bytes   int64           // of history and stdin
	current *call           // the oldest admitted call, waiting or running
	pending []*call         // calls behind current
	coming  int64           // bytes of code and input of current and pending
	used    time.Time
	place   *list.Element // in sessions.used; nil once forgotten
}

func newSessions(limits SessionLimits) sessions {
	return sessions{limits: limits, known: make(map[sessionKey]*session)}
}

// full returns why the record of a session has no room for a cell, "" if it has.
func (ss *sessions) full(req *sandbox.Request) string {
	cells, bytes := len(req.History), historyBytes(req)
	if s := ss.known[keyOf(req)]; s != nil {
		if req.History == nil {
			cells, bytes = len(s.history), s.bytes
		}
		cells += s.inside()
		bytes += s.coming
	}
	switch {
	case len(req.HistoryStdin) > len(req.History):
		return fmt.Sprintf("history_stdin has %d inputs for the %d cells of history", len(req.HistoryStdin), len(req.History))
	case len(req.HistoryTimes) > len(req.History):
		return fmt.Sprintf("history_ns has %d times for the %d cells of history", len(req.HistoryTimes), len(req.History))
	case cells >= ss.limits.Cells:
		return fmt.Sprintf("session has %d cells, the limit", cells)
	case bytes+cellBytes(req) > ss.limits.CellBytes:
		return fmt.Sprintf("session: %d bytes of cells and this cell's %d are above the limit of %d", bytes, cellBytes(req), ss.limits.CellBytes)
	}
	return ""
}

// join assigns c its session. A non-empty detail explains why it cannot.
func (ss *sessions) join(c *call, now time.Time) (detail string) {
	s := ss.known[keyOf(&c.req)]
	if s != nil && len(s.pending) >= ss.limits.Waiting {
		return fmt.Sprintf("%d cells of the session wait, the limit", len(s.pending))
	}
	added := cellBytes(&c.req) + historyBytes(&c.req)
	for len(ss.known) > ss.limits.Count || s == nil && len(ss.known) == ss.limits.Count || ss.bytes+added > ss.limits.Bytes {
		if !ss.forget(s, now) {
			return fmt.Sprintf("%d sessions with %d bytes of cells are in use, the limit", len(ss.known), ss.bytes)
		}
	}
	if s == nil {
		s = &session{key: keyOf(&c.req), fresh: c.req.History == nil && c.req.SessionCells == nil, branch: c.req.BranchOf}
		if parent := ss.known[sessionKey{c.req.Run, c.req.BranchOf}]; parent != nil {
			s.home = parent.home // its node can copy the kernel
		}
		s.place = ss.used.PushBack(s)
		ss.known[s.key] = s
	}
	s.used = now
	ss.used.MoveToBack(s.place)
	s.coming += cellBytes(&c.req)
	c.session = s
	return ""
}

// forget drops the least recently used session, if it is idle long enough and not keep.
func (ss *sessions) forget(keep *session, now time.Time) bool {
	front := ss.used.Front()
	if front == nil {
		return false
	}
	s := front.Value.(*session) //nolint:forcetypeassert // the list holds nothing else
	if s == keep || s.current != nil || now.Sub(s.used) < ss.limits.Idle {
		return false
	}
	ss.drop(s)
	return true
}

// drop removes s; calls that still hold it continue without a record.
func (ss *sessions) drop(s *session) {
	ss.used.Remove(s.place)
	s.place = nil
	delete(ss.known, s.key)
	ss.bytes -= s.bytes
	s.history, s.stdin, s.times, s.bytes = nil, nil, nil, 0
}

// inherit gives a call that branches the cells of the session that it names, as if the
// caller had sent them. The error reports a session that the call needs and the gateway does
// not know, after a restart or because it was forgotten: only the caller can make it again.
// The node checks the expected number of cells, when the cells before have their answers.
func (ss *sessions) inherit(req *sandbox.Request) (refusal string, err error) {
	own := ss.known[keyOf(req)]
	switch {
	case req.History != nil:
		return "", nil
	case req.BranchOf == "":
		if own == nil && req.SessionCells != nil && *req.SessionCells != 0 {
			return "", fmt.Errorf("%w: the gateway does not know it, and the call expects %d cells before it", sandbox.ErrSessionLost, *req.SessionCells)
		}
		return "", nil
	case own != nil && own.branch != req.BranchOf:
		return "the session exists: branch_of belongs to its first cell", nil
	}
	parent := ss.known[sessionKey{req.Run, req.BranchOf}]
	if parent == nil {
		return "", fmt.Errorf("%w: the gateway does not know %.64q, which branch_of names", sandbox.ErrSessionLost, req.BranchOf)
	}
	req.History = append([]string{}, parent.history...)
	req.HistoryStdin, req.HistoryTimes = slices.Clone(parent.stdin), slices.Clone(parent.times)
	return "", nil
}

// closeAt ends a session on its node. A failure is only logged: the kernel ends anyway when
// it has been idle for long.
func (g *Gateway) closeAt(n *node, closer sandbox.SessionCloser, key sessionKey) {
	ctx, cancel := context.WithTimeout(n.life, dialTimeout)
	defer cancel()
	if _, err := closer.CloseSession(ctx, key.run, key.name); err != nil {
		g.cfg.Logger.Debug("close session", "node", n.listing.address, "err", err)
	}
}

// record adds an answered cell to the cells that a new kernel has to repeat. A cell that
// ended its kernel, by a limit or by itself, left no state.
func (ss *sessions) record(c *call, n *node, res *sandbox.Result) {
	s := c.session
	if s.home != nil && s.home != n {
		ss.moved++
	}
	s.home = n
	res.SessionNew = res.SessionNew || s.fresh
	s.fresh, s.branch = false, ""
	if s.place == nil || res.SessionEnded || res.Status != sandbox.StatusOK && res.Status != sandbox.StatusError {
		return
	}
	s.history = append(s.history, c.req.Code)
	if s.stdin != nil {
		s.stdin = append(s.stdin, c.req.Stdin)
	}
	if len(s.times) == len(s.history)-1 {
		s.times = append(s.times, max(res.Usage.Wall, res.Usage.CPU, 1))
	}
	s.bytes += cellBytes(&c.req)
	ss.bytes += cellBytes(&c.req)
}

// leave ends c's turn and returns the next call of its session, if c was the current one.
func (ss *sessions) leave(c *call) *call {
	s := c.session
	s.coming -= cellBytes(&c.req)
	if s.current != c {
		s.pending = slices.DeleteFunc(s.pending, func(p *call) bool { return p == c })
		return nil
	}
	s.current = nil
	if len(s.pending) == 0 {
		if s.place != nil && s.home == nil && len(s.history) == 0 {
			ss.drop(s) // nothing to remember
		}
		return nil
	}
	next := s.pending[0]
	s.pending = slices.Delete(s.pending, 0, 1)
	ss.begin(next)
	return next
}

// begin makes c the current call of its session and gives it the cells to repeat; it
// reports false when another call has to end first. A history sent by the caller wins.
func (ss *sessions) begin(c *call) bool {
	s := c.session
	if s.current != nil {
		s.pending = append(s.pending, c)
		return false
	}
	s.current = c
	if given := c.req.History; given != nil && s.place != nil {
		ss.bytes += historyBytes(&c.req) - s.bytes
		s.history, s.bytes = slices.Clone(given), historyBytes(&c.req)
		s.stdin, s.times = nil, slices.Clone(c.req.HistoryTimes)
		if c.req.HistoryStdin != nil || len(given) == 0 {
			s.stdin = make([]string, len(given))
			copy(s.stdin, c.req.HistoryStdin)
		}
	}
	// Every time, not only after a move, and also while it is empty: a node may have
	// let an idle kernel go, or have run a cell whose answer never came.
	// Cells that are added later lie behind the end of this slice.
	if s.place != nil {
		if s.history == nil {
			s.history, s.stdin = []string{}, []string{}
		}
		c.req.History, c.req.HistoryStdin, c.req.HistoryTimes = slices.Clip(s.history), slices.Clip(s.stdin), slices.Clip(s.times)
	}
	return true
}

func (s *session) inside() int {
	if s.current == nil {
		return 0
	}
	return 1 + len(s.pending)
}

func cellBytes(req *sandbox.Request) int64 { return int64(len(req.Code) + len(req.Stdin)) }

func historyBytes(req *sandbox.Request) int64 {
	var n int64
	for _, texts := range [...][]string{req.History, req.HistoryStdin} {
		for _, text := range texts {
			n += int64(len(text))
		}
	}
	return n
}
