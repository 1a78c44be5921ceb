package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"temper/sandbox"
)

// Brancher is a Kernel that can be copied while no cell runs in it. The copy is a kernel
// of its own, behind the same isolation. An error means that this kernel cannot be copied.
type Brancher interface {
	Branch(ctx context.Context) (Kernel, error)
}

// turnPatience is how long a branch waits for the kernel of its parent. A cell that runs
// there may take longer; running the history again does not need it.
const turnPatience = 100 * time.Millisecond

// inherit makes s a branch: a new session with the cells of another one. mu is held.
func (m *Manager) inherit(s *session, req sandbox.Request) (why string, err error) {
	if s.known && s.branch != req.BranchOf {
		return "the session exists: branch_of belongs to its first cell", nil
	}
	parent := m.sessions[key{s.key.run, req.BranchOf}]
	if parent == nil || !parent.known {
		return "", fmt.Errorf("%w: the session %.64q, which branch_of names, is not known here", sandbox.ErrSessionLost, req.BranchOf)
	}
	if err := s.expected(req, len(parent.cells)); err != nil {
		return "", err
	}
	if why, err := m.adopt(s, req, slices.Clone(parent.cells)); why != "" || err != nil {
		return why, err
	}
	s.branch, s.lost, s.profile, s.limits = req.BranchOf, parent.lost, parent.profile, parent.limits
	return "", nil
}

// copied returns a copy of the kernel of the session that req names in BranchOf; nil when
// there is none that has run the cells of s, or when it cannot be copied.
func (m *Manager) copied(ctx context.Context, s *session, req sandbox.Request) Kernel {
	m.mu.Lock()
	parent := m.sessions[key{s.key.run, req.BranchOf}]
	m.mu.Unlock()
	if parent == nil || parent == s {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	select {
	case parent.turn <- struct{}{}:
		defer func() { <-parent.turn }()
	case <-ctx.Done():
		return nil
	}
	m.mu.Lock()
	k, ok := parent.kernel.(Brancher)
	ok = ok && s.same(parent)
	m.mu.Unlock()
	if !ok {
		return nil
	}
	branch, err := k.Branch(ctx)
	if err != nil {
		return nil // the history gives the same state
	}
	m.mu.Lock()
	m.stats.Branches++
	m.mu.Unlock()
	return branch
}

// same reports whether both sessions have kernels of one state.
func (s *session) same(other *session) bool {
	return s.fixture == other.fixture && s.profile == other.profile && s.limits.Memory == other.limits.Memory &&
		slices.EqualFunc(s.cells, other.cells, func(a, b entry) bool { return a.code == b.code && a.stdin == b.stdin })
}
