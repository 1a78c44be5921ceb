package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	ml "github.com/gomlx/gomlx/ml/model"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/rl"
	"temper/trainer/engine"
	"temper/trainer/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is a network for tests of behaviour rather than numbers.
func tiny() model.Config {
	return model.Config{
		VocabSize: 50, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4,
		NumKeyValueHeads: 2, HeadDim: 8, MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.3,
	}
}

// generate fails the test on an error.
func generate(t *testing.T, e *engine.Engine, req inference.Request) inference.Generation {
	t.Helper()
	gen, err := e.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return gen
}

// bitEqual reports generations whose tokens or log-probabilities differ in any bit.
func bitEqual(t *testing.T, what string, got, want inference.Generation) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s changes the generation (-alone +now):\n%s", what, diff)
	}
}

// TestBatchInvariance runs one request alone, in full engines, in different rows
// and beside different numbers of others: on a network of the demo's size, and
// on one so wide that the CPU backend changes kernels with the number of rows.
func TestBatchInvariance(t *testing.T) {
	for _, network := range []model.Config{demo(128, 1, 384), demo(256, 1, 768)} {
		t.Run(fmt.Sprint("hidden=", network.HiddenSize), func(t *testing.T) {
			req := inference.Request{Tokens: prompt(0, 21), MaxTokens: 12, Temperature: 0.8, Seed: 99, Version: -1}
			alone := generate(t, start(t, engine.Config{Model: network, Slots: 1}), req)
			if len(alone.Tokens) != 12 || len(alone.Logprobs) != 12 || alone.Finish != rl.FinishLength || alone.Version != 1 {
				t.Fatalf("generation alone: %+v", alone)
			}
			e := start(t, engine.Config{Model: network, Slots: 70, Shards: 1, MaxContext: 64})
			for _, others := range []int{0, 13, 80} {
				bitEqual(t, fmt.Sprintf("company of %d", others), amid(t, e, others, req), alone)
			}
		})
	}
}

