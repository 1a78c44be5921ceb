package engine

// slot is one cache row.
type slot struct {
	row int
	// session that the row is kept for, "" for none.
	session string
	// cached are the tokens whose keys and values the row holds, at positions 0, 1, ...
	cached []int32
	// job that is generating in the row, nil when idle.
	job *job
	// used orders idle rows by the time they became idle.
	used uint64
}

// slots assigns cache rows to jobs. The rows of idle sessions are kept as long as
// the device stays busy without them.
//
// Invariant: a session owns at most one row.
type slots struct {
	all       []*slot
	clock     uint64
	evictions int64
}

// evictBelow is the number of busy rows at which a job stops taking the row of an
// idle session, and waits. Steps are well filled at that point, and the tool of the
// idle session is likely to answer sooner than its tokens could be fed again.
const evictBelow = 16

// newSlots makes n empty rows.
func newSlots(n int) *slots {
	s := &slots{}
	for row := range n {
		s.all = append(s.all, &slot{row: row})
	}
	return s
}

// assignRow gives a job the row of its session, or an empty row, or, when the device
// has little to do, the row of the session that has been idle for longest. It
// returns nil when the job must wait.
func (s *slots) assignRow(j *job) *slot {
	var empty, oldest *slot
	session, busy := j.req.Session, 0
	for _, sl := range s.all {
		switch {
		case session != "" && sl.session == session:
			if sl.job == nil {
				return sl.beginJob(j)
			}
			session = "" // the session is generating already: serve this request without one
		case sl.job != nil:
			busy++
		case sl.session == "":
			empty = sl
		case oldest == nil || sl.used < oldest.used:
			oldest = sl
		}
	}
	if empty == nil && oldest != nil && busy < evictBelow {
		s.evictions++
		empty = oldest
	}
	if empty == nil {
		return nil
	}
	empty.session, empty.cached = session, empty.cached[:0]
	return empty.beginJob(j)
}

// beginJob puts a job into a row and keeps the part of the cache that the job's context
// begins with. The last token of the context is always fed again, since its logits
// are needed.
func (sl *slot) beginJob(j *job) *slot {
	n, limit := 0, min(len(sl.cached), len(j.context)-1)
	for n < limit && sl.cached[n] == j.context[n] {
		n++
	}
	sl.cached, sl.job = sl.cached[:n], j
	return sl
}

// finish makes the row idle. It stays with its session.
func (s *slots) finish(sl *slot) {
	s.clock++
	sl.job, sl.used = nil, s.clock
}

// release forgets a session. A generation that is under way keeps its row until it ends.
func (s *slots) release(session string) {
	for _, sl := range s.all {
		if sl.session == session {
			sl.session = ""
		}
	}
}

// invalidate forgets all sessions and cached tokens.
func (s *slots) invalidate() {
	for _, sl := range s.all {
		sl.session, sl.cached = "", sl.cached[:0]
	}
}

// count returns how many rows generate and how many are kept for idle sessions.
func (s *slots) count() (active, idle int) {
	for _, sl := range s.all {
		switch {
		case sl.job != nil:
			active++
		case sl.session != "":
			idle++
		}
	}
	return active, idle
}
