package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
)

// Kernel runs cells until it dies; *jail.Kernel implements it.
type Kernel interface {
	// Run runs a cell. The kernel is gone after a status other than ok and error
	// and after an error: jail.ErrDied when it or its interpreter ended first,
	// jail.ErrStarved, or ctx.Err().
	Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error)
	// Replay runs req.Code as Run does, within its limits or least, whichever is larger.
	// It drops the output, which has no limit.
	Replay(ctx context.Context, req sandbox.Request, least time.Duration) (sandbox.Result, error)
	// Spent reports whether the last cell ended the kernel or met a limit.
	Spent() bool
	// Done is closed when the kernel is gone.
	Done() <-chan struct{}
	// Close ends it and waits.
	Close()
}

// Start makes a kernel that has run req.Fixture; *jail.Refused when it cannot be.
type Start func(ctx context.Context, req sandbox.Request) (Kernel, error)

// Admit runs f while it holds a slot for req. It returns the errors of an Executor, and the
// error of f unchanged.
type Admit func(ctx context.Context, req sandbox.Request, f func(ctx context.Context, start Start) error) error

// OnPool admits cells to the slots of p, so that cells and calls share one queue. A
// kernel between two cells holds no slot.
func OnPool(p *pool.Pool) Admit {
	return func(ctx context.Context, req sandbox.Request, f func(context.Context, Start) error) error {
		return p.Do(ctx, req, func(ctx context.Context, in pool.Interpreter) error {
			host, ok := in.(interface {
				StartKernel(ctx context.Context, req sandbox.Request) (*jail.Kernel, error)
			})
			if !ok {
				return &jail.Refused{Reason: "sessions are not supported by this interpreter"}
			}
			return f(ctx, func(ctx context.Context, req sandbox.Request) (Kernel, error) {
				k, err := host.StartKernel(ctx, req)
				if err != nil {
					return nil, err
				}
				return inJail{k}, nil
			})
		})
	}
}

// inJail is a kernel of a jail.
type inJail struct{ *jail.Kernel }

// Branch implements Brancher.
func (k inJail) Branch(ctx context.Context) (Kernel, error) {
	branch, err := k.Kernel.Branch(ctx)
	if err != nil {
		return nil, err
	}
	return inJail{branch}, nil
}

// errNoKernel means that an interpreter ended before it had made a kernel.
var errNoKernel = errors.New("no kernel")

func gone(k Kernel) bool {
	select {
	case <-k.Done():
		return true
	default:
		return false
	}
}

// detach removes the kernel of s from the table and returns it, nil for none. The caller
// holds mu, and discards the kernel after unlocking.
func (t *table) detach(s *session) Kernel {
	k := s.kernel
	if k == nil {
		return nil
	}
	s.kernel = nil
	t.kernels--
	if s.idle != nil {
		t.idle.Remove(s.idle)
		s.idle = nil
	}
	return k
}

// discard ends a detached kernel; k may be nil.
func discard(k Kernel) {
	if k != nil {
		k.Close()
	}
}

// ready returns the kernel of s and marks it as running. Without one it makes a kernel from
// the history.
func (m *Manager) ready(ctx context.Context, s *session, req sandbox.Request, start Start) (Kernel, error) {
	m.table.mu.Lock()
	if s.dropped {
		m.table.mu.Unlock()
		return nil, errDropped
	}
	var dead Kernel
	if kept := s.kernel; kept != nil {
		if !gone(kept) {
			m.table.idle.Remove(s.idle)
			s.idle = nil
			m.table.mu.Unlock()
			return kept, nil // s may have been dropped meanwhile
		}
		dead = m.table.detach(s)
	}
	victim, err := m.table.reserve()
	m.table.mu.Unlock()
	discard(dead)
	discard(victim)
	if err != nil {
		return nil, err
	}
	k, err := m.rebuild(ctx, s, req, start)
	m.table.mu.Lock()
	if err == nil && !s.dropped {
		s.kernel, s.proven = k, true
		m.table.mu.Unlock()
		return k, nil
	}
	m.table.kernels--
	m.table.mu.Unlock()
	if err == nil {
		discard(k)
		err = errDropped
	}
	return nil, err
}

// reserve counts one more kernel, detaching the longest idle one at the limit. mu is held.
func (t *table) reserve() (victim Kernel, err error) {
	if t.kernels >= t.cfg.MaxKernels {
		front := t.idle.Front()
		if front == nil {
			return nil, overloaded("%d kernels run", t.cfg.MaxKernels)
		}
		victim = t.detach(front.Value.(*session))
		t.stats.Evicted++
	}
	t.kernels++
	return victim, nil
}

// atOnce is the number of idle kernels that makeRoom ends: a kernel may have as many
// threads as a program.
const atOnce = 8

// makeRoom ends the longest idle kernels, and reports whether there were any.
func (m *Manager) makeRoom() bool {
	var victims []Kernel
	m.table.mu.Lock()
	for front := m.table.idle.Front(); front != nil && len(victims) < atOnce; front = m.table.idle.Front() {
		victims = append(victims, m.table.detach(front.Value.(*session)))
		m.table.stats.Evicted++
	}
	m.table.mu.Unlock()
	for _, k := range victims {
		discard(k)
	}
	return len(victims) > 0
}

