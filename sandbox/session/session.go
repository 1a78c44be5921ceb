// Package session keeps a kernel for each trajectory: a confined program whose
// variables live from cell to cell, as in a notebook. It owns the names of
// sessions, the order of their cells, their histories, and the life of their
// kernels; the isolation of a kernel belongs to package jail, the admission of calls to
// package pool.
//
// A session is its history: the cells that were answered with ok or error and did not end
// their kernel. A kernel is a cache of the history. It is dropped when it has been idle, when
// another session needs its place, when its interpreter dies, and after every cell that was
// stopped from outside (time, memory, output, a signal, a caller that went away), since such
// a cell may stop anywhere. The next cell then gets a new kernel, in which the history has
// been run again, output dropped, errors ignored. So a cell that was stopped, or that ended
// the process itself (os._exit), leaves no trace, and its Result reports that (SessionEnded);
// the effects of a cell before it raised stay. State that is not a function of the history
// may differ after a rebuild: clocks, os.urandom, races of threads.
//
// Between two cells a kernel is stopped: its threads and timers do not run.
//
// The first call of a session decides its fixture, its profile and its memory limit; a later
// call with another fixture is refused. Time and output are limited for each cell separately,
// also in a replay, where it may take twice its first time. A cell that then exceeds its
// limit, although it did not before, loses the session: every later call gets ErrSessionLost
// at once, without another replay. A rebuild gives each cell its first input. If a request
// states History without HistoryStdin, cells that this session did not run get empty input,
// and two cells that differ only in their input count as equal.
//
// Invariant: a kernel that is kept is in the state that its history gives.
package session

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
)

// Config bounds a Manager. Zero fields take the stated defaults.
type Config struct {
	MaxKernels  int           // kernels that exist at once; 128 for each core
	MaxSessions int           // remembered sessions; 65,536
	MaxCells    int           // cells in the history of a session; 256
	MaxBytes    int64         // of code and input in the history of a session; 4 MiB
	TotalBytes  int64         // bytes of all histories, with the overhead of each cell and session; 1 GiB
	MaxWaiting  int           // cells of a session that may wait for their turn; 16
	Idle        time.Duration // idle time after which a kernel is dropped; 5 minutes
	Forget      time.Duration // idle time after which a history is dropped; 1 hour
	Logger      *slog.Logger
}

// Kernels returns the number of kernels that may exist at a time.
func (c Config) Kernels() int { return c.withDefaults().MaxKernels }

func (c Config) withDefaults() Config {
	positive := func(v *int, fallback int) {
		if *v <= 0 {
			*v = fallback
		}
	}
	positive(&c.MaxKernels, 128*runtime.NumCPU())
	positive(&c.MaxSessions, 1<<16)
	positive(&c.MaxCells, 256)
	positive(&c.MaxWaiting, 16)
	for _, d := range []struct {
		v        *time.Duration
		fallback time.Duration
	}{{&c.Idle, 5 * time.Minute}, {&c.Forget, time.Hour}} {
		if *d.v <= 0 {
			*d.v = d.fallback
		}
	}
	if c.MaxBytes <= 0 {
		c.MaxBytes = 4 << 20
	}
	if c.TotalBytes <= 0 {
		c.TotalBytes = 1 << 30
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// maxName bounds the names of runs and sessions, which are kept.
const maxName = 256

// key names a session; each run has its own names.
type key struct{ run, session string }

// Manager implements sandbox.Executor: calls without a Session go to the stateless
// executor, the others to the kernel of their session.
type Manager struct {
	stateless sandbox.Executor
	admit     Admit
	table     *table

	life    context.Context // ends the remaining calls when Close stops waiting
	end     context.CancelFunc
	stop    chan struct{} // ends expire
	expirer sync.WaitGroup
}

// table holds the sessions and counts their kernels and histories. Its lock guards all of
// its fields, and the fields of sessions that say so.
type table struct {
	cfg   Config
	calls sync.WaitGroup // calls inside

	mu       sync.Mutex
	sessions map[key]*session
	idle     list.List // sessions with a waiting kernel, longest idle first
	byRun    map[string]int
	inactive list.List // sessions without a call inside, longest inactive first
	kernels  int       // kernels that exist or are starting
	bytes    int64     // texts of all histories
	cells    int       // cells of all histories
	stats    Stats
	closed   bool
}

var _ sandbox.Executor = (*Manager)(nil)

// New returns a Manager. The caller closes it before the pool behind admit and stateless.
func New(stateless sandbox.Executor, admit Admit, cfg Config) *Manager {
	m := &Manager{
		stateless: stateless, admit: admit, stop: make(chan struct{}),
		table: &table{cfg: cfg.withDefaults(), sessions: make(map[key]*session), byRun: make(map[string]int)},
	}
	m.life, m.end = context.WithCancel(context.Background())
	m.expirer.Go(m.expire)
	return m
}

// Execute implements sandbox.Executor. A call with a Session is a cell of it: it
// waits for the cells before it, then for a slot. Usage.Queue holds both waits and
// the time that a rebuild took. A Request.History that is not nil is the
// truth: where the session has run other cells, it is rebuilt from those.
func (m *Manager) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if req.Session == "" {
		return m.withoutSession(ctx, req)
	}
	if len(req.Session) > maxName || len(req.Run) > maxName {
		return refused(req, fmt.Sprintf("a name of a run or session is above the limit of %d bytes", maxName)), nil
	}
	if err := ctx.Err(); err != nil {
		return sandbox.Result{}, err
	}
	arrived := time.Now()
	s, err := m.table.enter(key{req.Run, req.Session}, weight(req))
	if err != nil {
		return sandbox.Result{}, err
	}
	defer m.table.leave(s)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(m.life, cancel)() //nolint:contextcheck // Close ends calls that their callers have not ended
	select {
	case s.turn <- struct{}{}: // waiters are served in order
		defer func() { <-s.turn }()
	case <-inner.Done():
		return sandbox.Result{}, m.final(ctx, inner.Err())
	}
	res, err := m.run(inner, s, req, arrived)
	if err != nil {
		return sandbox.Result{}, m.final(ctx, err)
	}
	return res, nil
}

// withoutSession runs a call without a session. If idle kernels hold the processes that it
// needs, it ends them.
func (m *Manager) withoutSession(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	for {
		res, err := m.stateless.Execute(ctx, req)
		if !errors.Is(err, jail.ErrNoProcess) || ctx.Err() != nil || !m.makeRoom() {
			return res, err
		}
	}
}

// final returns the error that the caller gets for err.
func (m *Manager) final(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case m.life.Err() != nil:
		return fmt.Errorf("%w: shutting down", sandbox.ErrUnavailable)
	case errors.Is(err, sandbox.ErrUnavailable), errors.Is(err, sandbox.ErrOverloaded), errors.Is(err, sandbox.ErrSessionLost):
		return err
	default:
		return fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
	}
}

