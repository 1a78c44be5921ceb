package sampling_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/run"
	"temper/internal/run/runtest"
	"temper/internal/sampling"
)

// slowEngine holds back the rollouts whose sessions end in one of some suffixes until
// the call is taken away.
type slowEngine struct {
	*runtest.Scripted
	held []string
}

func (e *slowEngine) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	for _, suffix := range e.held {
		if strings.HasSuffix(req.Session, suffix) {
			<-ctx.Done()
			return inference.Generation{}, ctx.Err()
		}
	}
	return e.Scripted.Generate(ctx, req)
}

// mute is the store of a process that nothing leaves from a moment on.
type mute struct {
	blob.Store
	dead *atomic.Bool
}

func (m mute) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if m.dead.Load() {
		return blob.Ref{}, runtest.ErrDied
	}
	return m.Store.Put(ctx, key, r, cond)
}

// sampleInPart begins a step whose groups each lack the held rollouts. After a while the
// worker dies, or its call is taken away. The step's call has all slots that it needs.
func sampleInPart(t *testing.T, h *runtest.Run, after time.Duration, dies bool, held ...string) {
	t.Helper()
	r, engine := h.NewSampling(t)
	var dead atomic.Bool
	r.MaxConcurrent, r.Store = 18, mute{h.Store, &dead}
	r.NewEngine = func(*run.Loaded) (sampling.Engine, error) { return &slowEngine{engine, held}, nil }
	in := sampleInput(t, h, 1, 1)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(after, func() {
			dead.Store(dies)
			cancel()
		})
		if _, err := r.SampleGroups(ctx, in, r.NewProgress()); err == nil {
			t.Error("a step is done that lacks rollouts")
		}
	})
}

func endedKeys(t *testing.T, h *runtest.Run) []string {
	t.Helper()
	infos, _, err := h.Store.ListFolder(t.Context(), h.Layout.Step(1).EndedFolder())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, i := range infos {
		keys = append(keys, i.Key)
	}
	return keys
}

// TestEndedTrajectoriesSurvive the death of their worker once a moment has passed, and
// at once where the call is taken away: they are not sampled again, whatever the cut of
// the next calls, and the step ends with the same bytes.
func TestEndedTrajectoriesSurvive(t *testing.T) {
	h := runtest.New(t, nil)
	prepared := runtest.Dump(t, h.Store)
	in := sampleInput(t, h, 1, 1)
	r, _ := h.NewSampling(t)
	whole, err := r.SampleGroups(t.Context(), in, r.NewProgress())
	if err != nil {
		t.Fatal(err)
	}
	batch := sampling.BatchInput{Run: h.Ref, Stage: 1, Step: 1, ProblemIDs: in.ProblemIDs}
	if keys := endedKeys(t, h); len(keys) > 0 {
		t.Fatalf("a step of a moment has stored %v", keys)
	}
	batch.Shards = whole.Shards
	if _, err := sampling.BuildBatch(t.Context(), h.Store, batch); err != nil {
		t.Fatal(err)
	}
	want := runtest.Dump(t, h.Store)
	for _, c := range []struct {
		name    string
		after   time.Duration
		dies    bool
		resumed int
		shards  [][]string
	}{
		{name: "death", after: 2500 * time.Millisecond, dies: true, resumed: 15, shards: [][]string{in.ProblemIDs}},
		{name: "early death", after: 500 * time.Millisecond, dies: true, resumed: 0, shards: [][]string{in.ProblemIDs}},
		{name: "taken away", after: 500 * time.Millisecond, resumed: 15, shards: [][]string{in.ProblemIDs}},
		{name: "other shards", after: 2500 * time.Millisecond, dies: true, resumed: 15, shards: [][]string{in.ProblemIDs[2:], in.ProblemIDs[:2]}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.Store = runtest.Fill(t, prepared)
			sampleInPart(t, h, c.after, c.dies, "/5")
			batch.Shards = nil
			var sum run.Sampled
			for _, ids := range c.shards {
				r, engine := h.NewSampling(t)
				part := in
				part.ProblemIDs = ids
				got, err := r.SampleGroups(t.Context(), part, r.NewProgress())
				if err != nil {
					t.Fatal(err)
				}
				sum.Resumed += got.Resumed
				sum.Tokens += got.Tokens
				batch.Shards = append(batch.Shards, got.Shards...)
				for _, req := range engine.Requests() {
					if c.resumed > 0 && !strings.HasSuffix(req.Session, "/5") {
						t.Errorf("%s was sampled again", req.Session)
					}
				}
			}
			if sum.Resumed != c.resumed || sum.Tokens != whole.Tokens {
				t.Errorf("%d trajectories resumed, %d tokens; want %d and %d", sum.Resumed, sum.Tokens, c.resumed, whole.Tokens)
			}
			if _, err := sampling.BuildBatch(t.Context(), h.Store, batch); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(runtest.Dump(t, h.Store), want); diff != "" {
				t.Errorf("got -, want +\n%s", diff)
			}
		})
	}
}