// settle ends a cell of s: it records the cell unless the cell left no state, and keeps the
// kernel for the next cell or discards it.
func (m *Manager) settle(s *session, k Kernel, req sandbox.Request, res *sandbox.Result, err error) {
	m.table.mu.Lock()
	if err == nil {
		res.SessionEnded = k.Spent()
		m.table.record(s, req, res)
	}
	keep := s.kernel == k && err == nil && !gone(k)
	switch {
	case keep:
		s.idle, s.idleSince = m.table.idle.PushBack(s), time.Now()
	case s.kernel == k: // otherwise the session was dropped meanwhile
		m.table.detach(s)
	}
	m.table.mu.Unlock()
	if !keep {
		discard(k)
	}
}

// rebuild makes a kernel in the state of the history of s: a copy of the kernel that req
// branches from, or a new kernel that runs the history.
func (m *Manager) rebuild(ctx context.Context, s *session, req sandbox.Request, start Start) (Kernel, error) {
	if req.BranchOf != "" {
		if k := m.copied(ctx, s, req); k != nil {
			return k, nil
		}
	}
	first := sandbox.Request{
		ID: req.ID, Code: req.Code, Fixture: s.fixture, Profile: s.profile, Limits: s.limits,
	}
	for _, c := range s.cells {
		first.History = append(first.History, c.code)
	}
	for {
		k, err := start(ctx, first)
		if errors.Is(err, jail.ErrDied) {
			return nil, fmt.Errorf("%w: %w", errNoKernel, err)
		}
		if err != nil {
			return nil, m.unproven(s, err)
		}
		fatal, err := m.replay(ctx, s, k)
		if err != nil {
			k.Close()
			return nil, err
		}
		if !fatal {
			return k, nil
		}
		k.Close()
	}
}

// replay runs the history of s in k, each cell within its limits. fatal reports that a cell
// ended k itself; later replays omit that cell. A cell that meets a limit for the first time
// loses the session: without it the state would differ.
func (m *Manager) replay(ctx context.Context, s *session, k Kernel) (fatal bool, err error) {
	ran := false
	for i, c := range s.cells {
		if c.fatal {
			continue
		}
		ran = true
		cell := sandbox.Request{Code: c.code, Stdin: c.stdin, Limits: sandbox.Limits{Wall: c.wall, CPU: c.cpu}}
		res, err := k.Replay(ctx, cell, c.again())
		if err != nil {
			return false, err
		}
		if k.Spent() {
			if res.Status == sandbox.StatusTimeLimit || res.Status == sandbox.StatusMemoryLimit {
				return false, m.table.markLost(s, fmt.Sprintf("cell %d of %d ended with %s when it was run again: %s", i+1, len(s.cells), res.Status, res.Reason))
			}
			m.table.mu.Lock()
			s.cells[i].fatal = true
			m.table.mu.Unlock()
			return true, nil
		}
	}
	if ran {
		m.table.mu.Lock()
		m.table.stats.Rebuilds++
		m.table.mu.Unlock()
	}
	return false, nil
}

// markLost records that s cannot be rebuilt, so that no later call tries, and returns the
// error.
func (t *table) markLost(s *session, why string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.lost = why
	t.stats.Lost++
	return fmt.Errorf("%w: %s", sandbox.ErrSessionLost, why)
}

// unproven returns the error for a kernel that did not start. A refusal is the answer, unless
// the same kernel has started before: then the session is lost.
func (m *Manager) unproven(s *session, err error) error {
	var refusal *jail.Refused
	if s.proven && errors.As(err, &refusal) {
		return m.table.markLost(s, "a kernel is refused that could be made before: "+refusal.Reason)
	}
	return err
}

// expire ends idle kernels and forgets old sessions, until stop.
func (m *Manager) expire() {
	tick := time.NewTicker(max(min(m.table.cfg.Idle, m.table.cfg.Forget)/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case now := <-tick.C:
			for _, k := range m.table.expired(now) {
				discard(k)
			}
		}
	}
}

// expired detaches and returns the kernels that are idle for too long, and forgets old
// sessions.
func (t *table) expired(now time.Time) []Kernel {
	t.mu.Lock()
	defer t.mu.Unlock()
	var kernels []Kernel
	for e := t.idle.Front(); e != nil; e = t.idle.Front() {
		s := e.Value.(*session)
		if now.Sub(s.idleSince) < t.cfg.Idle {
			break
		}
		kernels = append(kernels, t.detach(s))
		t.stats.Expired++
	}
	for _, s := range t.sessions {
		if s.inside == 0 && now.Sub(s.last) >= t.cfg.Forget {
			if kernel := t.detach(s); kernel != nil {
				kernels = append(kernels, kernel)
			}
			t.forget(s)
		}
	}
	return kernels
}
