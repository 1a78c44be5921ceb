package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/chat"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
	"temper/internal/rollout"
	"temper/internal/tool/builtin"
	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/sandboxtest"
	"temper/sandbox/session"
	"temper/sandbox/status"
)

// notebook is a sandbox with sessions: the real owner of histories over fake
// kernels. It remembers what was asked for, and which sessions were closed.
type notebook struct {
	*session.Manager
	// before may disturb a call, or answer in its place with an error.
	before func(n *notebook) error
	// after may lose an answer.
	after func() error

	mu       sync.Mutex
	kernels  []*fakeKernel
	requests []sandbox.Request
	closed   []string
}

func newNotebook(t *testing.T) *notebook {
	t.Helper()
	n := &notebook{}
	admit := func(ctx context.Context, _ sandbox.Request, f func(context.Context, session.Start) error) error {
		return f(ctx, func(_ context.Context, req sandbox.Request) (session.Kernel, error) {
			k := &fakeKernel{state: []string{req.Fixture}, done: make(chan struct{})}
			n.mu.Lock()
			defer n.mu.Unlock()
			n.kernels = append(n.kernels, k)
			return k, nil
		})
	}
	n.Manager = session.New(&sandboxtest.Fake{}, admit, session.Config{})
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *notebook) Execute(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	n.mu.Lock()
	n.requests = append(n.requests, req)
	n.mu.Unlock()
	if n.before != nil {
		if err := n.before(n); err != nil {
			return sandbox.Result{}, err
		}
	}
	res, err := n.Manager.Execute(ctx, req)
	if err == nil && n.after != nil {
		if err := n.after(); err != nil {
			return sandbox.Result{}, err
		}
	}
	return res, err
}

func (n *notebook) CloseSession(_ context.Context, run, name string) (bool, error) {
	n.mu.Lock()
	n.closed = append(n.closed, run+"|"+name)
	n.mu.Unlock()
	return n.Drop(run, name), nil
}

// killAll ends every kernel, as the death of a node does.
func (n *notebook) killAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range n.kernels {
		k.Close()
	}
}

// fakeKernel is a kernel whose state is the list of words it was given, after the
// fixture. "show" prints it, "fail" raises, "stop" meets a limit, "exit" ends the
// process, and a word with an input is kept with it.
type fakeKernel struct {
	mu    sync.Mutex
	state []string
	spent bool
	once  sync.Once
	done  chan struct{}
}

func (k *fakeKernel) Done() <-chan struct{} { return k.done }
func (k *fakeKernel) Close()                { k.once.Do(func() { close(k.done) }) }
func (k *fakeKernel) Spent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.spent
}

func (k *fakeKernel) Replay(ctx context.Context, req sandbox.Request, _ time.Duration) (sandbox.Result, error) {
	return k.Run(ctx, req)
}

func (k *fakeKernel) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-k.done:
		return sandbox.Result{}, jail.ErrDied
	default:
	}
	res := sandbox.Result{ID: req.ID, Status: sandbox.StatusOK}
	switch req.Code {
	case "show":
		res.Stdout = strings.Join(k.state, " ")
	case "fail":
		res.Status, res.Error = sandbox.StatusError, &sandbox.PythonError{Type: "E", Message: fmt.Sprint(len(k.state))}
	case "stop", "exit":
		res.Status, k.spent = sandbox.StatusTimeLimit, true
		if req.Code == "exit" {
			res.Status, res.ExitCode = sandbox.StatusError, 3
		}
		k.Close()
		return res, nil
	case "hang":
		<-ctx.Done()
		k.Close()
		return sandbox.Result{}, ctx.Err()
	}
	k.state = append(k.state, strings.TrimSuffix(req.Code+"<"+req.Stdin, "<"))
	return res, nil
}

func inSession() limits {
	cfg := config()
	cfg.SessionTools = []string{builtin.Python}
	cfg.MaxCallsPerTurn = 0
	return cfg
}

