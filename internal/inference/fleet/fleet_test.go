package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/inference/fleet"
	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
)

func TestFleetKeepsTheContract(t *testing.T) {
	inferencetest.Run(t, func(t *testing.T) inferencetest.Subject {
		engines := []*fake{newFake(20_000), newFake(5000), newFake(9000)}
		for _, e := range engines {
			e.pace = 100 * time.Microsecond
		}
		return inferencetest.Subject{Engine: greedy{released{newFleet(t, engines...), t}}, Prompt: []int32{1, 2, 3, 4, 5}, Vocab: vocab}
	})
}

// greedy gives requests at temperature 0 one seed: the fakes know no temperature.
type greedy struct{ inference.Engine }

func (g greedy) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	if req.Temperature == 0 {
		req.Seed = 0
	}
	return g.Engine.Generate(ctx, req)
}

// released releases sessions at the end of a test, as rollouts do.
type released struct {
	*fleet.Fleet
	t *testing.T
}

func (r released) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	r.t.Cleanup(func() { r.Release(req.Session) })
	return r.Fleet.Generate(ctx, req)
}

// play runs a trajectory of several turns and compares each with an engine's alone.
func play(ctx context.Context, f *fleet.Fleet, session string, seed uint64, turns, n int) error {
	defer f.Release(session)
	tokens := []int32{1, 2, 3}
	for turn := range turns {
		req := request(session, seed, tokens, n)
		gen, err := f.Generate(ctx, req)
		if err != nil {
			return fmt.Errorf("%s, turn %d: %w", session, turn, err)
		}
		if diff := cmp.Diff(alone(req, 1), gen); diff != "" {
			return fmt.Errorf("%s, turn %d differs from an engine alone (-want +got):\n%s", session, turn, diff)
		}
		tokens = slices.Concat(tokens, gen.Tokens, []int32{9, 9})
		time.Sleep(20 * time.Millisecond) // its tool
	}
	return nil
}

// playAll runs many trajectories at once, announced as rollouts announce them.
func playAll(t *testing.T, f *fleet.Fleet, name string, count int) *sync.WaitGroup {
	t.Helper()
	var list []inference.Trajectory
	for i := range count {
		list = append(list, inference.Trajectory{Session: fmt.Sprint(name, i), Run: "r", Problem: fmt.Sprint(i / 8), Prompt: 3, Limit: 1000})
	}
	if err := f.Begin(t.Context(), list); err != nil {
		t.Error(err)
	}
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			if err := play(t.Context(), f, fmt.Sprint(name, i), uint64(i), 1+i%4, 20+i%7*30); err != nil {
				t.Error(err)
			}
		})
	}
	return &wg
}

func TestTrajectoriesSpreadOverMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engines := []*fake{newFake(4000), newFake(4000), newFake(4000)}
		f := newFleet(t, engines...)
		playAll(t, f, "s", 100).Wait()
		for i, e := range engines {
			if e.turns() < 20 {
				t.Errorf("member %d served %d turns, want a fair share", i, e.turns())
			}
		}
		if st := f.Stats(); st.Finished != 100 || st.Cancelled != 0 {
			t.Errorf("%+v, want 100 finished: their lengths teach", st)
		}
	})
}

func TestDeathInMidTurnCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engines := []*fake{newFake(50_000), newFake(50_000)}
		f := newFleet(t, engines...)
		wg := playAll(t, f, "s", 64)
		time.Sleep(50 * time.Millisecond)
		engines[0].die()
		wg.Wait()
		if got := f.Serving(); !slices.Equal(got, []string{"m1"}) {
			t.Errorf("%q serve, want m1 alone", got)
		}
		engines[0].revive()
		time.Sleep(3 * time.Second)
		if engines[0].Version() != 1 || len(f.Serving()) != 2 {
			t.Errorf("the member came back with version %d, serving %q; want version 1 loaded again", engines[0].Version(), f.Serving())
		}
		served := engines[0].turns()
		playAll(t, f, "again", 64).Wait()
		if engines[0].turns() == served {
			t.Error("a member that came back was given nothing")
		}
	})
}

func TestAllMembersDieAndOneComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFake(50_000)
		f := newFleet(t, e)
		wg := playAll(t, f, "s", 16)
		time.Sleep(50 * time.Millisecond)
		e.die()
		time.Sleep(time.Minute)
		e.revive()
		wg.Wait()
	})
}

func TestMembersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, newFake(3000))
		wg := playAll(t, f, "s", 64)
		time.Sleep(30 * time.Millisecond)
		for i := range 4 {
			if err := f.Join(fleet.Member{Name: fmt.Sprint("new", i), Engine: newFake(3000)}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(60 * time.Millisecond)
		if got := f.Serving(); len(got) != 5 {
			t.Errorf("%q serve, want 5", got)
		}
		if err := f.Leave("m0"); err != nil {
			t.Error(err)
		}
		if err := f.Drain(t.Context(), "new1"); err != nil {
			t.Error(err)
		}
		if got := f.Serving(); !slices.Equal(got, []string{"new0", "new2", "new3"}) {
			t.Errorf("%q serve", got)
		}
		wg.Wait()
		for _, err := range []error{f.Leave("m0"), f.Drain(t.Context(), "new1")} {
			if !errors.Is(err, fleet.ErrUnknown) {
				t.Errorf("error %v for a member that is gone, want ErrUnknown", err)
			}
		}
	})
}

func TestMemberThatDrainsByItselfComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engines := []*fake{newFake(50_000), newFake(50_000)}
		f := newFleet(t, engines...)
		wg := playAll(t, f, "s", 16)
		engines[0].set(func(e *fake) { e.draining = true })
		wg.Wait()
		time.Sleep(2 * time.Second)
		if got := f.Serving(); !slices.Equal(got, []string{"m1"}) {
			t.Errorf("%q serve, want m1 alone", got)
		}
		engines[0].set(func(e *fake) { e.draining = false })
		time.Sleep(2 * time.Second)
		if got := f.Serving(); len(got) != 2 {
			t.Errorf("%q serve, want both", got)
		}
	})
}

func TestMembersThatLieAreLeftOut(t *testing.T) {
	for name, lie := range map[string]func(*inference.Status){
		"no capacity":          func(s *inference.Status) { s.Capacity = 0 },
		"negative capacity":    func(s *inference.Status) { s.Capacity = -5 },
		"negative use":         func(s *inference.Status) { s.Used = -1 },
		"another version":      func(s *inference.Status) { s.Version = 7 },
		"tokens from nowhere":  func(s *inference.Status) { s.Tokens = math.MaxInt64 },
		"tokens that are lost": func(s *inference.Status) { s.Tokens = -3 },
		"no context":           func(s *inference.Status) { s.MaxContext = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				engines := []*fake{newFake(50_000), newFake(50_000)}
				f := newFleet(t, engines...)
				time.Sleep(100 * time.Millisecond)
				wg := playAll(t, f, "s", 32)
				engines[0].set(func(e *fake) { e.lie = lie })
				time.Sleep(1100 * time.Millisecond)
				if got := f.Serving(); !slices.Equal(got, []string{"m1"}) {
					t.Errorf("%q serve, want m1 alone", got)
				}
				wg.Wait()
				engines[0].set(func(e *fake) { e.lie = nil })
				time.Sleep(2 * time.Second)
				if got := f.Serving(); len(got) != 2 {
					t.Errorf("%q serve, want both", got)
				}
			})
		})
	}
}

