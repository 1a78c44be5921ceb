package session

import (
	"context"
	"fmt"
	"slices"
	"time"

	"temper/sandbox"
)

// Brancher is a Kernel that can be copied while no cell runs in it. The copy is independent
// and isolated like the original. An error means that this kernel cannot be copied.
type Brancher interface {
	Branch(ctx context.Context) (Kernel, error)
}

// turnPatience is how long a branch waits for the kernel of its parent. If a cell there
// takes longer, the branch runs the history instead.
const turnPatience = 100 * time.Millisecond

// inherit makes s a branch with the cells of the session that req names. mu is held.
func (t *table) inherit(s *session, req sandbox.Request) (why string, err error) {
	if s.known && s.branch != req.BranchOf {
		return "the session exists: branch_of belongs to its first cell", nil
	}
	parent := t.sessions[key{s.key.run, req.BranchOf}]
	if parent == nil || !parent.known {
		return "", fmt.Errorf("%w: the session %.64q, which branch_of names, is not known here", sandbox.ErrSessionLost, req.BranchOf)
	}
	if err := s.expected(req, len(parent.cells)); err != nil {
		return "", err
	}
	if why, err := t.adopt(s, req, slices.Clone(parent.cells)); why != "" || err != nil {
		return why, err
	}
	s.branch, s.lost, s.profile, s.limits = req.BranchOf, parent.lost, parent.profile, parent.limits
	return "", nil
}

// copied returns a copy of the kernel of the session in req.BranchOf, or nil when that
// kernel has not run the cells of s or cannot be copied.
func (m *Manager) copied(ctx context.Context, s *session, req sandbox.Request) Kernel {
	m.table.mu.Lock()
	parent := m.table.sessions[key{s.key.run, req.BranchOf}]
	m.table.mu.Unlock()
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
	m.table.mu.Lock()
	k, ok := parent.kernel.(Brancher)
	ok = ok && s.same(parent)
	m.table.mu.Unlock()
	if !ok {
		return nil
	}
	branch, err := k.Branch(ctx)
	if err != nil {
		return nil // running the history gives the same state
	}
	m.table.mu.Lock()
	m.table.stats.Branches++
	m.table.mu.Unlock()
	return branch
}

// same reports whether the kernels of both sessions have the same state.
func (s *session) same(other *session) bool {
	return s.fixture == other.fixture && s.profile == other.profile && s.limits.Memory == other.limits.Memory &&
		slices.EqualFunc(s.cells, other.cells, func(a, b entry) bool { return a.code == b.code && a.stdin == b.stdin })
}
