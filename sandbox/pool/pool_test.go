package pool_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"temper/sandbox"
	"temper/sandbox/jail"
	"temper/sandbox/pool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakes starts interpreters whose programs are interpreted by behave.
type fakes struct {
	behave func(ctx context.Context, in *fake, req sandbox.Request) (sandbox.Result, error)
	fail   atomic.Int32 // that many starts fail

	mu  sync.Mutex
	all []*fake
}

// fake is an interpreter that ends when die is called.
type fake struct {
	done chan struct{}
	once sync.Once
	ran  atomic.Int32

	closed atomic.Bool
}

func (f *fake) die()                  { f.once.Do(func() { close(f.done) }) }
func (f *fake) Done() <-chan struct{} { return f.done }
func (f *fake) Close()                { f.closed.Store(true); f.die() }

type bound struct {
	*fake
	owner *fakes
}

func (b bound) Run(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
	select {
	case <-b.done:
		return sandbox.Result{}, jail.ErrDied
	default:
	}
	b.ran.Add(1)
	return b.owner.behave(ctx, b.fake, req)
}

func (f *fakes) start(context.Context) (pool.Interpreter, error) {
	if f.fail.Add(-1) >= 0 {
		return nil, errors.New("no interpreter today")
	}
	in := &fake{done: make(chan struct{})}
	f.mu.Lock()
	f.all = append(f.all, in)
	f.mu.Unlock()
	return bound{in, f}, nil
}

func (f *fakes) started() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// behave understands five programs.
func behave(ctx context.Context, in *fake, req sandbox.Request) (sandbox.Result, error) {
	switch req.Code {
	case "sleep":
		return wait(ctx, in, req, time.Second)
	case "poison":
		in.die()
		return sandbox.Result{}, jail.ErrDied
	case "starve":
		return sandbox.Result{}, fmt.Errorf("%w: no core", jail.ErrStarved)
	case "broken":
		return sandbox.Result{}, errors.New("no more pipes")
	default:
		return wait(ctx, in, req, time.Millisecond)
	}
}

// wait is a program that sleeps.
func wait(ctx context.Context, in *fake, req sandbox.Request, d time.Duration) (sandbox.Result, error) {
	select {
	case <-time.After(d):
		return sandbox.Result{ID: req.ID, Status: sandbox.StatusOK, Stdout: req.Stdin}, nil
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	case <-in.done:
		return sandbox.Result{}, fmt.Errorf("%w: killed", jail.ErrDied)
	}
}

func newPool(t *testing.T, f *fakes, cfg pool.Config) *pool.Pool {
	t.Helper()
	if f.behave == nil {
		f.behave = behave
	}
	p, err := pool.New(t.Context(), cfg, f.start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestADeadInterpreterIsClosed: it may hold more than the process that died.
func TestADeadInterpreterIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := newPool(t, f, pool.Config{Zygotes: 1})
		f.killAll()
		if _, err := p.Execute(t.Context(), sandbox.Request{}); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.all[0].closed.Load() || f.all[1].closed.Load() {
			t.Error("want the first interpreter closed, and the second alone left")
		}
	})
}

func TestEveryCallGetsItsOwnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &fakes{}, pool.Config{Zygotes: 3, Slots: 8, Queue: 1000})
		var calls sync.WaitGroup
		for i := range 500 {
			calls.Go(func() {
				id := fmt.Sprint(i)
				res, err := p.Execute(t.Context(), sandbox.Request{ID: id, Stdin: "in" + id})
				if err != nil || res.ID != id || res.Stdout != "in"+id {
					t.Errorf("call %s: got %+v, %v", id, res, err)
				}
			})
		}
		calls.Wait()
		if s := p.Stats(); s.Executed != 500 || s.Busy != 0 || s.Waiting != 0 {
			t.Errorf("stats %+v after 500 calls", s)
		}
	})
}

