package engine

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"temper/internal/inference"
	"temper/internal/rl"
	"temper/trainer/model"
)

// small is a network for tests of behaviour rather than numbers.
func small() model.Config {
	return model.Config{
		VocabSize: 50, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 1, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		HeadDim: 8, MaxPositionEmbeddings: 400, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.3,
	}
}

// opened is an engine with weights.
func opened(t *testing.T, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	weights, err := model.InitialTensors(cfg.Model, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.LoadTensors(context.Background(), weights, 1); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestShardsStayFull gives four shards of 16 slots a load with a heavy tail, and counts
// passes: those of batches that wait for their longest request, and those of the engine.
func TestShardsStayFull(t *testing.T) {
	const shards, slots, requests = 4, 16, 512
	e := opened(t, Config{Model: small(), Slots: shards * slots, Shards: shards})
	lengths := make([]int, requests)
	for i := range lengths { // a Pareto distribution: most are short, few are very long
		u := float64(rl.Uniform(11, i))
		lengths[i] = min(int(10/math.Pow(1-u, 1/1.2)), 300)
	}
	static := [shards]int{} // each engine takes the next batch when its last one has ended
	for at := 0; at < requests; at += slots {
		first := 0
		for i := range static {
			if static[i] < static[first] {
				first = i
			}
		}
		longest := 0
		for _, n := range lengths[at : at+slots] {
			longest = max(longest, n)
		}
		static[first] += longest
	}
	var wg sync.WaitGroup
	for i, n := range lengths {
		wg.Go(func() {
			session := fmt.Sprint(i)
			defer e.Release(session)
			gen, err := e.Generate(t.Context(), inference.Request{Tokens: []int32{int32(i % 50), 1}, MaxTokens: n, Temperature: 1, Seed: uint64(i), Version: -1, Session: session})
			if err != nil || len(gen.Tokens) != n {
				t.Errorf("request %d: %d tokens of %d, error %v", i, len(gen.Tokens), n, err)
			}
		})
	}
	wg.Wait()
	queued, vacant, passes, longest := int64(0), int64(0), int64(0), int64(0)
	for _, s := range e.shards {
		queued, vacant = queued+s.stats.queued.Load(), vacant+s.stats.vacant.Load()
		passes, longest = passes+s.stats.steps.Load(), max(longest, s.stats.steps.Load())
	}
	batches := 0
	for _, n := range static {
		batches += n
	}
	idle := float64(vacant) / float64(queued*slots)
	t.Logf("idle rows %.1f %% in %d passes with a queue; %d passes in all against %d of static batches", 100*idle, queued, passes, batches)
	if queued == 0 || idle >= 0.1 {
		t.Errorf("%.1f %% of the rows were idle in %d passes while requests waited, want below 10 %%", 100*idle, queued)
	}
	if ratio := float64(batches) / float64(passes); ratio < 1.5 {
		t.Errorf("static batches take %.2f times the passes, want at least 1.5", ratio)
	}
}

// TestDeskKeepsSessionsAndPrefixesTogether asks a router whose shards do not run.
func TestDeskKeepsSessionsAndPrefixesTogether(t *testing.T) {
	d := newRouter(100)
	for range 3 {
		d.add(&shard{sequences: newSequences(4, 100, 400), commands: newCommandQueue(), stats: &counters{}})
	}
	submit := func(session string, context []int32) (*job, int) {
		j := jobOf(session, context...)
		if err := d.submit(j); err != nil {
			t.Fatal(err)
		}
		for i, s := range d.shards {
			for _, got := range s.commands.drain().jobs {
				if got == j {
					return j, i
				}
			}
		}
		return j, -1
	}
	first, at := submit("a", numbered(0, 40))
	d.end(first, at)
	d.report(at, 10, 0, blocksOf(40)) // it has become the fullest
	if _, again := submit("a", numbered(0, 60)); again != at {
		t.Errorf("session a moved from shard %d to %d", at, again)
	}
	_, other := submit("b", numbered(100, 200))
	if other == at {
		t.Errorf("a new session went to the fullest shard, %d", at)
	}
	for i := range 3 {
		if _, got := submit(fmt.Sprint("group", i), numbered(100, 200)); got != other {
			t.Errorf("rollout %d of a long prompt went to shard %d, the first one to %d", i, got, other)
		}
	}
	if _, got := submit("b5", numbered(100, 200)); got == other {
		t.Error("a shard with all slots taken got one more request")
	}
	d.release("a")
	if d.routes["a"] == nil || !d.routes["a"].released {
		t.Error("a session with a request under way was forgotten")
	}
	for range 20 {
		submit("", []int32{1})
	}
	if under, waiting := d.counts(); under != 26 || waiting != 14 {
		t.Errorf("%d of %d requests wait, want 14 of 26 with 12 slots", waiting, under)
	}
	if !d.withdraw(d.waiting[0]) || d.withdraw(first) {
		t.Error("only requests in the queue can be withdrawn")
	}
}

// TestASessionThatIsAskedAgainIsKept: its release was for the request before, which had not ended.
func TestASessionThatIsAskedAgainIsKept(t *testing.T) {
	d := newRouter(100)
	for range 2 {
		d.add(&shard{sequences: newSequences(4, 100, 400), commands: newCommandQueue(), stats: &counters{}})
	}
	before, again := jobOf("a", 1, 2, 3), jobOf("a", 1, 2, 3)
	if err := d.submit(before); err != nil {
		t.Fatal(err)
	}
	d.release("a")
	if err := d.submit(again); err != nil {
		t.Fatal(err)
	}
	d.end(before, 0)
	d.end(again, 0)
	if d.release("a") != d.shards[0] {
		t.Error("the shard that has the session is not told when it ends")
	}
}

// heldContext stops the shard that asks it for the second time: the first to ask is the caller.
type heldContext struct {
	context.Context
	asked      atomic.Int64
	held, free chan struct{}
}

func (c *heldContext) Err() error {
	if c.asked.Add(1) == 2 {
		close(c.held)
		<-c.free
	}
	return c.Context.Err()
}

// TestOneRingForTwo: a shard with one slot wakes once for two requests. When the first has
// ended, nobody rings for the second.
func TestOneRingForTwo(t *testing.T) {
	e := opened(t, Config{Model: small(), Slots: 1, Shards: 1})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	first := &heldContext{Context: ctx, held: make(chan struct{}), free: make(chan struct{})}
	var wg sync.WaitGroup
	generate := func(ctx context.Context) {
		wg.Go(func() {
			if _, err := e.Generate(ctx, inference.Request{Tokens: []int32{1, 2, 3}, MaxTokens: 4, Version: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	generate(first)
	<-first.held
	generate(ctx)
	<-e.shards[0].commands.wakeup // the ring of the second request
	close(first.free)
	wg.Wait()
}