// newSessionRunner is newRunnerWith on a sandbox that can close sessions.
func newSessionRunner(t testing.TB, cfg limits, f *chat.Format, engine *inferencetest.Script, n *notebook) *rollout.Runner {
	t.Helper()
	deps := cfg.deps(f, engine, n)
	deps.Sessions = n
	r, err := rollout.New(cfg.Config, deps)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func longSpec() rollout.Spec {
	s := spec()
	s.MaxTurns, s.MaxResponseTokens = 10, 1<<20
	s.Problem.Fixture = "f"
	return s
}

// responses are the answers to all calls of a trajectory, with their statuses.
func responses(tr rl.Trajectory) []string {
	var out []string
	for _, turn := range tr.Turns {
		for _, c := range turn.Calls {
			out = append(out, string(c.Status)+": "+c.Response)
		}
	}
	return out
}

// TestASessionKeepsWhatItsCallsDid, from turn to turn: what raised stays, what was
// stopped or ended the process leaves no trace, and each counts as it does without
// a session.
func TestASessionKeepsWhatItsCallsDid(t *testing.T) {
	f := newFormat(t)
	n := newNotebook(t)
	with := chat.RenderCall(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: "b", Input: "in"}.Arguments()})
	r := newSessionRunner(t, inSession(), f, says(f, call("a")+with, call("show")+call("fail"), call("stop"), call("show"), call("exit"), call("show"), answer("116")), n)
	got := run(t, r, longSpec())
	want := []string{
		"ok: (no output)", "ok: (no output)", "ok: f a b<in", "error: E: 4", "time_limit: TimeLimit: the program took too long",
		"ok: f a b<in show fail", "error: exit status 3", "ok: f a b<in show fail show",
	}
	if diff := cmp.Diff(responses(got), want); diff != "" {
		t.Errorf("responses: got -, want +\n%s", diff)
	}
	if calls, failed := got.ToolCounts(); calls != 8 || failed != 3 || got.Reward != 1 {
		t.Errorf("%d calls, %d failed, reward %v; want 8, 3, 1", calls, failed, got.Reward)
	}
	last := n.requests[len(n.requests)-1]
	if diff := cmp.Diff(last.History, []string{"a", "b", "show", "fail", "show"}); diff != "" || last.HistoryStdin[1] != "in" {
		t.Errorf("history (-got +want), inputs %q:\n%s", last.HistoryStdin, diff)
	}
	if first := n.requests[0]; first.History == nil || len(first.History) != 0 || first.Fixture != "f" || first.Profile != sandbox.ProfileNumeric || first.Limits != last.Limits {
		t.Errorf("the first call does not begin its session: %+v", first)
	}
	if want := []string{"run|" + last.Session}; !slices.Equal(n.closed, want) || n.Stats().Sessions != 0 {
		t.Errorf("closed %q, want %q; %d sessions are left", n.closed, want, n.Stats().Sessions)
	}
}

// TestTrajectoriesDoNotShareASession, and the fixture of each kernel runs once.
func TestTrajectoriesDoNotShareASession(t *testing.T) {
	f := newFormat(t)
	n := newNotebook(t)
	engine := &inferencetest.Script{Reply: func(req inference.Request) []int32 {
		text := []string{call(fmt.Sprint("v", req.Seed%1000)), call("show"), answer("1")}[min(2, len(f.ParseTurn(req.Tokens).Calls))]
		return append(f.Tokenizer().EncodeSpecial(text), f.Stop()[0])
	}}
	g, err := newSessionRunner(t, inSession(), f, engine, n).Group(t.Context(), longSpec(), 8)
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range g.Trajectories {
		want := []string{"ok: (no output)", fmt.Sprint("ok: f v", tr.Seed%1000)}
		if diff := cmp.Diff(responses(tr), want); diff != "" {
			t.Errorf("trajectory %d (-got +want):\n%s", tr.Rollout, diff)
		}
	}
	if len(n.kernels) != 8 || n.Stats().Sessions != 0 {
		t.Errorf("%d kernels for 8 trajectories, %d sessions are left", len(n.kernels), n.Stats().Sessions)
	}
}