// enter returns the session under k, making it if needed, and counts the call.
func (t *table) enter(k key, weight int64) (*session, error) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, fmt.Errorf("%w: shutting down", sandbox.ErrUnavailable)
	}
	var victim Kernel
	var thinned []Kernel
	defer func() {
		discard(victim)
		for _, k := range thinned {
			discard(k)
		}
	}()
	defer t.mu.Unlock()
	s := t.sessions[k]
	if s == nil {
		if len(t.sessions) >= t.cfg.MaxSessions {
			oldest := t.oldest(k.run)
			if oldest == nil {
				return nil, overloaded("%d sessions run or wait", t.cfg.MaxSessions)
			}
			victim = t.detach(oldest)
			t.forget(oldest)
			t.stats.Forgotten++
		}
		s = &session{key: k, turn: make(chan struct{}, 1)}
		t.sessions[k] = s
		t.byRun[k.run]++
	}
	if s.inside > t.cfg.MaxWaiting {
		return nil, overloaded("%d cells of the session wait", t.cfg.MaxWaiting)
	}
	if s.inactive != nil {
		t.inactive.Remove(s.inactive)
		s.inactive = nil
	}
	s.inside++
	t.calls.Add(1)
	thinned = t.evictHistories(k.run, weight)
	return s, nil
}

// oldest returns the session to evict for a new one of run: the longest inactive session of
// all, or of the run if that has more than half of the sessions, so that one run cannot
// displace the sessions of others. It is nil when no session is inactive.
func (t *table) oldest(run string) *session {
	front := t.inactive.Front()
	if t.byRun[run] > t.cfg.MaxSessions/2 {
		for e := front; e != nil; e = e.Next() {
			if s := e.Value.(*session); s.key.run == run {
				return s
			}
		}
	}
	if front == nil {
		return nil
	}
	return front.Value.(*session)
}

// leave ends the count of a call and forgets a session without cells.
func (t *table) leave(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.inside--
	s.last = time.Now()
	switch {
	case s.inside > 0 || s.dropped:
	case s.kernel == nil && len(s.cells) == 0:
		t.forget(s)
	default:
		s.inactive = t.inactive.PushBack(s)
	}
	t.calls.Done()
}

var errDropped = errors.New("the session was dropped")

// deaths is the number of interpreters that die under a cell before the cell counts as the
// cause; patience is how long a cell waits for an interpreter to come back.
const (
	deaths   = 3
	patience = 30 * time.Second
)

