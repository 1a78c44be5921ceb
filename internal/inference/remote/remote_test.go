package remote_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/inference"
	"temper/internal/inference/inferencetest"
	"temper/internal/inference/remote"
	"temper/internal/rl"
	"temper/trainer/engine"
	"temper/trainer/model"
	"temper/trainer/weights/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is a network for tests of behaviour rather than numbers.
var tiny = model.Config{
	VocabSize: 50, HiddenSize: 32, IntermediateSize: 48, NumHiddenLayers: 2, NumAttentionHeads: 4,
	NumKeyValueHeads: 2, HeadDim: 8, MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, InitializerRange: 0.3,
}

// who is the identity of the engines of these tests.
var who = remote.Identity{Name: "one", Run: "run-1", Build: "test", Model: "tiny", Vocab: tiny.VocabSize, Holder: "holder-1"}

// expect is what their callers expect.
var expect = remote.Expect{Run: who.Run, Model: who.Model, Vocab: who.Vocab}

// served is a real engine behind HTTP. A policy is a number in the store, from which
// the weights are drawn.
type served struct {
	store  blob.Store
	engine *engine.Engine
	wire   *remote.Server
	http   *httptest.Server
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{store: memblob.New()}
	e, err := engine.New(engine.Config{Model: tiny, Slots: 16, LoadWeights: func(ctx context.Context, ref blob.Ref) ([]tensor.Named, error) {
		data, err := blob.ReadRef(ctx, s.store, ref)
		if err != nil {
			return nil, err
		}
		seed, err := strconv.ParseUint(string(data), 10, 64)
		if err != nil {
			return nil, err
		}
		return model.InitialTensors(tiny, seed)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	s.engine = e
	s.wire = remote.NewServer(e, who, nil)
	s.http = httptest.NewServer(s.wire.Handler())
	t.Cleanup(s.http.Close)
	return s
}

// publish stores a policy.
func (s *served) publish(t *testing.T, version int64) blob.Ref {
	t.Helper()
	ref, err := blob.PutBytes(t.Context(), s.store, fmt.Sprintf("policies/%d", version), []byte(strconv.FormatInt(version+1, 10)), blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func dial(t *testing.T, url string) *remote.Engine {
	t.Helper()
	e, err := remote.Dial(t.Context(), remote.Config{Address: url, Expect: expect})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// loaded is a client of an engine that serves version 0.
func loaded(t *testing.T) (*served, *remote.Engine) {
	t.Helper()
	s := serve(t)
	e := dial(t, s.http.URL)
	if err := e.Load(t.Context(), s.publish(t, 0), 0); err != nil {
		t.Fatal(err)
	}
	return s, e
}

// TestContract runs the suite of every policy engine over client and server, bit for bit.
func TestContract(t *testing.T) {
	_, e := loaded(t)
	inferencetest.Run(t, func(*testing.T) inferencetest.Subject {
		return inferencetest.Subject{Engine: e, Prompt: []int32{1, 2, 3, 4, 5}, Vocab: tiny.VocabSize}
	})
}

// request is one that takes a while.
func request(seed uint64) inference.Request {
	return inference.Request{Tokens: []int32{1, 2, 3, 4, 5}, MaxTokens: 80, Temperature: 1, Seed: seed, Version: 0}
}

// TestSameBits compares what comes over the network with what the engine itself says.
func TestSameBits(t *testing.T) {
	s, e := loaded(t)
	var wg sync.WaitGroup
	for seed := range uint64(24) {
		wg.Go(func() {
			req := request(seed)
			req.Session = fmt.Sprint("session ", seed%5)
			got, err := e.Generate(t.Context(), req)
			want, err2 := s.engine.Generate(t.Context(), request(seed))
			if err = errors.Join(err, err2); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("seed %d (-here +there):\n%s", seed, diff)
			}
			e.Release(req.Session)
		})
	}
	wg.Wait()
}

// idle waits until an engine has nothing under way.
func (s *served) idle(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		st, err := s.engine.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st.Running+st.Waiting == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d requests run and %d wait", st.Running, st.Waiting)
		}
	}
}

// slow delays each generation at the server until its context ends.
type slow struct {
	*engine.Engine
	began chan struct{}
}

func (s slow) Generate(ctx context.Context, _ inference.Request) (inference.Generation, error) {
	s.began <- struct{}{}
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), inference.ErrCut) {
		return inference.Generation{Tokens: []int32{7, 8}, Logprobs: []float32{-1, -2}, Finish: rl.FinishAbort}, nil
	}
	return inference.Generation{}, ctx.Err()
}

// TestCutReturnsWhatWasSampled: the end of a context frees the engine, and a cut
// brings what the engine has.
func TestCutReturnsWhatWasSampled(t *testing.T) {
	s := serve(t)
	sl := slow{s.engine, make(chan struct{}, 1)}
	srv := remote.NewServer(sl, who, nil)
	web := httptest.NewServer(srv.Handler())
	t.Cleanup(web.Close)
	e := dial(t, web.URL)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-sl.began; cancel(inference.ErrCut) }()
	got, err := e.Generate(ctx, request(1))
	want := inference.Generation{Tokens: []int32{7, 8}, Logprobs: []float32{-1, -2}, Finish: rl.FinishAbort}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("cut: %v (-want +got):\n%s", err, diff)
	}
	gone, leave := context.WithCancel(t.Context())
	go func() { <-sl.began; leave() }()
	if _, err := e.Generate(gone, request(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	srv.Drain()
	inTime, done := context.WithTimeout(t.Context(), 5*time.Second)
	defer done()
	if err := srv.Finish(inTime); err != nil { // the closed connection has ended the generation
		t.Errorf("something is still under way: %v", err)
	}
}

// TestLateMemberIsLoadedAgain: an engine that another client has moved to another
// version, or that has started anew, serves the client's policy again.
func TestLateMemberIsLoadedAgain(t *testing.T) {
	s, e := loaded(t)
	want, err := e.Generate(t.Context(), request(3))
	if err != nil {
		t.Fatal(err)
	}
	other := dial(t, s.http.URL)
	if err := other.Load(t.Context(), s.publish(t, 1), 1); err != nil {
		t.Fatal(err)
	}
	got, err := e.Generate(t.Context(), request(3))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	req := request(3)
	req.Version = 7
	if _, err := e.Generate(t.Context(), req); !errors.Is(err, inference.ErrStaleVersion) {
		t.Errorf("error %v for a version that was never loaded, want ErrStaleVersion", err)
	}
}

// TestLoadIsProven: bytes that are not those of the reference, a policy that is not
// there, and another content under the number that is served are refused.
func TestLoadIsProven(t *testing.T) {
	s, e := loaded(t)
	damaged := s.publish(t, 1)
	if _, err := blob.PutBytes(t.Context(), s.store, damaged.Key, []byte("9"), blob.Always); err != nil {
		t.Fatal(err)
	}
	if err := e.Load(t.Context(), damaged, 1); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("damaged: %v, want ErrCorrupt", err)
	}
	absent := damaged
	absent.Key = "policies/none"
	if err := e.Load(t.Context(), absent, 1); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("absent: %v, want ErrNotExist", err)
	}
	if err := e.Load(t.Context(), damaged, 0); !errors.Is(err, blob.ErrCorrupt) {
		t.Errorf("another content as version 0: %v, want ErrCorrupt", err)
	}
	if st, err := e.Status(t.Context()); err != nil || st.Version != 0 || !st.Exact {
		t.Errorf("status %+v (%v), want version 0", st, err)
	}
	if err := e.Load(t.Context(), s.publish(t, 0), 0); err != nil {
		t.Errorf("the same policy again: %v", err)
	}
}