// TestWithoutSessionsCallsAreAsEver pins a request and its id.
func TestWithoutSessionsCallsAreAsEver(t *testing.T) {
	f := newFormat(t)
	fake := &sandboxtest.Fake{}
	run(t, newRunner(t, f, says(f, call("print(1)"), call("print(2)"), answer("116")), fake), spec())
	want := []sandbox.Request{
		{ID: "run/train/1/2/chase1-1/0/0/0/70cfb33a", Run: "run", Code: "print(1)", Fixture: problem().Fixture, Limits: sandbox.Limits{Wall: 2 * time.Second, Memory: 1 << 28}},
		{ID: "run/train/1/2/chase1-1/0/1/0/28829c8f", Run: "run", Code: "print(2)", Fixture: problem().Fixture, Limits: sandbox.Limits{Wall: 2 * time.Second, Memory: 1 << 28}},
	}
	if diff := cmp.Diff(fake.Requests(), want); diff != "" {
		t.Errorf("requests (-got +want):\n%s", diff)
	}
}

// wordEngine says calls of words that depend on the trajectory's seed, then answers.
func wordEngine(f *chat.Format) *inferencetest.Script {
	words := []string{"a", "b", "show", "fail", "stop", "exit", "c"}
	return &inferencetest.Script{Reply: func(req inference.Request) []int32 {
		var text strings.Builder
		for i := range 1 + int(rl.Uniform(req.Seed, len(req.Tokens))*3) {
			word := words[int(rl.Uniform(req.Seed+uint64(i), len(req.Tokens)+1)*float32(len(words)))]
			text.WriteString(chat.RenderCall(chat.Call{Name: builtin.Python, Arguments: builtin.Program{Code: word, Input: strings.Repeat("i", i)}.Arguments()}))
		}
		return append(f.Tokenizer().EncodeSpecial(text.String()), f.Stop()[0])
	}}
}

// TestLossesOfKernelsAreInvisible: nodes that die, answers that are lost, sessions
// that are closed by somebody else, and overloads change no bit of a trajectory.
func TestLossesOfKernelsAreInvisible(t *testing.T) {
	f := newFormat(t)
	sample := func(t *testing.T, disturb func(n *notebook)) rl.Group {
		t.Helper()
		n := newNotebook(t)
		disturb(n)
		cfg := inSession()
		cfg.MaxAttempts = 100
		g, err := newSessionRunner(t, cfg, f, wordEngine(f), n).Group(t.Context(), longSpec(), 12)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	want := sample(t, func(*notebook) {})
	shown := 0
	for _, tr := range want.Trajectories {
		for _, r := range responses(tr) {
			if strings.HasPrefix(r, "ok: f ") {
				shown++
			}
		}
	}
	if shown < 20 {
		t.Fatalf("only %d calls show the state of their session", shown)
	}
	lost := 0
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 1))
			got := sample(t, func(n *notebook) {
				n.before = func(n *notebook) error {
					mu.Lock()
					defer mu.Unlock()
					switch rng.IntN(6) {
					case 0:
						n.killAll()
						lost++
					case 1:
						n.mu.Lock()
						old := n.requests[rng.IntN(len(n.requests))] // there is one: before is called behind it
						n.mu.Unlock()
						n.Drop(old.Run, old.Session)
						lost++
					case 2:
						return &sandbox.Overloaded{Detail: "for a test"}
					}
					return nil
				}
				n.after = func() error {
					mu.Lock()
					defer mu.Unlock()
					if rng.IntN(5) == 0 {
						return fmt.Errorf("%w: the answer was lost", sandbox.ErrUnavailable)
					}
					return nil
				}
			})
			times := clocks()
			if diff := cmp.Diff(got, want, times); diff != "" {
				t.Errorf("seed %d: a loss changed the trajectories:\n%s", seed, diff)
			}
		})
	}
	if lost < 50 {
		t.Errorf("only %d losses", lost)
	}
}

