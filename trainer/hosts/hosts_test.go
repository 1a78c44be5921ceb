package hosts_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"temper/internal/config"
	"temper/internal/rl"
	"temper/trainer"
	"temper/trainer/checkpoint"
	"temper/trainer/hosts"
	"temper/trainer/model"
)

// identity of the processes of these tests, which are one.
func identity(name string) hosts.Identity {
	return hosts.Identity{Name: name, Build: "b1", Backend: "go", Lanes: 2}
}

// site is a hub with hosts over loopback connections.
type site struct {
	t     *testing.T
	hub   *hosts.Hub
	where string
	log   *lines
}

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// patience is longer than a busy machine stops a process for.
const patience = 8 * time.Second

func newSite(t *testing.T, token string) *site { return newSiteOf(t, hosts.Config{Token: token}) }

func newSiteOf(t *testing.T, cfg hosts.Config) *site {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, where: l.Addr().String(), log: &lines{}}
	if cfg.Backend == "" {
		cfg.Identity = identity("hub")
	}
	cfg.Patience, cfg.Log = patience, slog.New(slog.NewTextHandler(s.log, nil))
	s.hub = hosts.NewHub(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.hub.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// join starts a host over a connection that wrap may spoil, and returns how it ends.
func (s *site) join(m *hosts.Host, wrap func(net.Conn) net.Conn) <-chan error {
	s.t.Helper()
	c, err := net.Dial("tcp", s.where) //nolint:noctx // a test
	if err != nil {
		s.t.Fatal(err)
	}
	if wrap != nil {
		c = wrap(c)
	}
	if m.Log == nil {
		m.Log = slog.New(slog.DiscardHandler)
	}
	m.Patience = patience
	ctx, cancel := context.WithCancel(context.Background())
	ended, over := make(chan error, 1), make(chan struct{})
	go func() { defer close(over); ended <- m.Serve(ctx, c) }()
	s.t.Cleanup(func() { cancel(); <-over })
	return ended
}

// hosts waits until so many have joined.
func (s *site) hosts(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d hosts", n), func(c hosts.Counts) bool { return c.Hosts == n })
}

func (s *site) await(what string, ok func(hosts.Counts) bool) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(s.hub.Counts()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("want %s, have %+v\n%s", what, s.hub.Counts(), s.log)
		}
	}
}

func smallConfig() trainer.Config {
	return trainer.Config{
		Model: model.Config{
			VocabSize: 37, HiddenSize: 16, IntermediateSize: 24, NumHiddenLayers: 2, NumAttentionHeads: 2, NumKeyValueHeads: 1,
			HeadDim: 8, MaxPositionEmbeddings: 96, RopeTheta: 1e4, RMSNormEps: 1e-6, TieWordEmbeddings: true, InitializerRange: 0.1,
		},
		Seed: 7, MicrobatchTokens: 1 << 14, LaneTokens: 64, Temperature: 1,
		Loss: config.Loss{ClipLow: 0.2, ClipHigh: 0.28, KL: config.KL{Coefficient: 0.1, Estimator: "k3"}, EntropyFraction: 0.5},
	}
}

func adam(freeze ...string) config.Optimizer {
	return config.Optimizer{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1, Schedule: "constant", Freeze: freeze}
}

func samples(n, most int, seed uint64) []rl.Sample {
	draw := rl.Rand(seed)
	out := make([]rl.Sample, n)
	for i := range out {
		length := most/2 + draw.IntN(most/2) + 1
		s := rl.Sample{ProblemID: "p", Rollout: i, Advantage: float32(draw.NormFloat64()), Tokens: make([]int32, length),
			LossMask: make([]bool, length), RolloutLogprobs: make([]float32, length)}
		for p := range length {
			s.Tokens[p], s.LossMask[p], s.RolloutLogprobs[p] = int32(draw.IntN(37)), p > length/4 && p%7 != 0, float32(-3.5-draw.Float64())
		}
		out[i] = s
	}
	return out
}

// trained is all that updates leave: the state, and what they said.
type trained struct {
	Metrics []rl.TrainMetrics
	Scores  [][]float32
	State   checkpoint.State
}

