package session_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/sandboxtest"
	"temper/sandbox/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host makes fake kernels and admits cells to slots.
type host struct {
	slots chan struct{} // nil for no bound
	slow  time.Duration // what a replayed cell takes
	// single says that kernels cannot be copied.
	single bool

	mu      sync.Mutex
	kernels []*fake
}

func (h *host) admit(ctx context.Context, _ sandbox.Request, f func(context.Context, session.Start) error) error {
	if h.slots != nil {
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return f(ctx, h.start)
}

func (h *host) start(_ context.Context, req sandbox.Request) (session.Kernel, error) {
	if req.Fixture == "bad" {
		return nil, &jail.Refused{Reason: "fixture: bad"}
	}
	k := &fake{host: h, state: []string{req.Fixture}, done: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kernels = append(h.kernels, k)
	return k, nil
}

// alive counts the kernels that were not closed, and started all of them.
func (h *host) alive() (n, started int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.kernels {
		select {
		case <-k.done:
		default:
			n++
		}
	}
	return n, len(h.kernels)
}

// last returns the kernel that was started last.
func (h *host) last() *fake {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kernels[len(h.kernels)-1]
}

// fake is a kernel whose state is the list of words it was given. Its cells are
// "show", "sleep", "stop" (met a limit), "exit" (ended itself), "crash" (its
// interpreter died), "starve" (got no core), "fail" and any word. A word with an
// input is kept with it.
type fake struct {
	host  *host
	mu    sync.Mutex
	state []string
	spent bool
	once  sync.Once
	done  chan struct{}
}

func (k *fake) Done() <-chan struct{} { return k.done }
func (k *fake) Close()                { k.once.Do(func() { close(k.done) }) }
func (k *fake) Spent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.spent
}

func (k *fake) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	res := sandbox.Result{ID: req.ID, Status: sandbox.StatusOK}
	wait := time.Millisecond
	if req.Code == "sleep" {
		wait = time.Second
	}
	select {
	case <-k.done:
		return sandbox.Result{}, jail.ErrDied
	case <-ctx.Done():
		k.Close()
		return sandbox.Result{}, ctx.Err()
	case <-time.After(wait):
	}
	switch req.Code {
	case "show":
		res.Stdout = strings.Join(k.state, " ")
		return res, nil
	case "stop":
		res.Status, k.spent = sandbox.StatusTimeLimit, true
		k.Close()
	case "exit":
		res.Status, k.spent = sandbox.StatusError, true
		k.Close()
	case "crash":
		k.Close()
		return sandbox.Result{}, fmt.Errorf("%w: for a test", jail.ErrDied)
	case "starve":
		k.Close()
		return sandbox.Result{}, fmt.Errorf("%w: for a test", jail.ErrStarved)
	case "fail":
		res.Status = sandbox.StatusError
	}
	word := req.Code
	if req.Stdin != "" {
		word += "<" + req.Stdin
	}
	k.state = append(k.state, word)
	return res, nil
}

func (k *fake) Replay(ctx context.Context, req sandbox.Request, least time.Duration) (sandbox.Result, error) {
	limit := req.Limits.Wall
	if limit == 0 {
		limit = 10 * time.Second
	}
	limit = max(limit, least)
	select {
	case <-time.After(min(k.host.slow, limit)):
	case <-ctx.Done():
		k.Close()
		return sandbox.Result{}, ctx.Err()
	}
	if k.host.slow > limit {
		k.mu.Lock()
		k.spent = true
		k.mu.Unlock()
		k.Close()
		return sandbox.Result{Status: sandbox.StatusTimeLimit, Reason: fmt.Sprint("wall time limit of ", limit)}, nil
	}
	return k.Run(ctx, req)
}

// Branch implements session.Brancher.
func (k *fake) Branch(context.Context) (session.Kernel, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.host.single {
		return nil, jail.ErrNoBranch
	}
	branch := &fake{host: k.host, state: slices.Clone(k.state), done: make(chan struct{})}
	k.host.mu.Lock()
	defer k.host.mu.Unlock()
	k.host.kernels = append(k.host.kernels, branch)
	return branch, nil
}

// newManager makes a Manager that ends with the test.
func newManager(t *testing.T, h *host, cfg session.Config) *session.Manager {
	t.Helper()
	m := session.New(&sandboxtest.Fake{}, h.admit, cfg)
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n, _ := h.alive(); n != 0 {
			t.Errorf("%d kernels survive Close", n)
		}
		if s := m.Stats(); s.Kernels != 0 || s.Idle != 0 {
			t.Errorf("after Close: %+v", s)
		}
	})
	return m
}

func exec(t *testing.T, m *session.Manager, name, code string) sandbox.Result {
	t.Helper()
	res, err := m.Execute(t.Context(), sandbox.Request{ID: code, Session: name, Code: code})
	if err != nil {
		t.Fatalf("cell %q of %s: %v", code, name, err)
	}
	return res
}

// shows asserts the state of a session.
func shows(t *testing.T, m *session.Manager, name, want string) {
	t.Helper()
	res := exec(t, m, name, "show")
	got := strings.ReplaceAll(strings.TrimSpace(res.Stdout), "show ", "")
	if res.Status != sandbox.StatusOK || got != want {
		t.Errorf("session %s: got %q (%s %s), want %q", name, got, res.Status, res.Reason, want)
	}
}
