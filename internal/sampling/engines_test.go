package sampling_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

// ahead is a run that samples ahead.
func ahead(t *testing.T) *runtest.Run {
	t.Helper()
	return runtest.New(t, map[string]string{"rl.window": "1", "rl.loss.old_logprobs": "rollout"})
}

// gatedEngine holds back the requests of a step's last rollouts until they are let go, and
// notes how many requests of each step it has at a time.
type gatedEngine struct {
	*runtest.Scripted
	g *gate
}

type gate struct {
	held string // part of a session
	open chan struct{}

	mu      sync.Mutex
	now     map[string]int // requests under way, by the step of the session
	overlap bool           // those of two steps
	engines []*runtest.Scripted
	ahead   []int64 // versions that an engine was asked to read
}

// Prefetch implements inference.Prefetcher.
func (e gatedEngine) Prefetch(_ context.Context, _ blob.Ref, version int64) {
	e.g.mu.Lock()
	defer e.g.mu.Unlock()
	e.g.ahead = append(e.g.ahead, version)
}

func (e gatedEngine) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	step := strings.Split(req.Session, "/")[3]
	e.g.mu.Lock()
	e.g.now[step]++
	e.g.overlap = e.g.overlap || len(e.g.now) > 1
	e.g.mu.Unlock()
	defer func() {
		e.g.mu.Lock()
		defer e.g.mu.Unlock()
		if e.g.now[step]--; e.g.now[step] == 0 {
			delete(e.g.now, step)
		}
	}()
	if strings.Contains(req.Session, e.g.held) {
		select {
		case <-e.g.open:
		case <-ctx.Done():
			return inference.Generation{}, ctx.Err()
		}
	}
	return e.Scripted.Generate(ctx, req)
}

// gated is a service whose engines share a gate.
func gated(t *testing.T, h *runtest.Run, policies int, held string) (*sampling.Service, *gate) {
	t.Helper()
	r, _ := h.NewSampling(t)
	g := &gate{held: held, open: make(chan struct{}), now: map[string]int{}}
	r.Policies = func(*run.Loaded) int { return policies }
	r.NewEngine = func(*run.Loaded) (sampling.Engine, error) {
		e := h.NewScripted(t)
		g.engines = append(g.engines, e)
		return gatedEngine{e, g}, nil
	}
	return r, g
}

// TestStepsOverlapInOneProcess: while the tail of a step is sampled by one policy, the next
// step is sampled whole by another, to the bits of a process that does one after the other.
func TestStepsOverlapInOneProcess(t *testing.T) {
	h := ahead(t)
	alone := *h
	alone.Store = runtest.Fill(t, runtest.Dump(t, h.Store))
	one, _ := alone.NewSampling(t)
	first, second := sampleInput(t, h, 1, 1), sampleInput(t, h, 1, 2)
	for _, in := range []sampling.GroupsInput{first, second} {
		if _, err := one.SampleGroups(t.Context(), in, one.NewProgress()); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r, g := gated(t, h, 2, "/train/1/1/"+first.ProblemIDs[2]+"/5")
		var tail error
		var done sync.WaitGroup
		done.Go(func() { _, tail = r.SampleGroups(t.Context(), first, r.NewProgress()) })
		synctest.Wait()
		if _, err := r.SampleGroups(t.Context(), second, r.NewProgress()); err != nil {
			t.Error(err)
		}
		if len(g.now) != 1 || !g.overlap || len(g.engines) != 2 {
			t.Errorf("%v requests are under way in %d engines, overlap %v; want the tail of step 1 and the whole of step 2", g.now, len(g.engines), g.overlap)
		}
		close(g.open)
		if done.Wait(); tail != nil {
			t.Error(tail)
		}
		r.Close()
	})
	if diff := cmp.Diff(runtest.Dump(t, h.Store), runtest.Dump(t, alone.Store)); diff != "" {
		t.Errorf("side by side -, one after the other +\n%s", diff)
	}
}

// TestTheOnlyEngineReadsAhead: while the tail of a step is sampled by the one engine that
// there is, that engine reads the policy of the next step.
func TestTheOnlyEngineReadsAhead(t *testing.T) {
	h := ahead(t)
	first, second := sampleInput(t, h, 1, 1), sampleInput(t, h, 1, 2)
	synctest.Test(t, func(t *testing.T) {
		r, g := gated(t, h, 1, "/train/1/1/"+first.ProblemIDs[2]+"/5")
		errs := make([]error, 2)
		var done sync.WaitGroup
		done.Go(func() { _, errs[0] = r.SampleGroups(t.Context(), first, r.NewProgress()) })
		synctest.Wait()
		done.Go(func() { _, errs[1] = r.SampleGroups(t.Context(), second, r.NewProgress()) })
		synctest.Wait()
		if got := slices.Compact(slices.Clone(g.ahead)); !slices.Equal(got, []int64{second.Policy.Version}) || len(g.engines) != 1 || g.engines[0].Version() != first.Policy.Version {
			t.Errorf("read ahead %v with %d engines, want policy %d by the one that serves %d", g.ahead, len(g.engines), second.Policy.Version, first.Policy.Version)
		}
		close(g.open)
		if done.Wait(); errs[0] != nil || errs[1] != nil {
			t.Error(errs)
		}
		r.Close()
	})
}

