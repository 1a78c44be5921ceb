package workers

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/inference"
	"temper/internal/inference/fleet"
	"temper/internal/inference/inferencetest"
	"temper/internal/inference/lease"
	"temper/internal/inference/remote"
	"temper/internal/run"
	"temper/trainer/model"
)

// scripted is an engine of 50 token ids that can be made to lie.
type scripted struct {
	*inferencetest.Script
	lie *bool
}

func (s scripted) Load(_ context.Context, _ blob.Ref, version int64) error {
	s.Serving = version
	return nil
}

func (s scripted) Status(context.Context) (inference.Status, error) {
	return inference.Status{Version: s.Version(), MaxContext: s.MaxContext(), Capacity: 4096, Exact: true}, nil
}

func (s scripted) Generate(ctx context.Context, req inference.Request) (inference.Generation, error) {
	gen, err := s.Script.Generate(ctx, req)
	if err == nil && *s.lie {
		gen.Tokens[0] = 50
	}
	return gen, err
}

// membership is a group of engines that are found in a store.
type membership struct {
	*engineWatcher
	t     *testing.T
	store blob.Store
	loads *run.Loaded
	now   time.Time
	said  bytes.Buffer
}

func newMembership(t *testing.T, o EnginesOptions) *membership {
	t.Helper()
	m := &membership{t: t, store: memblob.New(), loads: &run.Loaded{Ref: run.Ref{RunID: "run-1"}, Model: model.Config{VocabSize: 50}}}
	group, err := fleet.New(fleet.Config{MaxContext: 64, Now: time.Now, Every: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(group.Close)
	log := slog.New(slog.NewTextHandler(&m.said, nil))
	m.engineWatcher = newEngineWatcher(m.store, m.loads, group, o, newRemoteEngines(m.store, o, log).counts, log)
	if m.reader != nil {
		m.reader = lease.NewReader(m.store, "run-1", func() time.Time { return m.now }, 0)
	}
	t.Cleanup(func() {
		for name := range m.joined {
			m.remove(name, "")
		}
		m.leaving.Wait()
	})
	return m
}

// start serves an engine and returns its address. change may be nil.
func (m *membership) start(name string, change func(*remote.Identity)) (address string, lie *bool) {
	m.t.Helper()
	who, err := identify(m.loads, name, "go")
	if err != nil {
		m.t.Fatal(err)
	}
	if change != nil {
		change(&who)
	}
	lie = new(bool)
	engine := scripted{&inferencetest.Script{Reply: inferencetest.Random(50), Serving: -1, Context: 64}, lie}
	web := httptest.NewServer(remote.NewServer(engine, who, nil).Handler())
	m.t.Cleanup(web.Close)
	m.announce(name, web.URL, who.Holder)
	return web.URL, lie
}

// announce writes a lease.
func (m *membership) announce(name, address, holder string) {
	m.t.Helper()
	e := lease.Entry{Format: 1, Name: name, Run: "run-1", Address: address, Holder: holder}
	if _, err := blob.PutJSON(m.t.Context(), m.store, "engines/run-1/"+name+".json", e, blob.Always); err != nil {
		m.t.Fatal(err)
	}
}

// want looks once and compares the group.
func (m *membership) want(joined, refused int) {
	m.t.Helper()
	m.look(m.t.Context())
	if len(m.joined) != joined || len(m.refused) != refused {
		m.t.Fatalf("%d engines have joined and %d are left out, want %d and %d:\n%s", len(m.joined), len(m.refused), joined, refused, &m.said)
	}
}

// sample makes the group load a policy and answer.
func (m *membership) sample(version int64) error {
	m.t.Helper()
	if err := m.group.Load(m.t.Context(), blob.RefOf("p", nil), version); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
	defer cancel()
	_, err := m.group.Generate(ctx, inference.Request{Tokens: []int32{1}, MaxTokens: 8, Temperature: 1, Version: version})
	return err
}

// TestEnginesComeAndGo: an engine joins when its lease is seen, leaves when the lease
// does not change any more, and joins again as another process.
func TestEnginesComeAndGo(t *testing.T) {
	m := newMembership(t, EnginesOptions{Registry: true})
	m.want(0, 0)
	m.start("one", nil)
	m.start("two", nil)
	m.want(2, 0)
	if err := m.sample(3); err != nil {
		t.Fatal(err)
	}
	m.announce("dead", "http://127.0.0.1:1", "nobody")
	m.want(2, 0)
	if n := strings.Count(m.said.String(), "engine does not answer"); n != 1 {
		t.Errorf("a dead engine was logged %d times, want once", n)
	}
	m.now = m.now.Add(time.Minute) // nobody renews
	m.want(0, 0)
	if n := strings.Count(m.said.String(), "its lease has expired"); n != 2 {
		t.Errorf("two expired leases were logged %d times:\n%s", n, &m.said)
	}
	m.start("two", nil)
	m.want(1, 0)
	m.now = m.now.Add(lease.Every)
	m.start("two", nil) // started anew, at another address
	m.want(1, 0)
	if err := m.sample(4); err != nil {
		t.Fatal(err)
	}
}

// TestLiarsAreLeftOut: an engine that gives an answer which cannot be true is used no
// more, until another process has its name. Nothing it said is part of an answer.
func TestLiarsAreLeftOut(t *testing.T) {
	m := newMembership(t, EnginesOptions{Registry: true})
	_, lie := m.start("one", nil)
	m.want(1, 0)
	*lie = true
	if err := m.sample(3); err == nil {
		t.Error("a liar has answered")
	}
	for range 3 {
		m.want(0, 1)
	}
	if n := strings.Count(m.said.String(), "engine is left out"); n != 1 || m.counts.refusals["untrusted"] != 1 {
		t.Errorf("a liar was logged %d times and counted %d times, want once:\n%s", n, m.counts.refusals["untrusted"], &m.said)
	}
	m.start("one", nil)
	m.want(1, 0)
	if err := m.sample(4); err != nil {
		t.Error(err)
	}
}

// TestEnginesOfOthersAreLeftOut: engines of another run, model or kind of kernels, and
// one that stands under two names, do not join.
func TestEnginesOfOthersAreLeftOut(t *testing.T) {
	m := newMembership(t, EnginesOptions{Registry: true})
	m.start("a", nil)
	m.want(1, 0)
	m.start("run", func(who *remote.Identity) { who.Run = "run-2" })
	m.start("model", func(who *remote.Identity) { who.Model = "other" })
	m.start("vocab", func(who *remote.Identity) { who.Vocab = 51 })
	m.start("kernels", func(who *remote.Identity) { who.Kernels = "other" })
	m.start("twice", func(who *remote.Identity) { who.Holder = m.joined["a"].identity })
	for range 2 {
		m.want(1, 5)
	}
	for _, want := range []string{`serves run \"run-2\"`, "fingerprint", "vocabulary of 51", "computes with", "is the same process as a"} {
		if !strings.Contains(m.said.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &m.said)
		}
	}
}

// TestFixedAddresses: engines at addresses that a person gave join when they answer, and
// a liar among them stays out.
func TestFixedAddresses(t *testing.T) {
	other := newMembership(t, EnginesOptions{})
	a, _ := other.start("a", nil)
	b, lie := other.start("b", nil)
	m := newMembership(t, EnginesOptions{Addresses: []string{a, b, "127.0.0.1:1"}})
	m.want(2, 0)
	if err := m.sample(1); err != nil {
		t.Fatal(err)
	}
	*lie = true
	for i := int64(2); len(m.refused) == 0 && i < 50; i++ {
		var wg sync.WaitGroup
		for range 8 { // one alone may always be placed on the engine that tells the truth
			wg.Go(func() {
				if err := m.sample(i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		m.look(t.Context())
	}
	for range 2 {
		m.want(1, 1)
	}
}