// amid runs the request while others of several lengths run beside it.
func amid(t *testing.T, e *engine.Engine, others int, req inference.Request) inference.Generation {
	t.Helper()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range others {
		wg.Go(func() {
			_, err := e.Generate(t.Context(), inference.Request{
				Tokens: prompt(i+1, 3+i%25), MaxTokens: 5 + i%13, Temperature: float32(i % 3), Seed: uint64(i), Version: -1,
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	if others > 5 {
		time.Sleep(time.Duration(others/10) * time.Millisecond) // join in the middle
	}
	return generate(t, e, req)
}

// turns plays a trajectory of three turns and returns its generations.
func turns(t *testing.T, e *engine.Engine, session string, between func()) []inference.Generation {
	t.Helper()
	var gens []inference.Generation
	tokens := prompt(7, 12)
	for turn := range 3 {
		gens = append(gens, generate(t, e, inference.Request{
			Tokens: tokens, MaxTokens: 9, Temperature: 1, Seed: 5, Version: 1, Session: session,
		}))
		tokens = append(append(tokens, gens[turn].Tokens...), prompt(turn, 11)...)
		between()
	}
	return gens
}

func TestSessionCacheAndEvictionAreInvisible(t *testing.T) {
	e := start(t, engine.Config{Model: demo(128, 1, 384), Slots: 2, Shards: 1, Capacity: 80})
	plain := turns(t, e, "", func() {})
	cold := e.Stats().Prefilled
	kept := turns(t, e, "kept", func() {})
	if got := e.Stats().Prefilled - cold; got >= cold {
		t.Errorf("session with a cache prefilled %d tokens, without %d", got, cold)
	}
	before := e.Stats().Evictions
	evicted := turns(t, e, "evicted", func() {
		for i := range 2 {
			generate(t, e, inference.Request{Tokens: prompt(i, 5), MaxTokens: 2, Version: -1, Session: fmt.Sprint("thief", i)})
		}
	})
	if e.Stats().Evictions < before+3 {
		t.Fatalf("%d evictions, want at least 3", e.Stats().Evictions-before)
	}
	for i := range plain {
		bitEqual(t, "a session's cache", kept[i], plain[i])
		bitEqual(t, "an eviction", evicted[i], plain[i])
	}
}

func TestRepeatedRequestInASessionIsIdempotent(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 1})
	req := inference.Request{Tokens: prompt(1, 20), MaxTokens: 8, Temperature: 1, Seed: 3, Version: -1, Session: "s"}
	want := generate(t, e, req)
	bitEqual(t, "a second attempt", generate(t, e, req), want)
}

// TestLogprobsEqualTheTrainersForward compares what the engine reports with the
// full forward pass over the finished context. float32 rounding of log-probabilities
// of order 10 leaves 1e-5; the ratio of new to old policy feels no more than that.
func TestLogprobsEqualTheTrainersForward(t *testing.T) {
	network := demo(128, 2, 384)
	network.InitializerRange = 0.1
	e := start(t, engine.Config{Model: network, Slots: 3, Shards: 1})
	for _, temperature := range []float32{0.6, 0} {
		req := inference.Request{Tokens: prompt(2, 37), MaxTokens: 40, Temperature: temperature, Seed: 4, Version: -1}
		gen := generate(t, e, req)
		scale := temperature
		if temperature == 0 {
			scale = 1
		}
		want, greedy := fullForward(t, network, append(req.Tokens, gen.Tokens...), scale)
		for i, token := range gen.Tokens {
			at := len(req.Tokens) + i - 1 // the position whose logits select the token
			if d := math.Abs(float64(gen.Logprobs[i]) - float64(want[at])); !(d < 3e-5) {
				t.Errorf("temperature %v, token %d: log-probability %v, trainer's forward %v", temperature, i, gen.Logprobs[i], want[at])
			}
			if temperature == 0 && token != greedy[at] {
				t.Errorf("greedy token %d is %d, likeliest by the trainer's forward %d", i, token, greedy[at])
			}
		}
	}
}

// fullForward returns, at each position, the log-probability of the token that
// follows and the likeliest token.
func fullForward(t *testing.T, cfg model.Config, tokens []int32, temperature float32) (logprobs []float32, likeliest []int32) {
	t.Helper()
	backend, err := compute.NewWithConfig("go")
	if err != nil {
		t.Fatal(err)
	}
	store := ml.NewStore()
	if err := model.Init(nil, store, cfg, 1); err != nil {
		t.Fatal(err)
	}
	exec, err := ml.NewExec(backend, store, func(s *ml.Scope, in *graph.Node) []*graph.Node {
		logits := model.Logits(s, cfg, model.Forward(s, cfg, model.Inputs{Tokens: in}, model.Options{})) // [1, T, V]
		all := graph.LogSoftmax(graph.DivScalar(logits, temperature), -1)
		now := graph.SliceAxis(all, 1, graph.AxisRange(0, -1))
		next := graph.OneHot(graph.SliceAxis(in, 1, graph.AxisRangeToEnd(1)), cfg.VocabSize, logits.DType())
		return []*graph.Node{graph.ReduceSum(graph.Mul(now, next), -1), graph.ArgMax(logits, -1, dtypes.Int32)}
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Call([][]int32{tokens})
	if err != nil {
		t.Fatal(err)
	}
	return tensors.MustCopyFlatData[float32](out[0]), tensors.MustCopyFlatData[int32](out[1])
}

func TestSessionWithAnotherPastDoesNotReuseIt(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 1})
	req := inference.Request{Tokens: prompt(1, 20), MaxTokens: 8, Temperature: 1, Seed: 3, Version: -1}
	want := generate(t, e, req)
	req.Session = "s"
	generate(t, e, inference.Request{Tokens: prompt(2, 25), MaxTokens: 8, Version: -1, Session: "s"})
	bitEqual(t, "another past of the session", generate(t, e, req), want)
}

// TestSamplingDistribution counts tokens over many seeds against the
// probabilities that the engine reports.
func TestSamplingDistribution(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 64, Shards: 1})
	const draws = 2048
	counts, probs := map[int32]int{}, map[int32]float64{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < draws; i += 64 {
				gen, err := e.Generate(t.Context(), inference.Request{
					Tokens: []int32{1, 2, 3}, MaxTokens: 1, Temperature: 0.7, Seed: rl.Seed(1, "draw", uint64(i)), Version: -1,
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				counts[gen.Tokens[0]]++
				probs[gen.Tokens[0]] = math.Exp(float64(gen.Logprobs[0]))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	total := 0.0
	for token, p := range probs {
		total += p
		sigma := math.Sqrt(draws * p * (1 - p))
		if d := math.Abs(float64(counts[token]) - draws*p); d > 4.5*sigma+1 {
			t.Errorf("token %d drawn %d times, probability %.4f expects %.1f +- %.1f", token, counts[token], p, draws*p, sigma)
		}
	}
	if total < 0.98 || total > 1.0001 {
		t.Errorf("probabilities of the tokens seen sum to %v", total)
	}
}

func TestStopLengthAndGreedy(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 4})
	req := inference.Request{Tokens: prompt(3, 6), MaxTokens: 12, Version: -1}
	greedy := generate(t, e, req)
	req.Seed = 12345
	bitEqual(t, "the seed of a greedy request", generate(t, e, req), greedy)
	for k := range 4 {
		at := 3*k + 1
		first := 0
		for greedy.Tokens[first] != greedy.Tokens[at] {
			first++
		}
		req.Stop = []int32{greedy.Tokens[at], -1}
		got := generate(t, e, req)
		if diff := cmp.Diff(greedy.Tokens[:first+1], got.Tokens); diff != "" || got.Finish != rl.FinishStop {
			t.Errorf("stop at %d: finish %q, tokens (-want +got):\n%s", at, got.Finish, diff)
		}
	}
}

func TestRefusals(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 2, MaxContext: 40})
	for _, c := range []struct {
		req  inference.Request
		want string
	}{
		{inference.Request{MaxTokens: 1}, "no context"},
		{inference.Request{Tokens: []int32{1}}, "max tokens 0"},
		{inference.Request{Tokens: prompt(1, 30), MaxTokens: 11}, "limit of 40"},
		{inference.Request{Tokens: []int32{1, 50}, MaxTokens: 1}, "token 50 at position 1"},
		{inference.Request{Tokens: []int32{1}, MaxTokens: 1, Temperature: float32(math.NaN())}, "temperature"},
	} {
		_, err := e.Generate(t.Context(), c.req)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want one with %q", c.req, err, c.want)
		}
	}
	if _, err := e.Generate(t.Context(), inference.Request{Tokens: prompt(1, 30), MaxTokens: 10, Version: -1}); err != nil {
		t.Errorf("context that just fits: %v", err)
	}
	_, err := e.Generate(t.Context(), inference.Request{Tokens: []int32{1}, MaxTokens: 1, Version: 2})
	if !errors.Is(err, inference.ErrStaleVersion) {
		t.Errorf("version that is not served: %v, want ErrStaleVersion", err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	e := start(t, engine.Config{Model: tiny(), Slots: 2, Shards: 1, Queue: 5})
	var wg sync.WaitGroup
	var mu sync.Mutex
	served, refused := 0, 0
	for range 40 {
		wg.Go(func() {
			_, err := e.Generate(t.Context(), inference.Request{Tokens: prompt(1, 4), MaxTokens: 90, Version: -1})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				served++
			case errors.Is(err, inference.ErrOverloaded):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if served < 5 || refused == 0 || served+refused != 40 {
		t.Errorf("%d served, %d refused of 40 with a queue of 5", served, refused)
	}
	if st := e.Stats(); st.Requests != 0 {
		t.Errorf("%d requests left after all were answered", st.Requests)
	}
}

func TestCancelFreesTheSlot(t *testing.T) {
	e := start(t, engine.Config{Model: demo(128, 1, 384), Slots: 1})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	for range 2 { // one runs, one waits
		go func() {
			_, err := e.Generate(ctx, inference.Request{Tokens: prompt(1, 10), MaxTokens: 300, Version: -1})
			failed <- err
		}()
	}
	for e.Stats().Generated < 3 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	for range 2 {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled request: %v", err)
		}
	}
	generate(t, e, inference.Request{Tokens: prompt(1, 4), MaxTokens: 1, Version: -1})
	if st := e.Stats(); st.Generated > 250 {
		t.Errorf("%d tokens generated: the cancelled request ran on", st.Generated)
	}
}

func TestCancelledRequestLeavesTheQueue(t *testing.T) {
	e := start(t, engine.Config{Model: demo(128, 1, 384), Slots: 1, Graph: true}) // 300 tokens take long
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = e.Generate(ctx, inference.Request{Tokens: prompt(1, 10), MaxTokens: 300, Version: -1}) // stopped below
	})
	for e.Stats().Generated == 0 {
		time.Sleep(time.Millisecond)
	}
	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := e.Generate(short, inference.Request{Tokens: prompt(1, 10), MaxTokens: 9, Version: -1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("queued request past its deadline: %v", err)
	}
	for steps := e.Stats().Steps; e.Stats().Steps < steps+3; {
		time.Sleep(time.Millisecond)
	}
	if st := e.Stats(); st.Requests != 1 {
		t.Errorf("%d requests under way, want only the running one", st.Requests)
	}
	stop()
	wg.Wait()
}

func TestLoadDrainsAndSwaps(t *testing.T) {
	network := tiny()
	e := start(t, engine.Config{Model: network, Slots: 2, Shards: 1})
	req := inference.Request{Tokens: prompt(4, 8), MaxTokens: 50, Temperature: 1, Seed: 8, Version: -1, Session: "s"}
	old := generate(t, e, req)
	e.Release("s")

	var during inference.Generation
	running := make(chan error)
	go func() {
		var err error
		during, err = e.Generate(t.Context(), req)
		running <- err
	}()
	for e.Stats().Generated < 53 { // 50 of the first, so the second is running
		time.Sleep(100 * time.Microsecond)
	}
	load(t, e, network, 2)
	if err := <-running; err != nil {
		t.Fatal(err)
	}
	bitEqual(t, "a load while it runs", during, old)
	fresh := generate(t, start(t, engine.Config{Model: network, Slots: 1}), req) // version 1 again
	bitEqual(t, "another engine", fresh, old)

	now := generate(t, e, req)
	if now.Version != 2 || e.Version() != 2 || cmp.Equal(now.Tokens, old.Tokens) {
		t.Errorf("after the load: version %d, engine %d, same tokens %v", now.Version, e.Version(), cmp.Equal(now.Tokens, old.Tokens))
	}
	reference, err := engine.New(engine.Config{Model: network, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer reference.Close()
	load(t, reference, network, 2)
	bitEqual(t, "a session of the old version", now, generate(t, reference, req))
}

func TestLoad(t *testing.T) {
	network := tiny()
	reads := 0
	e, err := engine.New(engine.Config{Model: network, Slots: 1, LoadWeights: func(_ context.Context, ref blob.Ref) ([]model.Tensor, error) {
		reads++
		ts, err := model.InitialTensors(network, 1)
		if ref.Key == "broken" {
			return ts[1:], err
		}
		return ts, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Generate(t.Context(), inference.Request{Tokens: []int32{1}, MaxTokens: 1, Version: -1}); !errors.Is(err, inference.ErrStaleVersion) {
		t.Errorf("before the first load: %v, want ErrStaleVersion", err)
	}
	if err := e.Load(t.Context(), blob.Ref{Key: "broken"}, 4); err == nil || !strings.Contains(err.Error(), "model.embed_tokens.weight is missing") {
		t.Errorf("broken policy: %v", err)
	}
	for range 2 {
		if err := e.Load(t.Context(), blob.Ref{Key: "good"}, 4); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 2 || e.Version() != 4 {
		t.Errorf("%d reads, version %d; want the second load of version 4 to do nothing", reads, e.Version())
	}
}

func TestCloseEndsRequests(t *testing.T) {
	e := start(t, engine.Config{Model: demo(128, 1, 384), Slots: 1})
	failed := make(chan error)
	for range 3 {
		go func() {
			_, err := e.Generate(context.Background(), inference.Request{Tokens: prompt(1, 4), MaxTokens: 300, Version: -1})
			failed <- err
		}()
	}
	for e.Stats().Generated == 0 {
		time.Sleep(time.Millisecond)
	}
	e.Close()
	for range 3 {
		if err := <-failed; err == nil {
			t.Error("a request outlived its engine")
		}
	}
}