// TestCallsWaitForAPolicy that no engine has room for, share one that is there, and of two
// calls of one name the second waits. A run without a window has one engine.
func TestCallsWaitForAPolicy(t *testing.T) {
	for name, c := range map[string]struct {
		window   bool
		policies int
		second   func(*sampling.GroupsInput)
		waits    bool
		engines  int
	}{
		"one policy at a time": {true, 1, func(*sampling.GroupsInput) {}, true, 1},
		"no window":            {false, 2, func(*sampling.GroupsInput) {}, true, 1},
		"the same policy":      {true, 1, func(in *sampling.GroupsInput) { in.Policy = runtest.PolicyRef(0) }, false, 1},
		"the same call again":  {true, 2, func(in *sampling.GroupsInput) { in.Step, in.Policy = 1, runtest.PolicyRef(0) }, true, 1},
		"as many as may be":    {true, 2, func(*sampling.GroupsInput) {}, false, 2},
		"another shard": {true, 1, func(in *sampling.GroupsInput) {
			in.Step, in.Policy, in.ProblemIDs = 1, runtest.PolicyRef(0), in.ProblemIDs[:1]
		}, false, 1},
		"a policy never heard of": {true, 2, func(in *sampling.GroupsInput) { in.Policy = runtest.PolicyRef(7) }, false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := runtest.New(t, nil)
			if c.window {
				h = ahead(t)
			}
			first, second := sampleInput(t, h, 1, 1), sampleInput(t, h, 1, 2)
			second.ProblemIDs = slices.Clone(first.ProblemIDs)
			c.second(&second)
			synctest.Test(t, func(t *testing.T) {
				r, g := gated(t, h, c.policies, "/train/1/1/"+first.ProblemIDs[2]+"/5")
				var done sync.WaitGroup
				var mu sync.Mutex
				ended := map[string]error{}
				begin := func(name string, in sampling.GroupsInput) {
					done.Go(func() {
						_, err := r.SampleGroups(t.Context(), in, r.NewProgress())
						mu.Lock()
						defer mu.Unlock()
						ended[name] = err
					})
					synctest.Wait()
				}
				begin("first", first)
				begin("second", second)
				mu.Lock()
				if _, over := ended["second"]; over == c.waits || len(ended) > 1 {
					t.Errorf("ended %v while the first is held, want the second to wait: %v", ended, c.waits)
				}
				mu.Unlock()
				close(g.open)
				done.Wait()
				for name, err := range ended {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if len(g.engines) != c.engines {
					t.Errorf("%d engines, want %d", len(g.engines), c.engines)
				}
				r.Close()
				for i, e := range g.engines {
					if !e.Closed {
						t.Errorf("engine %d is left open", i)
					}
				}
			})
		})
	}
}

// TestACallThatWaitsCanBeTakenAway, and the one after it goes on. The oldest policy comes
// first, whoever asked first, and is the one that the engine reads ahead.
func TestACallThatWaitsCanBeTakenAway(t *testing.T) {
	h := ahead(t)
	first := sampleInput(t, h, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		r, g := gated(t, h, 1, "/train/1/1/"+first.ProblemIDs[2]+"/5")
		var done sync.WaitGroup
		var errs [4]error
		begin := func(i int, ctx context.Context, version int64) {
			in := sampleInput(t, h, 1, i+1)
			in.Policy = runtest.PolicyRef(version)
			done.Go(func() { _, errs[i] = r.SampleGroups(ctx, in, r.NewProgress()) })
			synctest.Wait()
		}
		begin(0, t.Context(), 0)
		away, cancel := context.WithCancel(t.Context())
		begin(1, away, 1)
		begin(2, t.Context(), 3)
		begin(3, t.Context(), 2)
		readsAhead := func(want ...int64) {
			t.Helper()
			if got := slices.Compact(slices.Clone(g.ahead)); !slices.Equal(got, want) {
				t.Errorf("the engine is asked to read %v ahead, want %v", got, want)
			}
		}
		readsAhead(1)
		cancel()
		synctest.Wait()
		readsAhead(1, 2)
		if errs[1] == nil {
			t.Error("a call that was taken away waits on")
		}
		close(g.open)
		done.Wait()
		if errs[0] != nil || errs[2] != nil || errs[3] != nil {
			t.Errorf("errors %v", errs)
		}
		if want := []int64{0, 2, 3}; !slices.Equal(g.engines[0].Loads, want) {
			t.Errorf("loaded %v, want %v", g.engines[0].Loads, want)
		}
		r.Close()
	})
}

// TestACallWaitsForNoEngineThatOthersShare: a second attempt of a call waits for the first one,
// whose engine it will use. The next step takes the other engine meanwhile.
func TestACallWaitsForNoEngineThatOthersShare(t *testing.T) {
	h := ahead(t)
	first, second := sampleInput(t, h, 1, 1), sampleInput(t, h, 1, 2)
	synctest.Test(t, func(t *testing.T) {
		r, g := gated(t, h, 2, "/train/1/1/"+first.ProblemIDs[2]+"/5")
		var done sync.WaitGroup
		var errs [3]error
		ended := 0
		for i, in := range []sampling.GroupsInput{first, first, second} {
			done.Go(func() {
				_, errs[i] = r.SampleGroups(t.Context(), in, r.NewProgress())
				ended = i
			})
			synctest.Wait()
		}
		if ended != 2 {
			t.Error("the next step waits for the second attempt of the step before")
		}
		close(g.open)
		done.Wait()
		for _, err := range errs {
			if err != nil {
				t.Error(err)
			}
		}
		r.Close()
	})
}
