package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/sandboxtest"
	"temper/sandbox/session"
)

func TestIdleKernelsGoAndTheirHistoriesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		m := newManager(t, h, session.Config{Idle: time.Minute, Forget: time.Hour})
		exec(t, m, "s", "a")
		exec(t, m, "s", "b")
		time.Sleep(50 * time.Second)
		if n, _ := h.alive(); n != 1 {
			t.Errorf("%d kernels before the time", n)
		}
		time.Sleep(30 * time.Second)
		if n, _ := h.alive(); n != 0 {
			t.Errorf("%d kernels after the time", n)
		}
		shows(t, m, "s", "a b")
		if s := m.Stats(); s.Rebuilds != 1 || s.Expired != 1 {
			t.Errorf("got %+v", s)
		}
		time.Sleep(2 * time.Hour)
		if s := m.Stats(); s.Sessions != 0 || s.Bytes != 0 {
			t.Errorf("not forgotten: %+v", s)
		}
		shows(t, m, "s", "")
	})
}

func TestTheLongestIdleKernelMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		m := newManager(t, h, session.Config{MaxKernels: 2})
		exec(t, m, "a", "1")
		exec(t, m, "b", "2")
		exec(t, m, "a", "3")
		exec(t, m, "c", "4") // b goes
		if n, started := h.alive(); n != 2 || started != 3 {
			t.Errorf("%d kernels of %d started", n, started)
		}
		shows(t, m, "a", "1 3")
		if _, started := h.alive(); started != 3 {
			t.Error("a was evicted")
		}
		shows(t, m, "b", "2")
		shows(t, m, "c", "4")
	})
}

func TestBusyKernelsAreNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{MaxKernels: 2})
		var calls sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			calls.Go(func() { exec(t, m, name, "sleep") })
		}
		synctest.Wait()
		_, err := m.Execute(t.Context(), sandbox.Request{Session: "c", Code: "1"})
		if !errors.Is(err, sandbox.ErrOverloaded) || sandbox.RetryAfter(err, 0) == 0 {
			t.Errorf("got error %v", err)
		}
		calls.Wait()
		shows(t, m, "c", "")
	})
}

// TestEveryLossIsReplayed: whatever ends the kernel, what was answered with ok or
// error is there, what was stopped is not.
func TestEveryLossIsReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		m := newManager(t, h, session.Config{})
		exec(t, m, "s", "a")
		if res := exec(t, m, "s", "fail"); res.Status != sandbox.StatusError || res.SessionEnded {
			t.Errorf("got %+v", res)
		}
		if res := exec(t, m, "s", "stop"); res.Status != sandbox.StatusTimeLimit || !res.SessionEnded {
			t.Errorf("got %+v", res)
		}
		shows(t, m, "s", "a fail")
		if res := exec(t, m, "s", "exit"); res.Status != sandbox.StatusError || !res.SessionEnded {
			t.Errorf("got %+v", res)
		}
		exec(t, m, "s", "b")
		h.last().Close() // with its interpreter
		shows(t, m, "s", "a fail b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
		defer cancel()
		if _, err := m.Execute(ctx, sandbox.Request{Session: "s", Code: "c"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}
		shows(t, m, "s", "a fail b")
		if res := exec(t, m, "s", "crash"); res.Status != sandbox.StatusKilled || !res.SessionEnded {
			t.Errorf("a cell that no interpreter survives: %+v", res)
		}
		shows(t, m, "s", "a fail b")
	})
}

// TestStarvedCellIsUnavailable and leaves no trace.
func TestStarvedCellIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{})
		exec(t, m, "s", "a")
		_, err := m.Execute(t.Context(), sandbox.Request{ID: "b", Session: "s", Code: "starve"})
		if !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, jail.ErrStarved) {
			t.Errorf("got error %v", err)
		}
		shows(t, m, "s", "a")
	})
}

func TestHistoryOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		m := newManager(t, h, session.Config{})
		call := func(code string, history []string) string {
			res, err := m.Execute(t.Context(), sandbox.Request{Session: "s", Code: code, History: history, Fixture: "f"})
			if err != nil {
				t.Fatal(err)
			}
			return res.Stdout
		}
		for _, c := range []struct {
			name    string
			history []string
			want    string
			kernels int // started until then
		}{
			{"new session, with a cell that ends its kernel", []string{"a", "exit", "b"}, "f a b", 2},
			{"the same", []string{"a", "exit", "b", "show"}, "f a b", 2},
			{"none", nil, "f a b", 2},
			{"longer", []string{"a", "exit", "b", "show", "show", "show", "c"}, "f a b c", 3},
			{"as long, and another cell", []string{"a", "exit", "b", "show", "show", "show", "d", "show"}, "f a b d", 4},
			{"shorter", []string{"a"}, "f a", 5},
			{"empty", []string{}, "f", 6},
			{"empty after that", []string{"show"}, "f", 6},
		} {
			if got := call("show", c.history); got != c.want {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
			if _, started := h.alive(); started != c.kernels {
				t.Errorf("%s: %d kernels were started, want %d", c.name, started, c.kernels)
			}
		}
	})
}

// TestInputsOfTheHistory: a history that states its inputs is another one when an
// input differs; one that does not leaves cells the input that they had.
func TestInputsOfTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		m := newManager(t, h, session.Config{})
		for i, c := range []struct {
			name    string
			history []string
			stdin   []string
			want    string
			kernels int // started until then
		}{
			{"new session", []string{"a", "b", "c"}, []string{"1", "2"}, " a<1 b<2 c", 1},
			{"the same", []string{"a", "b", "c", "show"}, []string{"1", "2"}, " a<1 b<2 c", 1},
			{"inputs are not known", []string{"a", "b", "c", "show", "show"}, nil, " a<1 b<2 c", 1},
			{"another input", []string{"a", "b", "c"}, []string{"1", "3", ""}, " a<1 b<3 c", 2},
			{"rebuilt without inputs", []string{"a", "b", "d"}, nil, " a<1 b<3 d", 3},
			{"no inputs at all", []string{"a", "b"}, []string{}, " a b", 4},
		} {
			res, err := m.Execute(t.Context(), sandbox.Request{
				ID: fmt.Sprint(i), Session: "s", Code: "show", History: c.history, HistoryStdin: c.stdin,
			})
			if err != nil || res.Stdout != c.want {
				t.Errorf("%s: %q (%s), %v; want %q", c.name, res.Stdout, res.Reason, err, c.want)
			}
			if _, started := h.alive(); started != c.kernels {
				t.Errorf("%s: %d kernels were started, want %d", c.name, started, c.kernels)
			}
		}
		res, err := m.Execute(t.Context(), sandbox.Request{Session: "s", History: []string{"a"}, HistoryStdin: []string{"", ""}})
		if err != nil || res.Status != sandbox.StatusRefused || !strings.Contains(res.Reason, "2 inputs for the 1 cells") {
			t.Errorf("more inputs than cells: %+v, %v", res, err)
		}
	})
}

// TestAnswerThatNeverCame: a cell whose caller was gone ran here nevertheless, and
// another one in its place elsewhere; what comes back is as long and not the same.
func TestAnswerThatNeverCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newManager(t, &host{}, session.Config{}), newManager(t, &host{}, session.Config{})
		var history []string
		call := func(m *session.Manager, ctx context.Context, code string) (sandbox.Result, error) {
			return m.Execute(ctx, sandbox.Request{Session: "s", Code: code, History: append([]string{}, history...)})
		}
		answered := func(m *session.Manager, code string) string {
			t.Helper()
			res, err := call(m, t.Context(), code)
			if err != nil {
				t.Fatal(err)
			}
			history = append(history, code)
			return res.Stdout
		}
		answered(a, "one")
		answered(a, "two")
		if _, err := call(a, t.Context(), "lost"); err != nil { // and the answer with its link
			t.Fatal(err)
		}
		answered(b, "three")
		if got := answered(a, "show"); got != " one two three" {
			t.Errorf("on the first node again: %q", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond/2)
		defer cancel()
		if _, err := call(a, ctx, "cancelled"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v", err)
		}
		answered(b, "five")
		if got := answered(a, "show"); got != " one two three five" {
			t.Errorf("after a cancelled cell: %q", got)
		}
	})
}

func TestCellsAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{MaxWaiting: 9})
		var calls sync.WaitGroup
		var want []string
		for i := range 10 {
			word := fmt.Sprint("w", i)
			want = append(want, word)
			calls.Go(func() { exec(t, m, "s", word) })
			synctest.Wait()
		}
		_, err := m.Execute(t.Context(), sandbox.Request{Session: "s", Code: "late"})
		if !errors.Is(err, sandbox.ErrOverloaded) {
			t.Errorf("got error %v", err)
		}
		calls.Wait()
		shows(t, m, "s", strings.Join(want, " "))
	})
}

func TestAWaitingCellHearsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{})
		var calls sync.WaitGroup
		calls.Go(func() { exec(t, m, "s", "sleep") })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := m.Execute(ctx, sandbox.Request{Session: "s", Code: "1"})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > time.Millisecond {
			t.Errorf("got error %v after %v", err, time.Since(start))
		}
		calls.Wait()
		shows(t, m, "s", "sleep")
	})
}

func TestHistoriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{MaxCells: 3, MaxBytes: 50, MaxSessions: 3})
		refused := func(req sandbox.Request, want string) {
			t.Helper()
			res, err := m.Execute(t.Context(), req)
			if err != nil || res.Status != sandbox.StatusRefused || !strings.Contains(res.Reason, want) {
				t.Errorf("got %+v, %v, want %q", res, err, want)
			}
		}
		long := strings.Repeat("x", 40)
		for range 3 {
			exec(t, m, "a", "w")
		}
		refused(sandbox.Request{Session: "a", Code: "w"}, "3 cells, the limit")
		exec(t, m, "b", long)
		refused(sandbox.Request{Session: "b", Code: long}, "above the limit of 50 bytes")
		refused(sandbox.Request{Session: "c", Code: "1", History: []string{"1", "2", "3", "4"}}, "history of 4 cells")
		refused(sandbox.Request{Session: "c", Code: "1", Fixture: "bad"}, "fixture: bad")
		refused(sandbox.Request{Session: strings.Repeat("n", 257), Code: "1"}, "above the limit of 256 bytes")
		exec(t, m, "c", "1")
		exec(t, m, "d", "1") // in the place of a
		if m.Drop("", "a") || !m.Drop("", "b") || m.Drop("", "b") {
			t.Error("Drop does not tell whether there was a session")
		}
		exec(t, m, "b", "1")
		for _, name := range []string{"b", "c", "d"} {
			m.Drop("", name)
		}
		if s := m.Stats(); s.Bytes != 0 || s.Sessions != 0 || s.Kernels != 0 {
			t.Errorf("got %+v", s)
		}
	})
}

// TestDropOfACellThatStatesItsHistory: it depends on nothing that was lost, so it
// is not refused but may be sent again.
func TestDropOfACellThatStatesItsHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{})
		call := func(code string) (sandbox.Result, error) {
			return m.Execute(t.Context(), sandbox.Request{Session: "s", Code: code, History: []string{"a"}})
		}
		var calls sync.WaitGroup
		for range 2 { // one runs and one waits
			calls.Go(func() {
				if res, err := call("sleep"); !errors.Is(err, sandbox.ErrUnavailable) {
					t.Errorf("got %+v, %v", res, err)
				}
			})
		}
		synctest.Wait()
		m.Drop("", "s")
		calls.Wait()
		if res, err := call("show"); err != nil || res.Stdout != " a" {
			t.Errorf("sent again: %+v, %v", res, err)
		}
	})
}

