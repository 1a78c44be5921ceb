package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/inference/fleet"
	"temper/internal/inference/inferencetest"
	"temper/internal/rl"
	"temper/internal/rollout"
)

// planner is an engine that wants to know what begins.
type planner struct {
	*inferencetest.Script
	refuse error

	mu       sync.Mutex
	begun    [][]inference.Trajectory
	known    map[string]bool
	surprise []string // sessions of requests that nobody announced
}

func (p *planner) Begin(_ context.Context, list []inference.Trajectory) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun = append(p.begun, list)
	for _, t := range list {
		p.known[t.Session] = true
	}
	return p.refuse
}

func (p *planner) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	p.mu.Lock()
	if !p.known[req.Session] {
		p.surprise = append(p.surprise, req.Session)
	}
	p.mu.Unlock()
	return p.Script.Generate(ctx, req)
}

func TestAPlannerIsToldWhatBegins(t *testing.T) {
	f := newFormat(t)
	engine := &planner{Script: says(f, call("x"), "<answer>1</answer>"), known: map[string]bool{}}
	cfg := config()
	d := cfg.deps(f, engine.Script, prints("1"))
	d.Engine = engine
	r, err := rollout.New(cfg.Config, d)
	if err != nil {
		t.Fatal(err)
	}
	g, err := r.Group(t.Context(), spec(), 10)
	if err != nil {
		t.Fatal(err)
	}
	first := engine.begun[0]
	if len(first) != cfg.MaxConcurrent {
		t.Errorf("%d were announced together, want all %d that live at a time", len(first), cfg.MaxConcurrent)
	}
	want := inference.Trajectory{
		Session: "run/train/1/2/chase1-1/0", Run: "run", Problem: "chase1-1", Stage: 1, Step: 2, Prompt: g.Trajectories[0].PromptTokens, Limit: 200,
	}
	if diff := cmp.Diff(want, first[0]); diff != "" {
		t.Errorf("announced -want +got:\n%s", diff)
	}
	released := map[string]int{}
	for _, s := range engine.Released() {
		released[s]++
	}
	if len(engine.surprise) > 0 || len(engine.known) != 10 || len(released) != 10 {
		t.Errorf("requests of %q were not announced; %d were, %d were released; want none, 10 and 10", engine.surprise, len(engine.known), len(released))
	}
	if _, err := r.Rollout(t.Context(), spec()); err != nil || len(engine.surprise) > 0 {
		t.Errorf("a single rollout: error %v, %q were not announced", err, engine.surprise)
	}
}

func TestTooLargeEndsAGroupAtOnce(t *testing.T) {
	f := newFormat(t)
	engine := &planner{Script: says(f, "<answer>1</answer>"), known: map[string]bool{}, refuse: fmt.Errorf("200 tokens: %w", inference.ErrTooLarge)}
	cfg := config()
	d := cfg.deps(f, engine.Script, prints("1"))
	d.Engine = engine
	r, err := rollout.New(cfg.Config, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Group(t.Context(), spec(), 10); !errors.Is(err, inference.ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
	if _, err := r.Rollout(t.Context(), spec()); !errors.Is(err, inference.ErrTooLarge) {
		t.Errorf("error %v of a single rollout, want ErrTooLarge", err)
	}
	calls := 0
	engine.Fail = func(int, inference.Request) error { calls++; return inference.ErrTooLarge }
	got := run(t, newRunner(t, f, engine.Script, prints("1")), spec())
	if got.StopReason != rl.StopInfraError || calls != 1 {
		t.Errorf("stopped by %q after %d requests, want one that is not repeated", got.StopReason, calls)
	}
}

// loadable is a script in a fleet.
type loadable struct{ *inferencetest.Script }

func (loadable) Load(context.Context, blob.Ref, int64) error { return nil }

func (l loadable) Status(context.Context) (inference.Status, error) {
	return inference.Status{Version: l.Serving, MaxContext: 1000, Capacity: 1000, Exact: true}, nil
}

func TestAFleetSamplesWhatOneEngineSamples(t *testing.T) {
	f := newFormat(t)
	script := func() *inferencetest.Script {
		s := says(f, call("x"), call("y"), "<answer>1</answer>")
		s.Context = 1000
		return s
	}
	engine := script()
	want, err := newRunner(t, f, engine, prints("1")).Group(t.Context(), spec(), 20)
	if err != nil {
		t.Fatal(err)
	}
	many, err := fleet.New(fleet.Config{MaxContext: 1000, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer many.Close()
	members := []*inferencetest.Script{script(), script(), script()}
	for i, m := range members {
		if err := many.Join(fleet.Member{Name: fmt.Sprint(i), Engine: loadable{m}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := many.Load(t.Context(), blob.Ref{}, 0); err != nil {
		t.Fatal(err)
	}
	cfg := config()
	cfg.MaxConcurrent = 20
	d := cfg.deps(f, engine, prints("1"))
	d.Engine = many
	r, err := rollout.New(cfg.Config, d)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Group(t.Context(), spec(), 20)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, clocks()); diff != "" {
		t.Errorf("one engine -, a fleet +:\n%s", diff)
	}
	for i, m := range members {
		if len(m.Requests()) == 0 {
			t.Errorf("member %d sampled nothing", i)
		}
	}
	if st := many.Stats(); st.Reserved != 0 || st.Finished != 20 {
		t.Errorf("%+v, want 20 finished and nothing reserved", st)
	}
}