// TestAnotherAttemptBeginsAnew, although the first one left its session behind.
func TestAnotherAttemptBeginsAnew(t *testing.T) {
	f := newFormat(t)
	n := newNotebook(t)
	texts := []string{call("a"), call("show"), answer("116")}
	first := run(t, newRunnerWith(t, inSession(), f, says(f, texts...), n), longSpec())
	if n.Stats().Sessions != 1 {
		t.Fatalf("%d sessions are left without a closer, want 1", n.Stats().Sessions)
	}
	again := run(t, newRunnerWith(t, inSession(), f, says(f, texts...), n), longSpec())
	if diff := cmp.Diff(again, first, clocks()); diff != "" {
		t.Errorf("another attempt (-got +want):\n%s", diff)
	}
}

// TestCallsOfASessionAreNamedByWhatCameBefore: the answer to a program depends on
// the cells before it, and an executor remembers answers by their names.
func TestCallsOfASessionAreNamedByWhatCameBefore(t *testing.T) {
	f := newFormat(t)
	id := func(first chat.Call) string {
		n := newNotebook(t)
		got := run(t, newSessionRunner(t, inSession(), f, says(f, chat.RenderCall(first), call("show"), answer("116")), n), longSpec())
		return got.Turns[1].Calls[0].ID
	}
	seen := map[string]string{}
	for name, first := range map[string]chat.Call{
		"a": {Name: builtin.Python, Arguments: builtin.Program{Code: "a"}.Arguments()}, "b": {Name: builtin.Python, Arguments: builtin.Program{Code: "b"}.Arguments()},
		"a with an input": {Name: builtin.Python, Arguments: builtin.Program{Code: "a", Input: "1"}.Arguments()}, "a call that leaves no trace": {Name: builtin.Python, Arguments: builtin.Program{Code: "stop"}.Arguments()},
	} {
		call := id(first)
		if other, ok := seen[call]; ok {
			t.Errorf("after %s and after %s the call has the name %s", name, other, call)
		}
		seen[call] = name
	}
}

// TestASessionEndsWithItsTrajectory, whatever ended that.
func TestASessionEndsWithItsTrajectory(t *testing.T) {
	f := newFormat(t)
	for name, c := range map[string]struct {
		texts   []string
		disturb func(n *notebook, cancel context.CancelFunc)
		stop    rl.StopReason // none when there is no trajectory
		closed  int
	}{
		"answered":   {texts: []string{call("a"), answer("116")}, stop: rl.StopAnswered, closed: 1},
		"no call":    {texts: []string{answer("116")}, stop: rl.StopAnswered},
		"malformed":  {texts: []string{"<tool_call>{</tool_call>", answer("116")}, stop: rl.StopAnswered},
		"turn limit": {texts: []string{call("a"), call("a"), call("a")}, stop: rl.StopMaxTurns, closed: 1},
		"infra error": {
			texts: []string{call("a")}, stop: rl.StopInfraError, closed: 1,
			disturb: func(n *notebook, _ context.CancelFunc) {
				n.before = func(*notebook) error { return sandbox.ErrUnavailable }
			},
		},
		"cancelled": {
			texts: []string{call("a"), call("hang")}, closed: 1,
			disturb: func(_ *notebook, cancel context.CancelFunc) { time.AfterFunc(time.Second, cancel) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				n := newNotebook(t)
				if c.disturb != nil {
					c.disturb(n, cancel)
				}
				s := longSpec()
				s.MaxTurns = 3
				got, err := newSessionRunner(t, inSession(), f, says(f, c.texts...), n).Rollout(ctx, s)
				if (err != nil) != (c.stop == "") || got.StopReason != c.stop || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("stop %q, error %v; want %q", got.StopReason, err, c.stop)
				}
				if len(n.closed) != c.closed || n.Stats().Sessions != 0 {
					t.Errorf("closed %q, want %d; %d sessions are left", n.closed, c.closed, n.Stats().Sessions)
				}
			})
		})
	}
}

