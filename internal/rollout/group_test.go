package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
	"temper/sandbox"
)

// variedEngine says something that depends on the trajectory's seed.
func variedEngine(t *testing.T, delay func()) (*inferencetest.Script, func(sandbox.Executor) []rl.Group) {
	t.Helper()
	f := newFormat(t)
	end := f.Stop()[0]
	engine := &inferencetest.Script{Reply: func(req inference.Request) []int32 {
		delay()
		choice := int(rl.Uniform(req.Seed, len(req.Tokens)) * 4)
		text := []string{call("print(1)"), call("print("), "<answer>116</answer>", "<answer>7</answer>"}[choice]
		return append(f.Tokenizer().EncodeSpecial(text), end)
	}}
	return engine, func(executor sandbox.Executor) []rl.Group {
		r := newRunner(t, f, engine, executor)
		var problems []rl.Problem
		index := map[string]int{}
		for i := range 5 {
			p := problem()
			p.ID = fmt.Sprintf("chase1-%d", i)
			index[p.ID] = i
			problems = append(problems, p)
		}
		groups := make([]rl.Group, len(problems))
		err := r.Groups(t.Context(), spec(), problems, 6, func(g rl.Group) error {
			groups[index[g.Problem.ID]] = g
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return groups
	}
}

// TestGroupsDoNotDependOnCompletionOrder and keep the concurrency limit.
func TestGroupsDoNotDependOnCompletionOrder(t *testing.T) {
	_, sample := variedEngine(t, func() {})
	want := sample(prints("116"))
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, seed))
			pauses := make(chan time.Duration, 1<<16)
			for range cap(pauses) {
				pauses <- time.Duration(rng.IntN(1000)) * time.Microsecond
			}
			var now, most atomic.Int64
			_, sample := variedEngine(t, func() {
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(<-pauses)
				now.Add(-1)
			})
			got := sample(execute(func(ctx context.Context, req sandbox.Request) (sandbox.Result, error) {
				time.Sleep(<-pauses)
				return prints("116")(ctx, req)
			}))
			times := clocks()
			if diff := cmp.Diff(got, want, times); diff != "" {
				t.Errorf("order of completion changed the groups:\n%s", diff)
			}
			if most.Load() != int64(config().MaxConcurrent) {
				t.Errorf("%d generations at a time, want %d", most.Load(), config().MaxConcurrent)
			}
		})
	}
}

func TestCallIDsAreUniqueAndDeterministic(t *testing.T) {
	_, sample := variedEngine(t, func() {})
	ids := func() map[string]bool {
		seen, seeds := map[string]bool{}, map[uint64]bool{}
		for _, g := range sample(prints("116")) {
			for i, tr := range g.Trajectories {
				if tr.Rollout != i || tr.ProblemID != g.Problem.ID {
					t.Errorf("%s/%d is at place %d of group %s", tr.ProblemID, tr.Rollout, i, g.Problem.ID)
				}
				if seeds[tr.Seed] {
					t.Errorf("%s/%d shares its seed with another trajectory", tr.ProblemID, tr.Rollout)
				}
				seeds[tr.Seed] = true
				for _, turn := range tr.Turns {
					for _, c := range turn.Calls {
						if seen[c.ID] {
							t.Errorf("call id %s used twice", c.ID)
						}
						seen[c.ID] = true
					}
				}
			}
		}
		return seen
	}
	first := ids()
	if len(first) < 20 {
		t.Fatalf("only %d calls were made", len(first))
	}
	if diff := cmp.Diff(ids(), first); diff != "" {
		t.Errorf("another run, other ids:\n%s", diff)
	}
}

func TestCancelEndsEverything(t *testing.T) {
	f := newFormat(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRunner(t, f, says(f, call("x")), execute(func(ctx context.Context, _ sandbox.Request) (sandbox.Result, error) {
			<-ctx.Done()
			return sandbox.Result{}, ctx.Err()
		}))
		time.AfterFunc(time.Second, cancel)
		if _, err := r.Group(ctx, spec(), 9); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	})
}

func TestErrorOfTheConsumerEndsGroups(t *testing.T) {
	f := newFormat(t)
	full := errors.New("disk full")
	r := newRunner(t, f, says(f, "<answer>1</answer>"), prints(""))
	err := r.Groups(t.Context(), spec(), []rl.Problem{problem(), problem()}, 2, func(rl.Group) error { return full })
	if !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
}