// TestStarvedCallIsUnavailable when it starves a second time; its interpreter lives on.
func TestStarvedCallIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := newPool(t, f, pool.Config{Zygotes: 1})
		_, err := p.Execute(t.Context(), sandbox.Request{Code: "starve"})
		if !errors.Is(err, sandbox.ErrUnavailable) || !errors.Is(err, jail.ErrStarved) {
			t.Errorf("got error %v", err)
		}
		if f.started() != 1 || f.all[0].ran.Load() != 2 {
			t.Errorf("%d interpreters, the first ran %d programs", f.started(), f.all[0].ran.Load())
		}
	})
}

func TestFullQueueRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &fakes{}, pool.Config{Zygotes: 1, Slots: 2, Queue: 3})
		var refused atomic.Int32
		var calls sync.WaitGroup
		start := time.Now()
		for range 10 {
			calls.Go(func() {
				_, err := p.Execute(t.Context(), sandbox.Request{Code: "sleep"})
				if errors.Is(err, sandbox.ErrOverloaded) {
					refused.Add(1)
					if took := time.Since(start); took > 0 {
						t.Errorf("refused after %v", took)
					}
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if got := refused.Load(); got != 5 {
			t.Errorf("%d of 10 calls were refused, want 5 (2 slots, 3 in the queue)", got)
		}
	})
}

// TestRefusalSaysWhenToComeBack: an eighth of 80 waiting calls is 10 programs.
func TestRefusalSaysWhenToComeBack(t *testing.T) {
	advice := func(t *testing.T, code string, before, warmUp time.Duration) (got time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			p := newPool(t, &fakes{}, pool.Config{Zygotes: 1, Slots: 4, Queue: 80})
			ctx, cancel := context.WithCancel(t.Context())
			var calls sync.WaitGroup
			load := func(callers int) {
				for range callers {
					calls.Go(func() {
						for ctx.Err() == nil {
							_, _ = p.Execute(ctx, sandbox.Request{Code: code})
						}
					})
				}
			}
			load(4)
			time.Sleep(before)
			load(80)
			time.Sleep(warmUp)
			_, err := p.Execute(ctx, sandbox.Request{})
			got = sandbox.RetryAfter(err, -1)
			cancel()
			calls.Wait()
		})
		return got
	}
	for _, c := range []struct {
		name, code     string
		before, warmUp time.Duration
		least, most    time.Duration
	}{
		{"nothing has ended", "sleep", 1, time.Millisecond, time.Second, time.Second},
		{"4 programs a second", "sleep", 10500 * time.Millisecond, 1, 2 * time.Second, 3 * time.Second},
		{"4,000 programs a second", "", time.Second, 1500 * time.Microsecond, 50 * time.Millisecond, 50 * time.Millisecond},
	} {
		if got := advice(t, c.code, c.before, c.warmUp); got < c.least || got > c.most {
			t.Errorf("%s: advice of %v, want %v to %v", c.name, got, c.least, c.most)
		}
	}
}

func TestQueueTimeIsNotWallTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &fakes{}, pool.Config{Zygotes: 1, Slots: 1, Queue: 1})
		var calls sync.WaitGroup
		var queued atomic.Int64
		for range 2 {
			calls.Go(func() {
				res, err := p.Execute(t.Context(), sandbox.Request{Code: "sleep"})
				if err != nil {
					t.Error(err)
				}
				queued.Add(int64(res.Usage.Queue))
			})
		}
		calls.Wait()
		if got := time.Duration(queued.Load()); got != time.Second {
			t.Errorf("queued for %v in all, want 1s", got)
		}
	})
}

func TestCancelledCallFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &fakes{}, pool.Config{Zygotes: 1, Slots: 1, Queue: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var calls sync.WaitGroup
		for range 2 { // one runs, one waits; both are given up
			calls.Go(func() {
				if _, err := p.Execute(ctx, sandbox.Request{Code: "sleep"}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
				}
			})
		}
		calls.Wait()
		start := time.Now()
		if _, err := p.Execute(t.Context(), sandbox.Request{}); err != nil {
			t.Errorf("next call: %v", err)
		}
		if took := time.Since(start); took > 2*time.Millisecond {
			t.Errorf("next call took %v: the slot was not free", took)
		}
	})
}

