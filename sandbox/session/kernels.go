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

// Kernel runs cells until it dies; *jail.Kernel is one.
type Kernel interface {
	// Run runs a cell. The kernel is gone after a status other than ok and error
	// and after an error: jail.ErrDied when it or its interpreter ended first,
	// jail.ErrStarved, or ctx.Err().
	Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error)
	// Replay runs req.Code as Run does, within its limits or least where that is more.
	// The output is dropped and not limited.
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

// Admit runs f while it holds a slot for req. Its own errors are those of an
// Executor; the error of f is returned as it is.
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

// detach removes the kernel of s from the books and returns it, nil for none. The
// caller holds mu, and discards the kernel after that.
func (m *Manager) detach(s *session) Kernel {
	k := s.kernel
	if k == nil {
		return nil
	}
	s.kernel = nil
	m.kernels--
	if s.place != nil {
		m.idle.Remove(s.place)
		s.place = nil
	}
	return k
}

// discard ends a kernel that was detached.
func (m *Manager) discard(k Kernel) {
	if k != nil {
		k.Close()
	}
}

// ready returns the kernel of s, made from its history when there is none, and
// marks it as running.
func (m *Manager) ready(ctx context.Context, s *session, req sandbox.Request, start Start) (Kernel, error) {
	m.mu.Lock()
	if s.dropped {
		m.mu.Unlock()
		return nil, errDropped
	}
	var dead Kernel
	if kept := s.kernel; kept != nil {
		if !gone(kept) {
			m.idle.Remove(s.place)
			s.place = nil
			m.mu.Unlock()
			return kept, nil // a drop may have taken it away from s by now
		}
		dead = m.detach(s)
	}
	victim, err := m.reserve()
	m.mu.Unlock()
	m.discard(dead)
	m.discard(victim)
	if err != nil {
		return nil, err
	}
	k, err := m.rebuild(ctx, s, req, start)
	m.mu.Lock()
	if err == nil && !s.dropped {
		s.kernel, s.proven = k, true
		m.mu.Unlock()
		return k, nil
	}
	m.kernels--
	m.mu.Unlock()
	if err == nil {
		m.discard(k)
		err = errDropped
	}
	return nil, err
}

// reserve makes room for one more kernel; the longest idle one may have to go. mu
// is held.
func (m *Manager) reserve() (victim Kernel, err error) {
	if m.kernels >= m.cfg.MaxKernels {
		front := m.idle.Front()
		if front == nil {
			return nil, overloaded("%d kernels run", m.cfg.MaxKernels)
		}
		victim = m.detach(front.Value.(*session))
		m.stats.Evicted++
	}
	m.kernels++
	return victim, nil
}

// atOnce is how many idle kernels give way together: a kernel may have as many threads
// as a program.
const atOnce = 8

// makeRoom ends the longest idle kernels, and reports whether there were any.
func (m *Manager) makeRoom() bool {
	var victims []Kernel
	m.mu.Lock()
	for front := m.idle.Front(); front != nil && len(victims) < atOnce; front = m.idle.Front() {
		victims = append(victims, m.detach(front.Value.(*session)))
		m.stats.Evicted++
	}
	m.mu.Unlock()
	for _, k := range victims {
		m.discard(k)
	}
	return len(victims) > 0
}

// settle ends a cell of s: it adds the cell to the history if it counts, and keeps the
// kernel for the next cell or drops it.
func (m *Manager) settle(s *session, k Kernel, req sandbox.Request, res *sandbox.Result, err error) {
	m.mu.Lock()
	if err == nil {
		res.SessionEnded = k.Spent()
		m.learn(s, req, res)
	}
	keep := s.kernel == k && err == nil && !gone(k)
	switch {
	case keep:
		s.place, s.rested = m.idle.PushBack(s), time.Now()
	case s.kernel == k: // otherwise the session was dropped meanwhile
		m.detach(s)
	}
	m.mu.Unlock()
	if !keep {
		m.discard(k)
	}
}

// rebuild makes a kernel in the state that the history of s gives: a copy of the one that
// req branches from, or else a new one that runs the history.
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

// replay runs the history of s in k, each cell within what it is allowed, and reports
// whether a cell of it ended k by its own doing, which is left out from then on. A cell that
// meets a limit which it has not met before loses the session: without it the state would
// be another one.
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
				return false, m.lose(s, fmt.Sprintf("cell %d of %d ended with %s when it was run again: %s", i+1, len(s.cells), res.Status, res.Reason))
			}
			m.mu.Lock()
			s.cells[i].fatal = true
			m.mu.Unlock()
			return true, nil
		}
	}
	if ran {
		m.mu.Lock()
		m.stats.Rebuilds++
		m.mu.Unlock()
	}
	return false, nil
}

// lose notes that s cannot be rebuilt, so that no further call tries, and returns the error.
func (m *Manager) lose(s *session, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.lost = why
	m.stats.Lost++
	return fmt.Errorf("%w: %s", sandbox.ErrSessionLost, why)
}

// unproven returns the error of a kernel that could not be started. A refusal is the
// answer, but not where the same kernel could be made before.
func (m *Manager) unproven(s *session, err error) error {
	var refusal *jail.Refused
	if s.proven && errors.As(err, &refusal) {
		return m.lose(s, "a kernel is refused that could be made before: "+refusal.Reason)
	}
	return err
}

// clean drops what has been idle too long, until stop.
func (m *Manager) clean() {
	tick := time.NewTicker(max(min(m.cfg.Idle, m.cfg.Forget)/8, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-m.stop:
			return
		case now := <-tick.C:
			for _, k := range m.expired(now) {
				m.discard(k)
			}
		}
	}
}

// expired takes the idle kernels off the books and forgets old sessions.
func (m *Manager) expired(now time.Time) []Kernel {
	m.mu.Lock()
	defer m.mu.Unlock()
	var kernels []Kernel
	for e := m.idle.Front(); e != nil; e = m.idle.Front() {
		s := e.Value.(*session)
		if now.Sub(s.rested) < m.cfg.Idle {
			break
		}
		kernels = append(kernels, m.detach(s))
		m.stats.Expired++
	}
	for _, s := range m.sessions {
		if s.inside == 0 && now.Sub(s.last) >= m.cfg.Forget {
			if kernel := m.detach(s); kernel != nil {
				kernels = append(kernels, kernel)
			}
			m.forget(s)
		}
	}
	return kernels
}