// TestASessionIsBounded, by the rollout itself: nodes and gateways could differ.
func TestASessionIsBounded(t *testing.T) {
	f := newFormat(t)
	for name, c := range map[string]struct {
		codes []string
		ran   int
		want  string
	}{
		"calls": {slices.Repeat([]string{"a"}, 257), 256, "Refused: the session has run 256 calls, the limit"},
		"bytes": {[]string{strings.Repeat("x", 1<<19), "a", strings.Repeat("y", 1<<19), "b"}, 3, "Refused: the programs of the session are above the limit of 1048576 bytes"},
	} {
		var text strings.Builder
		for _, code := range c.codes {
			text.WriteString(call(code))
		}
		n := newNotebook(t)
		s := longSpec()
		s.MaxResponseTokens = 1 << 23
		engine := says(f, text.String(), answer("116"))
		engine.Context = 1 << 24
		cfg := inSession()
		cfg.MaxToolResponseChars = 0
		got := run(t, newSessionRunner(t, cfg, f, engine, n), s)
		var refused []rl.ToolCall
		for _, call := range got.Turns[0].Calls {
			if call.Status == status.Refused {
				refused = append(refused, call)
			}
		}
		if len(refused) != 1 || refused[0].Response != c.want || refused[0].ID != "" || len(n.requests) != c.ran {
			t.Errorf("%s: %d refused of %d that ran, want 1 of %d: %.200v", name, len(refused), len(n.requests), c.ran, refused)
		}
	}
}

// TestToolsWithAndWithoutASession stand beside each other.
func TestToolsWithAndWithoutASession(t *testing.T) {
	f := rstar2(t, builtin.ExecutePython, builtin.Python)
	turn := rstarCall(builtin.Python, `{"code": "a"}`) + rstarCall(builtin.ExecutePython, `{"code": "b", "input": ""}`) + rstarCall(builtin.Python, `{"code": "show"}`)
	n := newNotebook(t)
	got := run(t, newSessionRunner(t, inSession(), f, says(f, turn, `</reason><answer>\boxed{116}</answer>`), n), longSpec())
	if diff := cmp.Diff(responses(got), []string{"ok: (no output)", "ok: (no output)", "ok: f a"}); diff != "" {
		t.Errorf("responses (-got +want):\n%s", diff)
	}
	if other := n.requests[1]; other.Session != "" || other.History != nil || other.Profile != sandbox.ProfileAuto {
		t.Errorf("the call of the tool without a session: %+v", other)
	}
}

// TestALostSessionIsNoFaultOfItsProgram: the trajectory makes its session again under
// another name, with the cells it has run. Where that is lost too, it ends as a failure of
// the sandbox.
func TestALostSessionIsNoFaultOfItsProgram(t *testing.T) {
	f := newFormat(t)
	texts := []string{call("a"), call("b"), call("show"), answer("116")}
	for losses, want := range map[int]rl.StopReason{1: rl.StopAnswered, 2: rl.StopInfraError} {
		n := newNotebook(t)
		lost := 0
		n.before = func(n *notebook) error {
			if len(n.requests) >= 3 && lost < losses {
				lost++
				return fmt.Errorf("%w: for a test", sandbox.ErrSessionLost)
			}
			return nil
		}
		got := run(t, newSessionRunner(t, inSession(), f, says(f, texts...), n), longSpec())
		if got.StopReason != want {
			t.Errorf("%d losses: stop %q (%s), want %q", losses, got.StopReason, got.Err, want)
		}
		first, last := n.requests[0], n.requests[len(n.requests)-1]
		if first.Session == last.Session || len(last.HistoryTimes) != 2 || *last.SessionCells != 2 || first.ID == last.ID {
			t.Errorf("%d losses: the last request is %+v", losses, last)
		}
		if want == rl.StopAnswered && responses(got)[2] != "ok: f a b" {
			t.Errorf("after a loss: %q", responses(got))
		}
	}
}