func TestCallsSurviveTheDeathOfTheirInterpreter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := newPool(t, f, pool.Config{Zygotes: 2, Slots: 64, Computing: 64})
		var calls sync.WaitGroup
		for i := range 50 {
			calls.Go(func() {
				id := fmt.Sprint(i)
				res, err := p.Execute(t.Context(), sandbox.Request{ID: id, Code: "sleep", Stdin: id})
				if err != nil || res.Stdout != id {
					t.Errorf("call %s: got %+v, %v", id, res, err)
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		f.all[0].die()
		f.all[1].die()
		calls.Wait()
		if s := p.Stats(); s.Deaths != 2 || s.Zygotes != 2 || s.Executed != 50 {
			t.Errorf("stats %+v, want 2 deaths, 2 zygotes, 50 executed", s)
		}
	})
}

func TestPoisonCallIsAnsweredAndOthersAreNotBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := newPool(t, f, pool.Config{Zygotes: 1, Slots: 8})
		var calls sync.WaitGroup
		calls.Go(func() {
			res, err := p.Execute(t.Context(), sandbox.Request{ID: "p", Code: "poison"})
			if err != nil || res.Status != sandbox.StatusKilled || res.ID != "p" || res.Reason == "" {
				t.Errorf("poison: got %+v, %v, want killed with a reason", res, err)
			}
		})
		calls.Go(func() {
			res, err := p.Execute(t.Context(), sandbox.Request{Code: "sleep"})
			if err != nil || res.Status != sandbox.StatusOK {
				t.Errorf("neighbour: got %+v, %v, want ok", res, err)
			}
		})
		calls.Wait()
	})
}

func TestRestartBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := newPool(t, f, pool.Config{Zygotes: 1})
		f.fail.Store(4)
		start := time.Now()
		f.all[0].die()
		if _, err := p.Execute(t.Context(), sandbox.Request{}); err != nil {
			t.Fatal(err)
		}
		// 50 + 100 + 200 + 400 + 800 ms, and 1 ms of work.
		if took := time.Since(start); took != 1551*time.Millisecond {
			t.Errorf("answered after %v, want 1.551s", took)
		}
	})
}

func TestNoInterpreterIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{}
		p := newPool(t, f, pool.Config{Zygotes: 1})
		f.fail.Store(1 << 20)
		f.all[0].die()
		synctest.Wait()
		if _, err := p.Execute(t.Context(), sandbox.Request{}); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("got error %v, want %v", err, sandbox.ErrUnavailable)
		}
		if _, err := p.Execute(t.Context(), sandbox.Request{Code: "broken"}); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("got error %v, want %v", err, sandbox.ErrUnavailable)
		}
	})
}

func TestNewFailsWhenAnInterpreterDoesNotStart(t *testing.T) {
	f := &fakes{behave: behave}
	f.fail.Store(1)
	if _, err := pool.New(t.Context(), pool.Config{Zygotes: 3}, f.start); err == nil {
		t.Error("New succeeded without one of its interpreters")
	}
	for _, in := range f.all {
		select {
		case <-in.done:
		default:
			t.Error("an interpreter was left running")
		}
	}
}

func TestCloseDrainsThenKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			patience time.Duration
			closeErr error
			callErr  error
		}{
			{2 * time.Second, nil, nil},
			{time.Millisecond, context.DeadlineExceeded, sandbox.ErrUnavailable},
		} {
			f := &fakes{behave: behave}
			p, err := pool.New(t.Context(), pool.Config{Zygotes: 2}, f.start)
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				_, err := p.Execute(t.Context(), sandbox.Request{Code: "sleep"})
				got <- err
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), c.patience)
			if err := p.Close(ctx); !errors.Is(err, c.closeErr) {
				t.Errorf("Close with %v: got %v, want %v", c.patience, err, c.closeErr)
			}
			cancel()
			if err := <-got; !errors.Is(err, c.callErr) {
				t.Errorf("call during Close with %v: got %v, want %v", c.patience, err, c.callErr)
			}
			if _, err := p.Execute(t.Context(), sandbox.Request{}); !errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("after Close: got %v, want %v", err, sandbox.ErrUnavailable)
			}
			if f.started() != 2 {
				t.Errorf("%d interpreters were started, want 2", f.started())
			}
		}
	})
}