func TestGarbageIsNotTaken(t *testing.T) {
	for name, spoil := range map[string]func(*inference.Generation) error{
		"too many tokens": func(g *inference.Generation) error {
			g.Tokens, g.Logprobs = append(g.Tokens, make([]int32, 999)...), append(g.Logprobs, make([]float32, 999)...)
			return nil
		},
		"logprobs missing": func(g *inference.Generation) error { g.Logprobs = g.Logprobs[1:]; return nil },
		"NaN":              func(g *inference.Generation) error { g.Logprobs[0] = float32(math.NaN()); return nil },
		"wrong version":    func(g *inference.Generation) error { g.Version = 0; return nil },
		"unknown finish":   func(g *inference.Generation) error { g.Finish = "whatever"; return nil },
		"nothing":          func(g *inference.Generation) error { g.Tokens, g.Logprobs = nil, nil; return nil },
		"negative token":   func(g *inference.Generation) error { g.Tokens[0] = -1; return nil },
		"past the end":     func(g *inference.Generation) error { g.Tokens[0] = endToken; return nil },
		"short by length": func(g *inference.Generation) error {
			g.Tokens, g.Logprobs, g.Finish = g.Tokens[:1], g.Logprobs[:1], rl.FinishLength
			return nil
		},
		"given back, empty": func(g *inference.Generation) error { *g = inference.Generation{Finish: rl.FinishAbort}; return nil },
		"given back, half": func(g *inference.Generation) error {
			n := len(g.Tokens) / 2
			g.Tokens, g.Logprobs, g.Finish = g.Tokens[:n], g.Logprobs[:n], rl.FinishAbort
			return nil
		},
		"overloaded": func(*inference.Generation) error { return inference.ErrOverloaded },
		"stale":      func(*inference.Generation) error { return inference.ErrStaleVersion },
		"error":      func(*inference.Generation) error { return errors.New("500") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newFake(50_000)
				f := newFleet(t, e)
				e.set(func(e *fake) { e.spoil = spoil })
				if err := play(t.Context(), f, "s", 3, 2, 100); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestARequestThatNobodyAnswersEnds: a request that breaks each engine is given back.
func TestARequestThatNobodyAnswersEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &failing{fake: newFake(50_000)}
		f := newFleet(t)
		if err := f.Join(fleet.Member{Name: "m", Engine: broken}); err != nil {
			t.Fatal(err)
		}
		if err := f.Load(t.Context(), blob.Ref{}, 1); err != nil {
			t.Fatal(err)
		}
		_, err := f.Generate(t.Context(), request("", 1, []int32{1}, 10))
		if err == nil || !strings.Contains(err.Error(), `16 attempts failed, the last one on member "m"`) {
			t.Errorf("error %v", err)
		}
	})
}

type failing struct{ *fake }

func (*failing) Generate(context.Context, inference.Request) (inference.Generation, error) {
	return inference.Generation{}, errors.New("it always fails")
}

func TestTooLargeIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, newFake(1000), newFake(1500))
		if _, err := f.Generate(t.Context(), request("s", 1, make([]int32, 100), 1401)); !errors.Is(err, inference.ErrTooLarge) {
			t.Errorf("error %v for more than any member holds, want ErrTooLarge", err)
		}
		if _, err := f.Generate(t.Context(), request("", 1, make([]int32, 100), context_)); !errors.Is(err, inference.ErrTooLarge) {
			t.Errorf("error %v for more than the context, want ErrTooLarge", err)
		}
		err := f.Begin(t.Context(), []inference.Trajectory{{Session: "a", Prompt: 10, Limit: 10}, {Session: "b", Prompt: 10, Limit: 2000}})
		if !errors.Is(err, inference.ErrTooLarge) {
			t.Errorf("error %v, want ErrTooLarge for all", err)
		}
		if err := play(t.Context(), f, "s", 1, 1, 1400); err != nil {
			t.Error(err)
		}
	})
}

func TestTwoMembersUnderOneNameAreRefused(t *testing.T) {
	f := newFleet(t, newFake(1000))
	if err := f.Join(fleet.Member{Name: "m0", Engine: newFake(1000)}); !errors.Is(err, fleet.ErrDuplicate) {
		t.Errorf("error %v, want ErrDuplicate", err)
	}
}

func TestRequestsWithoutASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, newFake(2000), newFake(2000))
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				req := request("", uint64(i), []int32{1, 2}, 50)
				req.Version = -1
				gen, err := f.Generate(t.Context(), req)
				if diff := cmp.Diff(alone(req, 1), gen); err != nil || diff != "" {
					t.Errorf("%v\n%s", err, diff)
				}
			})
		}
		wg.Wait()
	})
}

func TestOneSessionTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, newFake(20_000))
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				req := request("s", 5, []int32{1, 2}, 50)
				gen, err := f.Generate(t.Context(), req)
				if diff := cmp.Diff(alone(req, 1), gen); err != nil || diff != "" {
					t.Errorf("%v\n%s", err, diff)
				}
			})
		}
		wg.Wait()
		f.Release("s")
	})
}

func TestCancelledRequestsReserveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, newFake(1500))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				session := fmt.Sprint(i)
				if _, err := f.Generate(ctx, request(session, uint64(i), []int32{1}, 1000)); !errors.Is(err, context.DeadlineExceeded) && err != nil {
					t.Error(err)
				}
				if i%2 == 0 { // the others are forgotten while they wait
					f.Release(session)
				} else {
					defer f.Release(session)
					if err := play(t.Context(), f, session, uint64(i), 2, 40); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestLoadLeavesOutWhatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engines := []*fake{newFake(5000), newFake(5000)}
		f := newFleet(t, engines...)
		engines[0].set(func(e *fake) { e.loadErr = errors.New("disk full") })
		if err := f.Load(t.Context(), blob.Ref{}, 2); err != nil {
			t.Fatal(err)
		}
		if got := f.Serving(); !slices.Equal(got, []string{"m1"}) || f.Version() != 2 {
			t.Errorf("%q serve version %d, want m1 alone, version 2", got, f.Version())
		}
		if _, err := f.Generate(t.Context(), request("", 1, []int32{1}, 5)); !errors.Is(err, inference.ErrStaleVersion) {
			t.Errorf("error %v for the old version, want ErrStaleVersion", err)
		}
		engines[1].set(func(e *fake) { e.loadErr = errors.New("disk full, too") })
		err := f.Load(t.Context(), blob.Ref{}, 3)
		if err == nil || !strings.Contains(err.Error(), "disk full, too") {
			t.Errorf("error %v, want that of the last member", err)
		}
		engines[0].set(func(e *fake) { e.loadErr = nil })
		if err := f.Load(t.Context(), blob.Ref{}, 3); err != nil || f.Version() != 3 {
			t.Errorf("error %v, version %d, want 3", err, f.Version())
		}
	})
}

// stopped is a member whose process stands still: what it is asked ends with its context alone.
type stopped struct {
	*fake
	still   atomic.Bool
	loading atomic.Pointer[func()] // is called at each load; nil for nothing
}

func (s *stopped) Load(ctx context.Context, ref blob.Ref, version int64) error {
	if loading := s.loading.Load(); loading != nil {
		(*loading)()
	}
	if s.still.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.fake.Load(ctx, ref, version)
}

func (s *stopped) Status(ctx context.Context) (inference.Status, error) {
	if s.still.Load() {
		<-ctx.Done()
		return inference.Status{}, ctx.Err()
	}
	return s.fake.Status(ctx)
}

// TestLoadWaitsForNoDeadMember: a member that has stopped, or leaves while it loads, does not hold
// up the others for as long as a load may take.
func TestLoadWaitsForNoDeadMember(t *testing.T) {
	const soon = 10 * time.Second
	for name, stop := range map[string]func(*fleet.Fleet, *stopped){
		"stopped": func(_ *fleet.Fleet, s *stopped) { s.still.Store(true) },
		"leaves": func(f *fleet.Fleet, s *stopped) {
			leave := func() {
				s.still.Store(true)
				_ = f.Leave("dead")
			}
			s.loading.Store(&leave)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, newFake(5000))
				s := &stopped{fake: newFake(5000)}
				if err := f.Join(fleet.Member{Name: "dead", Engine: s}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(soon)
				stop(f, s)
				for version := int64(2); version < 4; version++ {
					begin := time.Now()
					if err := f.Load(t.Context(), blob.Ref{}, version); err != nil || f.Version() != version {
						t.Errorf("error %v, version %d, want %d", err, f.Version(), version)
					}
					if took := time.Since(begin); took > soon {
						t.Errorf("the load of version %d took %v", version, took)
					}
				}
			})
		})
	}
}

func TestCloseEndsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, newFake(1100))
		var wg sync.WaitGroup
		for i := range 4 { // one runs, the others wait
			wg.Go(func() {
				if _, err := f.Generate(t.Context(), request("", uint64(i), make([]int32, 99), 1000)); !errors.Is(err, fleet.ErrClosed) && err != nil {
					t.Errorf("error %v, want ErrClosed", err)
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
		f.Close()
		wg.Wait()
		if err := f.Join(fleet.Member{Name: "late", Engine: newFake(10)}); !errors.Is(err, fleet.ErrClosed) {
			t.Errorf("error %v, want ErrClosed", err)
		}
	})
}
