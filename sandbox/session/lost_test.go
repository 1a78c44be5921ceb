package session_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/session"
)

// TestLongSessionsAreRebuilt: a session of many slow cells, which took minutes in all, and
// a cell that took longer than the call that comes after it may.
func TestLongSessionsAreRebuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		m := newManager(t, h, session.Config{})
		for range 20 {
			exec(t, m, "s", "a")
		}
		h.slow = 9 * time.Second // of the default limit of 10 s
		h.last().Close()
		shows(t, m, "s", strings.TrimSpace(strings.Repeat("a ", 20)))

		res, err := m.Execute(t.Context(), sandbox.Request{
			Session: "moved", Code: "show", History: []string{"a", "b"},
			HistoryTimes: []time.Duration{8 * time.Second, 8 * time.Second}, Limits: sandbox.Limits{Wall: time.Second},
		})
		if err != nil || res.Stdout != " a b" {
			t.Errorf("with the times of its cells: %+v, %v", res, err)
		}
	})
}

// TestLostSessionIsFinal: a history that does not end within its limits is tried once, then
// every call gets its answer at once, until the session is made anew.
func TestLostSessionIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		m := newManager(t, h, session.Config{})
		for range 3 {
			exec(t, m, "s", "a")
		}
		h.slow = 11 * time.Second
		h.last().Close()
		for i, most := range []time.Duration{11 * time.Second, 0, 0} {
			begun := time.Now()
			_, err := m.Execute(t.Context(), sandbox.Request{ID: fmt.Sprint(i), Session: "s", Code: "show"})
			if !errors.Is(err, sandbox.ErrSessionLost) || errors.Is(err, sandbox.ErrUnavailable) || !strings.Contains(err.Error(), "cell 1 of 3") {
				t.Errorf("try %d: got error %v", i, err)
			}
			if took := time.Since(begun); took > most {
				t.Errorf("try %d: took %v, want at most %v", i, took, most)
			}
		}
		if _, started := h.alive(); started != 2 {
			t.Errorf("%d kernels were started, want 2", started)
		}
		if s := m.Stats(); s.Lost != 1 || s.Kernels != 0 {
			t.Errorf("got %+v", s)
		}
		res, err := m.Execute(t.Context(), sandbox.Request{Session: "s", Code: "show", History: []string{}})
		if err != nil || res.Stdout != "" {
			t.Errorf("begun anew: %+v, %v", res, err)
		}
	})
}

// TestAnEmptiedSessionShows: a caller learns that the session began with its call, and one
// that counts on earlier cells gets an error in place of a NameError.
func TestAnEmptiedSessionShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{})
		count := func(n int) *int { return &n }
		call := func(code string, cells *int, history []string) (sandbox.Result, error) {
			return m.Execute(t.Context(), sandbox.Request{Session: "s", Code: code, SessionCells: cells, History: history})
		}
		lost := func(name string, cells *int, history []string) {
			t.Helper()
			if res, err := call("b", cells, history); !errors.Is(err, sandbox.ErrSessionLost) {
				t.Errorf("%s: got %+v, %v", name, res, err)
			}
		}
		is := func(name string, fresh bool, res sandbox.Result, err error) {
			t.Helper()
			if err != nil || res.SessionNew != fresh {
				t.Errorf("%s: got %+v, %v, want session_new %t", name, res, err, fresh)
			}
		}
		lost("a session that nobody knows", count(1), nil)
		if s := m.Stats(); s.Sessions != 0 {
			t.Errorf("%d sessions are kept of a call that was not let in", s.Sessions)
		}
		res, err := call("a", nil, nil)
		is("the first cell of a caller that says nothing", true, res, err)
		res, err = call("a", nil, nil)
		is("the second", false, res, err)
		lost("another number", count(1), nil)
		lost("a history of another length", count(1), []string{"a", "a"})
		res, err = call("a", count(2), nil)
		is("the right number", false, res, err)
		m.Drop("", "s")
		lost("an emptied session", count(3), nil)
		res, err = call("a", count(0), nil)
		is("a first cell by its number", false, res, err)
		m.Drop("", "s")
		res, err = call("a", nil, []string{})
		is("a first cell by its history", false, res, err)
		m.Drop("", "s")
		res, err = call("show", nil, nil)
		is("an emptied session of a caller that says nothing", true, res, err)
	})
}

// TestBranches: a branch has what its parent had, and each goes its own way, with a kernel
// that was copied or with one that was rebuilt.
func TestBranches(t *testing.T) {
	for _, single := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := &host{single: single}
			m := newManager(t, h, session.Config{})
			branch := func(name, of, code string, cells *int, history []string) (sandbox.Result, error) {
				return m.Execute(t.Context(), sandbox.Request{
					ID: name + code, Session: name, BranchOf: of, Code: code, SessionCells: cells, History: history,
				})
			}
			exec(t, m, "s", "a")
			exec(t, m, "s", "b")
			two := 2
			for _, name := range []string{"x", "y"} {
				if res, err := branch(name, "s", name, &two, nil); err != nil || res.Status != sandbox.StatusOK || res.SessionNew {
					t.Fatalf("branch %s: %+v, %v", name, res, err)
				}
			}
			exec(t, m, "s", "c")
			shows(t, m, "s", "a b c")
			shows(t, m, "x", "a b x")
			h.last().Close() // that of y
			shows(t, m, "y", "a b y")
			if res, err := branch("z", "s", "show", nil, []string{"a", "b"}); err != nil || res.Stdout != " a b" {
				t.Errorf("a branch of an earlier state: %+v, %v", res, err)
			}
			if s := m.Stats(); s.Branches == 0 != single {
				t.Errorf("kernels are single %t: got %+v", single, s)
			}
			if res, err := branch("x", "s", "d", nil, nil); err != nil || res.Status != sandbox.StatusRefused {
				t.Errorf("a branch that exists: %+v, %v", res, err)
			}
			if _, err := branch("w", "s", "d", new(int), nil); !errors.Is(err, sandbox.ErrSessionLost) {
				t.Errorf("a parent with other cells: %v", err)
			}
			if _, err := branch("w", "nobody", "d", nil, nil); !errors.Is(err, sandbox.ErrSessionLost) {
				t.Errorf("a parent that nobody knows: %v", err)
			}
		})
	}
}
