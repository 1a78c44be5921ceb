package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/sandbox"
	"temper/sandbox/gateway"
	"temper/sandbox/httpapi"
)

// fleet is a network of fake nodes by address.
type fleet struct {
	mu    sync.Mutex
	nodes map[string]*fakeNode
	prev  []*fakeNode // that were at an address before
}

// fakeNode runs programs that are durations to sleep, answering with the input.
type fakeNode struct {
	slots  int
	answer func(context.Context, sandbox.Request) (sandbox.Result, error) // instead of the echo

	mu       sync.Mutex
	load     httpapi.Load
	inFlight int
	most     int
	seen     []sandbox.Request
	down     bool
	links    []*fakeLink
	closed   []string // sessions
}

// fakeLink is one connection to a fakeNode.
type fakeLink struct {
	node *fakeNode
	done chan struct{}
	mu   sync.Mutex
	err  error
}

var errBroken = fmt.Errorf("%w: connection reset", sandbox.ErrUnavailable)

func (f *fleet) add(address string, slots int) *fakeNode {
	n := &fakeNode{slots: slots, load: httpapi.Load{Slots: slots, Queue: 16}}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes == nil {
		f.nodes = make(map[string]*fakeNode)
	}
	if old := f.nodes[address]; old != nil {
		f.prev = append(f.prev, old)
	}
	f.nodes[address] = n
	return n
}

func (f *fleet) dial(_ context.Context, address string) (gateway.Link, error) {
	f.mu.Lock()
	n := f.nodes[address]
	f.mu.Unlock()
	if n == nil {
		return nil, errors.New("no such host")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.New("connection refused")
	}
	l := &fakeLink{node: n, done: make(chan struct{})}
	n.links = append(n.links, l)
	return l, nil
}

// kill ends all connections of n; it does not come back before revive.
func (n *fakeNode) kill() {
	n.mu.Lock()
	n.down = true
	links := n.links
	n.links = nil
	n.mu.Unlock()
	for _, l := range links {
		l.Close()
	}
}

func (n *fakeNode) revive() {
	n.mu.Lock()
	n.down = false
	n.mu.Unlock()
}

func (n *fakeNode) announce(change func(*httpapi.Load)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.load)
}

func (n *fakeNode) running() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.inFlight
}

func (n *fakeNode) mostInFlight() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.most
}

// ran returns the code, or another part, of what was executed so far.
func (n *fakeNode) ran(part func(sandbox.Request) string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]string, len(n.seen))
	for i, r := range n.seen {
		out[i] = part(r)
	}
	return out
}

// byID returns the ID that the caller gave.
func byID(r sandbox.Request) string {
	return strings.TrimPrefix(r.ID, fmt.Sprintf("%d:%s:", len(r.Run), r.Run))
}
func byInputs(r sandbox.Request) string  { return fmt.Sprintf("%q", r.HistoryStdin) }
func byHistory(r sandbox.Request) string { return strings.Join(r.History, ",") }

func (l *fakeLink) Load() httpapi.Load {
	l.node.mu.Lock()
	defer l.node.mu.Unlock()
	return l.node.load
}

func (l *fakeLink) Done() <-chan struct{} { return l.done }

func (l *fakeLink) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *fakeLink) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = errBroken
		close(l.done)
	}
}

func (l *fakeLink) CloseSession(_ context.Context, run, name string) (bool, error) {
	l.node.mu.Lock()
	defer l.node.mu.Unlock()
	l.node.closed = append(l.node.closed, run+"|"+name)
	return true, nil
}

func (l *fakeLink) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	if err := l.Err(); err != nil {
		return sandbox.Result{}, err
	}
	n := l.node
	n.mu.Lock()
	n.seen = append(n.seen, req)
	n.inFlight++
	n.most = max(n.most, n.inFlight)
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		n.inFlight--
		n.mu.Unlock()
	}()
	if n.answer != nil {
		return n.answer(ctx, req)
	}
	return l.sleep(ctx, req)
}

func (l *fakeLink) sleep(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	d, err := time.ParseDuration(req.Code)
	if err != nil {
		d = time.Millisecond
	}
	select {
	case <-time.After(d):
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: req.Stdin}, nil
	case <-l.done:
		return sandbox.Result{}, l.Err()
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
}

var _ sandbox.SessionCloser = (*fakeLink)(nil)

// open returns a gateway over the nodes of f that ends with the test.
func open(t *testing.T, f *fleet, cfg gateway.Config) *gateway.Gateway {
	t.Helper()
	cfg.Dial = f.dial
	g, err := gateway.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// must executes a call that has to be answered with its own input.
func must(t *testing.T, g sandbox.Executor, req sandbox.Request) sandbox.Result {
	t.Helper()
	req.Stdin = "in" + req.ID
	res, err := g.Execute(t.Context(), req)
	if err != nil || res.ID != req.ID || res.Stdout != req.Stdin {
		t.Errorf("call %s: got %+v, %v", req.ID, res, err)
	}
	return res
}

// join and leave list nodes as a node does.
func join(t *testing.T, g *gateway.Gateway, address string) int {
	t.Helper()
	w := httptest.NewRecorder()
	body := strings.NewReader(fmt.Sprintf(`{"address":%q}`, address))
	g.Routes().ServeHTTP(w, httptest.NewRequest(http.MethodPost, gateway.PathNodes, body))
	return w.Code
}

func leave(t *testing.T, g *gateway.Gateway, address string) int {
	t.Helper()
	w := httptest.NewRecorder()
	g.Routes().ServeHTTP(w, httptest.NewRequest(http.MethodDelete, gateway.PathNodes+"/"+address, nil))
	return w.Code
}

// echo answers at once.
func echo(_ context.Context, req sandbox.Request) (sandbox.Result, error) {
	return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: req.Stdin}, nil
}