// TestDrain: a draining engine ends what it has, takes nothing new and says so.
func TestDrain(t *testing.T) {
	s, e := loaded(t)
	if err := e.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Generate(t.Context(), request(1)); !errors.Is(err, inference.ErrOverloaded) {
		t.Errorf("error %v, want ErrOverloaded", err)
	}
	if st, err := e.Status(t.Context()); err != nil || !st.Draining {
		t.Errorf("status %+v (%v), want draining", st, err)
	}
	if err := s.wire.Finish(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestBrokenConnections: answers that get lost on the way change nothing.
func TestBrokenConnections(t *testing.T) {
	s, _ := loaded(t)
	var mu sync.Mutex
	calls := 0
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls++
		broken := calls%3 != 0
		mu.Unlock()
		if broken {
			s.wire.Handler().ServeHTTP(httptest.NewRecorder(), r) // the work is done, the answer is lost
			panic(http.ErrAbortHandler)
		}
		s.wire.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	e := dial(t, web.URL)
	for seed := range uint64(4) {
		got, err := e.Generate(t.Context(), request(seed))
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.engine.Generate(t.Context(), request(seed))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("seed %d: %v (-want +got):\n%s", seed, err, diff)
		}
	}
	s.idle(t)
	web.Close()
	if _, err := e.Generate(t.Context(), request(1)); err == nil || remote.IsRefusal(err) || errors.Is(err, remote.ErrGarbage) {
		t.Errorf("error %v of a dead engine, want one of the way to it", err)
	}
}