// TestUnreadableJournal: objects that are damaged or that hold the trajectories of
// another run, seed or step are passed over, and the step ends with the same bytes.
func TestUnreadableJournal(t *testing.T) {
	h := runtest.New(t, nil)
	prepared := runtest.Dump(t, h.Store)
	in := sampleInput(t, h, 1, 1)
	r, _ := h.NewSampling(t)
	whole, err := r.SampleGroups(t.Context(), in, r.NewProgress())
	if err != nil {
		t.Fatal(err)
	}
	want := groupsOf(t, h, 1)
	other := runtest.New(t, map[string]string{"seed": "6"})
	sampleInPart(t, other, 2500*time.Millisecond, true, "/5")
	foreign := runtest.Dump(t, other.Store)[endedKeys(t, other)[0]]
	for name, spoil := range map[string]func(data string) string{
		"half written": func(data string) string { return data[:len(data)/2] },
		"empty":        func(string) string { return "" },
		"no record":    func(string) string { return "{}" },
		"one byte":     func(data string) string { return data[:len(data)-9] + "x" + data[len(data)-8:] },
		"another seed": func(string) string { return foreign },
	} {
		t.Run(name, func(t *testing.T) {
			h.Store = runtest.Fill(t, prepared)
			sampleInPart(t, h, 2500*time.Millisecond, true, "/5")
			for _, key := range endedKeys(t, h) {
				runtest.Put(t, h.Store, key, spoil(runtest.Dump(t, h.Store)[key]))
			}
			r, _ := h.NewSampling(t)
			got, err := r.SampleGroups(t.Context(), in, r.NewProgress())
			if diff := cmp.Diff(got, whole, cmpopts.IgnoreFields(run.Sampled{}, "Shards")); err != nil || diff != "" {
				t.Errorf("error %v; got -, want +\n%s", err, diff)
			}
			if diff := cmp.Diff(groupsOf(t, h, 1), want); diff != "" {
				t.Errorf("got -, want +\n%s", diff)
			}
		})
	}
}

// TestFailedGroupIsKept: where the store refuses a group, its trajectories go to the
// journal, and another attempt has nothing to sample of it.
func TestFailedGroupIsKept(t *testing.T) {
	h := runtest.New(t, nil)
	in := sampleInput(t, h, 1, 1)
	in.ProblemIDs = in.ProblemIDs[:1]
	r, _ := h.NewSampling(t)
	r.Store = noGroups{h.Store}
	if _, err := r.SampleGroups(t.Context(), in, r.NewProgress()); err == nil {
		t.Fatal("a group is done that was not stored")
	}
	r, engine := h.NewSampling(t)
	got, err := r.SampleGroups(t.Context(), in, r.NewProgress())
	if err != nil || got.Resumed != 6 || len(engine.Requests()) > 0 {
		t.Errorf("%d trajectories resumed, %d generations (%v); want 6 and none", got.Resumed, len(engine.Requests()), err)
	}
}

// noGroups is a store that refuses groups.
type noGroups struct{ blob.Store }

func (n noGroups) Put(ctx context.Context, key string, r io.Reader, cond blob.Condition) (blob.Ref, error) {
	if strings.Contains(key, "/trajectories/") {
		return blob.Ref{}, blob.ErrUnavailable
	}
	return n.Store.Put(ctx, key, r, cond)
}