// train makes supervised updates, policy updates in one and several minibatches, other
// trained tensors, and scores. between is called before each update.
func train(t *testing.T, cfg trainer.Config, between func(i int)) trained {
	t.Helper()
	tr, err := trainer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Init(1); err != nil {
		t.Fatal(err)
	}
	if err := tr.KeepReference(); err != nil {
		t.Fatal(err)
	}
	var out trained
	s := samples(12, 24, 3)
	for i := range 4 {
		if between != nil {
			between(i)
		}
		var m rl.TrainMetrics
		switch at := (trainer.Position{Step: i + 1}); {
		case i < 1:
			m, err = tr.SFTStep(t.Context(), s, adam(), at)
		case i < 3:
			m, err = tr.Update(t.Context(), rl.Batch{Step: i, Samples: s}, trainer.UpdateOptions{Optimizer: adam(), Position: at, NumMinibatches: i})
		default:
			if err = tr.ResetOptimizer(); err == nil {
				m, err = tr.SFTStep(t.Context(), s, adam("model.embed_tokens.weight"), at)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Metrics = append(out.Metrics, m)
	}
	if out.Scores, err = tr.Logprobs(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if out.State, err = tr.Snapshot(checkpoint.State{}); err != nil {
		t.Fatal(err)
	}
	return out
}

func same(t *testing.T, what string, got, want trained) {
	t.Helper()
	if diff := cmp.Diff(got.Metrics, want.Metrics); diff != "" {
		t.Errorf("%s: metrics, -got +want of one process:\n%s", what, diff)
	}
	if !cmp.Equal(got.Scores, want.Scores) || !cmp.Equal(got.State, want.State) {
		t.Errorf("%s: scores or state have other bits than those of one process", what)
	}
}

// TestHostsChangeNoBit: an update has the bits of one process, with 2 and 4.
func TestHostsChangeNoBit(t *testing.T) {
	want := train(t, smallConfig(), nil)
	for _, n := range []int{1, 3} {
		s := newSite(t, "")
		for i := range n {
			s.join(&hosts.Host{Identity: identity(fmt.Sprint("m", i))}, nil)
		}
		s.hosts(n)
		cfg := smallConfig()
		cfg.Remote, cfg.Lanes = s.hub.Session("r"), 1
		same(t, fmt.Sprintf("%d hosts", n), train(t, cfg, nil), want)
		c := s.hub.Counts()
		if c.Passes < 8 || c.Redone != 0 || c.Lost != 0 {
			t.Errorf("%+v, want passes made by hosts and none lost", c)
		}
		t.Logf("%+v", c)
	}
}

// cut is a connection that breaks in the middle of what the host sends.
type cut struct {
	net.Conn
	left int
	stop bool // breaks by silence
}

func (c *cut) Write(p []byte) (int, error) {
	if c.left -= len(p); c.left < 0 {
		n, _ := c.Conn.Write(p[:len(p)/2])
		if c.stop {
			time.Sleep(patience + time.Second)
		}
		return n, errors.Join(errors.New("cut"), c.Close())
	}
	return c.Conn.Write(p)
}

// TestMembersAreLost: hosts that die in the middle of a gradient, fall silent in it, or
// come back change no bit.
func TestMembersAreLost(t *testing.T) {
	want := train(t, smallConfig(), nil)
	for name, silent := range map[string]bool{"dies": false, "falls silent": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "")
			s.join(&hosts.Host{Identity: identity("good")}, nil)
			cfg := smallConfig()
			cfg.Remote, cfg.Lanes = s.hub.Session("r"), 1
			got := train(t, cfg, func(i int) {
				if i < 2 { // each breaks inside a result
					s.join(&hosts.Host{Identity: identity("bad")}, func(c net.Conn) net.Conn { return &cut{c, 2000 + 5000*i, silent} })
				}
				s.await("the host", func(c hosts.Counts) bool { return c.Joined == int64(2+min(i, 1)) })
			})
			same(t, name, got, want)
			if c := s.hub.Counts(); c.Lost != 2 || c.Redone == 0 || c.Hosts != 1 {
				t.Errorf("%+v, want 2 lost with passes that were made again, and the good one still there\n%s", c, s.log)
			}
		})
	}
}