// run runs req as the next cell of s, whose turn it has.
func (m *Manager) run(ctx context.Context, s *session, req sandbox.Request, arrived time.Time) (sandbox.Result, error) {
	why, err := m.prepare(s, req)
	switch {
	case errors.Is(err, errDropped):
		return m.dropped(req)
	case why != "" || err != nil:
		return refused(req, why), err
	}
	giveUp := time.Now().Add(patience)
	for died, pause := 0, 5*time.Millisecond; died < deaths; {
		res, err := m.attempt(ctx, s, req, arrived)
		var refusal *jail.Refused
		switch {
		case err == nil:
			return res, nil
		case ctx.Err() != nil:
			return sandbox.Result{}, err
		case errors.Is(err, errDropped):
			return m.dropped(req)
		case errors.As(err, &refusal):
			return refused(req, refusal.Reason), nil
		case errors.Is(err, jail.ErrNoProcess) && m.makeRoom():
		case errors.Is(err, errNoKernel) && time.Now().Before(giveUp):
			select { // the pool has not yet noticed the death
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, time.Second)
		case errors.Is(err, jail.ErrDied) && !errors.Is(err, errNoKernel):
			died++
		default:
			return sandbox.Result{}, err
		}
	}
	return sandbox.Result{
		ID: req.ID, Status: sandbox.StatusKilled, ExitCode: 137,
		Reason: "ends the interpreter that runs it, again and again", SessionEnded: true,
	}, nil
}

// dropped answers a cell whose session was dropped. A request that states its history can
// be sent again without a loss; any other would silently start a new session.
func (m *Manager) dropped(req sandbox.Request) (sandbox.Result, error) {
	if req.History != nil {
		return sandbox.Result{}, errDropped
	}
	return refused(req, errDropped.Error()), nil
}

// attempt runs req once, starting a kernel where the session has none.
func (m *Manager) attempt(ctx context.Context, s *session, req sandbox.Request, arrived time.Time) (res sandbox.Result, err error) {
	err = m.admit(ctx, req, func(ctx context.Context, start Start) error {
		k, err := m.ready(ctx, s, req, start)
		if err != nil {
			return err
		}
		queued := time.Since(arrived)
		res, err = k.Run(ctx, req)
		res.Usage.Queue = queued
		m.settle(s, k, req, &res, err)
		return err
	})
	return res, err
}

// Drop ends a session and forgets its history. Cells that wait or run are refused, or
// unavailable where they state their history. It reports whether the session existed.
func (m *Manager) Drop(run, name string) bool {
	m.table.mu.Lock()
	s := m.table.sessions[key{run, name}]
	if s == nil {
		m.table.mu.Unlock()
		return false
	}
	m.table.forget(s)
	k := m.table.detach(s)
	m.table.mu.Unlock()
	discard(k)
	return true
}

// Close refuses new cells, waits for cells inside until ctx ends, kills the rest, and
// returns when every kernel has ended. The error is ctx.Err() when cells were killed.
func (m *Manager) Close(ctx context.Context) error {
	m.table.mu.Lock()
	already := m.table.closed
	m.table.closed = true
	m.table.mu.Unlock()
	err := sandbox.Drain(ctx, &m.table.calls, m.end)
	if !already {
		close(m.stop)
	}
	m.expirer.Wait()
	m.table.mu.Lock()
	var kernels []Kernel
	for _, s := range m.table.sessions {
		kernels = append(kernels, m.table.detach(s))
	}
	m.table.mu.Unlock()
	for _, k := range kernels {
		discard(k)
	}
	return err
}

// Stats is a snapshot of a Manager.
type Stats struct {
	Sessions int   `json:"sessions"` // known sessions
	Kernels  int   `json:"kernels"`  // existing kernels
	Idle     int   `json:"idle"`     // kernels that wait for a cell
	Bytes    int64 `json:"bytes"`    // code and input in all histories
	Cells    int64 `json:"cells"`    // answered cells
	Rebuilds int64 `json:"rebuilds"` // kernels that replayed a history
	Branches int64 `json:"branches"` // kernels copied from another
	Lost     int64 `json:"lost"`     // sessions that cannot be rebuilt
	Evicted  int64 `json:"evicted"`  // kernels evicted for another
	// Forgotten counts sessions evicted for another.
	Forgotten int64 `json:"forgotten"`
	Expired   int64 `json:"expired"` // kernels that were idle too long
}

// Stats returns a snapshot.
func (m *Manager) Stats() Stats {
	m.table.mu.Lock()
	defer m.table.mu.Unlock()
	s := m.table.stats
	s.Sessions, s.Kernels, s.Idle, s.Bytes = len(m.table.sessions), m.table.kernels, m.table.idle.Len(), m.table.held()
	return s
}

func refused(req sandbox.Request, why string) sandbox.Result {
	return sandbox.Result{ID: req.ID, Status: sandbox.StatusRefused, Reason: why}
}

func overloaded(format string, args ...any) error {
	return &sandbox.Overloaded{Detail: fmt.Sprintf(format, args...), RetryAfter: time.Second}
}