func TestDropEndsARunningCell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{})
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				res := exec(t, m, "s", "sleep")
				if res.Status == sandbox.StatusOK && res.Stdout != "" {
					t.Errorf("got %+v", res)
				}
			})
		}
		synctest.Wait()
		m.Drop("", "s")
		calls.Wait()
		shows(t, m, "s", "")
		if s := m.Stats(); s.Sessions != 1 || s.Kernels != 1 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestCloseDrainsAndThenKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, patience := range []time.Duration{time.Minute, time.Millisecond} {
			m := session.New(&sandboxtest.Fake{}, (&host{}).admit, session.Config{})
			var calls sync.WaitGroup
			var got error
			calls.Go(func() { _, got = m.Execute(t.Context(), sandbox.Request{Session: "s", Code: "sleep"}) })
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			err := m.Close(ctx)
			cancel()
			calls.Wait()
			if patience > time.Second && (err != nil || got != nil) {
				t.Errorf("patient: Close %v, cell %v", err, got)
			}
			if patience < time.Second && (!errors.Is(err, context.DeadlineExceeded) || !errors.Is(got, sandbox.ErrUnavailable)) {
				t.Errorf("impatient: Close %v, cell %v", err, got)
			}
			if _, err := m.Execute(t.Context(), sandbox.Request{Session: "s", Code: "1"}); !errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("after Close: %v", err)
			}
		}
	})
}

// TestManySessionsOnFewKernels: each keeps its own state through evictions.
func TestManySessionsOnFewKernels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{slots: make(chan struct{}, 4)}
		m := newManager(t, h, session.Config{MaxKernels: 8})
		var calls sync.WaitGroup
		for i := range 50 {
			calls.Go(func() {
				name := fmt.Sprint("s", i)
				var want []string
				for j := range 6 {
					word := fmt.Sprint(name, "-", j)
					want = append(want, word)
					exec(t, m, name, word)
				}
				shows(t, m, name, strings.Join(want, " "))
			})
		}
		calls.Wait()
		if n, _ := h.alive(); n > 8 {
			t.Errorf("%d kernels", n)
		}
		if s := m.Stats(); s.Evicted == 0 || s.Cells != 350 {
			t.Errorf("got %+v", s)
		}
	})
}

// TestOldSessionsMakeRoom: who begins sessions without an end shuts nobody out, and
// loses its own before those of others.
func TestOldSessionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, &host{}, session.Config{MaxSessions: 8, MaxKernels: 8})
		call := func(run, name, code string) {
			t.Helper()
			if _, err := m.Execute(t.Context(), sandbox.Request{Run: run, Session: name, Code: code}); err != nil {
				t.Fatalf("session %s of run %s: %v", name, run, err)
			}
		}
		call("quiet", "s", "kept")
		for i := range 100 {
			call("noisy", fmt.Sprint(i), "x")
		}
		res, err := m.Execute(t.Context(), sandbox.Request{Run: "quiet", Session: "s", Code: "show"})
		if err != nil || !strings.Contains(res.Stdout, "kept") {
			t.Errorf("the session of the quiet run: %+v, %v, want its state", res, err)
		}
		if s := m.Stats(); s.Sessions != 8 || s.Forgotten != 93 {
			t.Errorf("%d sessions, %d forgotten, want 8 and 93", s.Sessions, s.Forgotten)
		}
	})
}

// TestIdleKernelsMakeRoomForCalls: where no process is left for a call, kernels that
// wait are ended, and the call runs.
func TestIdleKernelsMakeRoomForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &host{}
		full := &sandboxtest.Fake{Func: func(sandbox.Request) (sandbox.Result, error) {
			if n, _ := h.alive(); n > 0 {
				return sandbox.Result{}, fmt.Errorf("%w: %w", &sandbox.Overloaded{Detail: "full"}, jail.ErrNoProcess)
			}
			return sandbox.Result{Status: sandbox.StatusOK}, nil
		}}
		m := session.New(full, h.admit, session.Config{MaxKernels: 32})
		defer m.Close(context.Background())
		for i := range 20 {
			exec(t, m, fmt.Sprint(i), "x")
		}
		if _, err := m.Execute(t.Context(), sandbox.Request{ID: "a", Code: "1"}); err != nil {
			t.Errorf("got %v, want the call to run", err)
		}
		if s := m.Stats(); s.Evicted != 20 || s.Kernels != 0 {
			t.Errorf("%+v, want every kernel ended", s)
		}
		shows(t, m, "3", "x") // sessions are their histories
		if _, err := m.Execute(t.Context(), sandbox.Request{ID: "b", Code: "1"}); err != nil {
			t.Error(err)
		}
	})
}