// TestWhoMayNotJoin: hosts that would compute other bits, or are strangers, are refused
// with the reason, on both sides.
func TestWhoMayNotJoin(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*hosts.Host)
		want   string
	}{
		"another build":   {func(m *hosts.Host) { m.Build = "b2" }, "build b2, the trainer is b1"},
		"another backend": {func(m *hosts.Host) { m.Backend = "xla:cpu" }, "backend xla:cpu, the trainer computes on go"},
		"a wrong token":   {func(m *hosts.Host) { m.Token = "guess" }, "token"},
		"no lanes":        {func(m *hosts.Host) { m.Lanes = 0 }, "0 lanes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "secret")
			m := &hosts.Host{Identity: identity("m"), Token: "secret"}
			row.change(m)
			err := <-s.join(m, nil)
			if !errors.Is(err, hosts.ErrRefused) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("error %v, want a refusal with %q", err, row.want)
			}
			s.await("a refusal", func(c hosts.Counts) bool { return c.Refused == 1 })
			if c := s.hub.Counts(); c.Hosts != 0 || !strings.Contains(s.log.String(), row.want) {
				t.Errorf("%+v, log %s", c, s.log)
			}
		})
	}
}

// TestGarbage: what is no frame ends the connection, and the hub goes on.
func TestGarbage(t *testing.T) {
	s := newSite(t, "")
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("\x00", 64), "\x02\x00\x00\x00" + strings.Repeat("\x00", 12) + "{}"} {
		c, err := net.Dial("tcp", s.where) //nolint:noctx // a test
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: %d bytes, error %v, want the end", text, n, err)
		}
		_ = c.Close()
	}
	s.await("three refusals", func(c hosts.Counts) bool { return c.Refused == 3 })
	s.join(&hosts.Host{Identity: identity("m")}, nil)
	s.hosts(1)
}

// TestTrainerOfTheDead: a host that has worked for an epoch of a run refuses a trainer
// that holds an older one, which then makes its update alone.
func TestTrainerOfTheDead(t *testing.T) {
	m := &hosts.Host{Identity: identity("m")}
	for _, epoch := range []int64{5, 4} {
		s := newSite(t, "")
		s.hub.Lead("r", epoch)
		ended := s.join(m, nil)
		s.hosts(1)
		cfg := smallConfig()
		cfg.Remote, cfg.Lanes = s.hub.Session("r"), 1
		train(t, cfg, nil)
		c := s.hub.Counts()
		if epoch == 5 && c.Passes == 0 {
			t.Errorf("%+v, want passes of the host", c)
		}
		if epoch == 4 && (c.Passes != 0 || !strings.Contains(s.log.String(), "epoch 4 of run r is over: a trainer of epoch 5 holds the run")) {
			t.Errorf("%+v, want no passes\n%s", c, s.log)
		}
		if epoch == 5 {
			s.stopHost(m, ended)
		}
	}
}

// TestDeclinedUnderAnEarlierEpoch: a host that refused an epoch of a run is asked again
// under the next one, of the same trainer.
func TestDeclinedUnderAnEarlierEpoch(t *testing.T) {
	m := &hosts.Host{Identity: identity("m")}
	for _, epochs := range [][]int64{{5}, {4, 6}} {
		s := newSite(t, "")
		ended := s.join(m, nil)
		s.hosts(1)
		cfg := smallConfig()
		cfg.Remote, cfg.Lanes = s.hub.Session("r"), 1
		s.hub.Lead("r", epochs[0])
		learn(t, cfg, func(updates int) bool {
			s.hub.Lead("r", epochs[min(updates, len(epochs)-1)]) // the lease is taken again
			return updates == 3
		})
		if c := s.hub.Counts(); c.Updated == 0 {
			t.Errorf("%+v under epochs %v, want a host that got weights\n%s", c, epochs, s.log)
		}
		s.stopHost(m, ended)
	}
}

// stopHost ends the connection of the one host and waits for it.
func (s *site) stopHost(_ *hosts.Host, ended <-chan error) {
	s.t.Helper()
	s.hub.Dismiss()
	select {
	case err := <-ended:
		s.t.Log("the host ended:", err)
	case <-time.After(30 * time.Second):
		s.t.Fatal("the host did not end")
	}
}
