package external_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/config"
	"temper/internal/inference"
	"temper/internal/inference/external"
	"temper/internal/inference/external/fakes"
	"temper/internal/rl"
)

func request() inference.Request {
	return inference.Request{Tokens: []int32{1, 2, 3}, MaxTokens: 20, Temperature: 1, Seed: 7, Version: 0}
}

// TestFaultsOfAnAnswer: each either costs nothing but time, or ends the request with a
// reason; none gets into a record.
func TestFaultsOfAnAnswer(t *testing.T) {
	both, all := []string{config.EngineVLLM, config.EngineSGLang}, kinds()
	for name, row := range map[string]struct {
		kinds  []string
		faults fakes.Faults
		want   string // in the error; "" for a whole generation
	}{
		"another policy answers":       {all, fakes.Faults{WrongLabel: 1}, ""},
		"no version":                   {both, fakes.Faults{NoLabel: true}, `is of policy "", want "policy-000000-`},
		"two versions in one answer":   {both, fakes.Faults{MixedVersion: 1}, ""},
		"a pause ends it":              {all, fakes.Faults{Abort: 3}, ""},
		"the server restarts":          {all, fakes.Faults{Restart: 2}, ""},
		"half a body":                  {all, fakes.Faults{Broken: 1}, ""},
		"an error in a 200":            {all, fakes.Faults{ErrorInside: 1}, ""},
		"a web page":                   {all, fakes.Faults{Page: 1}, "answers a web page"},
		"loaded too much":              {all, fakes.Faults{Unavailable: 1}, "policy engine overloaded"},
		"no last log-probability":      {all, fakes.Faults{MissingLogprob: true}, "log-probabilities"},
		"one log-probability too many": {all, fakes.Faults{ExtraLogprob: true}, "log-probabilities"},
		"null":                         {all, fakes.Faults{NullLogprob: true}, "log-probability NaN"},
		"-inf":                         {all, fakes.Faults{InfLogprob: true}, "log-probability -Inf"},
		"a padded token":               {all, fakes.Faults{PaddedToken: true}, "token id 64 is outside the vocabulary of 64"},
		"ten times as slow":            {all, fakes.Faults{Slow: 10 * time.Millisecond}, ""},
	} {
		for _, kind := range row.kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				b := newBed(t, kind, 3*time.Second)
				b.load(t, 0)
				b.fail(t, row.faults)
				gen, err := b.Generate(t.Context(), request())
				if row.want != "" {
					if err == nil || !strings.Contains(err.Error(), row.want) {
						t.Fatalf("error %v, want one with %q", err, row.want)
					}
					return
				}
				if err != nil || len(gen.Tokens) != 20 || len(gen.Logprobs) != 20 || gen.Finish != rl.FinishLength || gen.Version != 0 {
					t.Fatalf("%+v, error %v", gen, err)
				}
				dir := filepath.Join(b.folder, "policy-000000-000000000000")
				want, err := fakes.Publisher{Vocab: vocab}.Logprobs(t.Context(), dir, slices.Concat(request().Tokens, gen.Tokens), 3, 1)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					if d := gen.Logprobs[i] - want[i]; d > 1e-5 || d < -1e-5 {
						t.Errorf("log-probability %d is %v, want %v: it is not of this policy", i, gen.Logprobs[i], want[i])
					}
				}
			})
		}
	}
}

// TestFaultsOfALoad: a version does not count, whatever the server says.
func TestFaultsOfALoad(t *testing.T) {
	both := []string{config.EngineVLLM, config.EngineSGLang}
	for name, row := range map[string]struct {
		kinds  []string
		faults fakes.Faults
		want   string
	}{
		"old weights under the new label": {both, fakes.Faults{StaleWeights: true}, "computes another policy than version 1"},
		"raw log-probabilities":           {both, fakes.Faults{RawLogprobs: true}, "from before the temperature"},
		"no routes that load":             {[]string{config.EngineVLLM}, fakes.Faults{NoDevMode: true}, "VLLM_SERVER_DEV_MODE=1"},
		"it fails":                        {both, fakes.Faults{LoadFails: true}, ""},
		"a smaller context":               {kinds(), fakes.Faults{ShortContext: true}, "its context is 48 tokens, model.max_context is 96"},
		"NaN":                             {kinds(), fakes.Faults{NullLogprob: true}, "log-probabili"},
	} {
		for _, kind := range row.kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				b := newBed(t, kind, time.Second)
				b.load(t, 0)
				b.fail(t, row.faults)
				err := b.Load(t.Context(), fakes.Ref(2), 1)
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Fatalf("error %v, want one with %q", err, row.want)
				}
				if _, err := b.Generate(t.Context(), request()); !errors.Is(err, inference.ErrStaleVersion) {
					t.Errorf("error %v after a load that failed, want ErrStaleVersion", err)
				}
				b.fail(t, fakes.Faults{})
				b.load(t, 1)
				req := request()
				req.Version = 1
				if gen, err := b.Generate(t.Context(), req); err != nil || gen.Version != 1 {
					t.Errorf("%+v, error %v, after a load that succeeded", gen, err)
				}
			})
		}
	}
}

// TestStopTokens that a server treats in its own way.
func TestStopTokens(t *testing.T) {
	req := request()
	for id := int32(0); id < vocab; id += 2 {
		req.Stop = append(req.Stop, id)
	}
	for name, row := range map[string]struct {
		kind   string
		faults fakes.Faults
		want   string
	}{
		"vllm leaves it out":   {config.EngineVLLM, fakes.Faults{CutStop: true}, "log-probabilities"},
		"sglang leaves it out": {config.EngineSGLang, fakes.Faults{CutStop: true}, ""},
		"vllm goes on":         {config.EngineVLLM, fakes.Faults{Overshoot: true}, ""},
		"sglang goes on":       {config.EngineSGLang, fakes.Faults{Overshoot: true}, ""},
		"llamacpp knows none":  {config.EngineLlamaCpp, fakes.Faults{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, row.kind, time.Second)
			b.load(t, 0)
			b.fail(t, row.faults)
			gen, err := b.Generate(t.Context(), req)
			if row.want != "" {
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Fatalf("error %v, want one with %q", err, row.want)
				}
				return
			}
			if err != nil || gen.Finish != rl.FinishStop || len(gen.Logprobs) != len(gen.Tokens) {
				t.Fatalf("%+v, error %v", gen, err)
			}
			for i, id := range gen.Tokens {
				if (id%2 == 0) != (i == len(gen.Tokens)-1) {
					t.Errorf("tokens %v, want the first even one to be the last", gen.Tokens)
				}
			}
		})
	}
}

// TestCut gets back what a slow server has sampled so far.
func TestCut(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			b := newBed(t, kind, time.Second)
			b.load(t, 0)
			b.fail(t, fakes.Faults{Slow: 20 * time.Millisecond})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer time.AfterFunc(120*time.Millisecond, func() { cancel(inference.ErrCut) }).Stop()
			gen, err := b.Generate(ctx, request())
			if n := len(gen.Tokens); err != nil || gen.Finish != rl.FinishAbort || n == 0 || n == 20 || len(gen.Logprobs) != n {
				t.Errorf("%+v, error %v, want a part of 20 tokens", gen, err)
			}
		})
	}
}

// TestFolderThatDisappears is written again, and its loss during a reload is named.
func TestFolderThatDisappears(t *testing.T) {
	for _, kind := range []string{config.EngineVLLM, config.EngineSGLang} {
		b := newBed(t, kind, 2*time.Second)
		b.load(t, 0)
		entries, err := os.ReadDir(b.folder)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, error %v", entries, err)
		}
		if err := os.RemoveAll(filepath.Join(b.folder, entries[0].Name())); err != nil {
			t.Fatal(err)
		}
		b.fail(t, fakes.Faults{Restart: 1})
		if gen, err := b.Generate(t.Context(), request()); err != nil || len(gen.Tokens) != 20 {
			t.Errorf("%s: %+v, error %v", kind, gen, err)
		}
	}
	lost := newBed(t, config.EngineSGLang, time.Second)
	cfg := lost.cfg
	cfg.Publisher = vanishing{}
	e, err := external.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(t.Context(), fakes.Ref(1), 0); err == nil || !strings.Contains(err.Error(), "policy-000000-000000000000 is gone") {
		t.Errorf("error %v", err)
	}
}

// vanishing writes policies that are gone at once.
type vanishing struct{ fakes.Publisher }

func (vanishing) Write(context.Context, blob.Ref, string) error { return nil }

// TestStatus of servers that say what cannot be.
func TestStatus(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			b := newBed(t, kind, time.Second)
			b.load(t, 0)
			s, err := b.Status(t.Context())
			if err != nil || s.Exact || s.Capacity < maxContext || s.Version != 0 || s.MaxContext != maxContext {
				t.Errorf("%+v, error %v", s, err)
			}
			b.fail(t, fakes.Faults{NoCapacity: true})
			if s, err := b.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "its cache holds 0 tokens") {
				t.Errorf("capacity 0: %+v, error %v", s, err)
			}
			if kind == config.EngineLlamaCpp {
				return
			}
			b.fail(t, fakes.Faults{NaNLoad: true})
			if s, err := b.Status(t.Context()); err == nil {
				t.Errorf("NaN load: %+v", s)
			}
		})
	}
}

// TestRequestsMeetALoad: each is of the version that it asked for, or refused.
func TestRequestsMeetALoad(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			b := newBed(t, kind, 5*time.Second)
			b.load(t, 0)
			b.fail(t, fakes.Faults{Slow: 2 * time.Millisecond})
			var wg sync.WaitGroup
			for i := range 24 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * 3 * time.Millisecond)
					req := request()
					req.Version = -1
					gen, err := b.Generate(t.Context(), req)
					if err != nil {
						t.Error(err)
						return
					}
					dir := filepath.Join(t.TempDir(), "p")
					p := fakes.Publisher{Vocab: vocab}
					if err := p.Write(t.Context(), fakes.Ref(gen.Version+1), dir); err != nil {
						t.Error(err)
					}
					want, err := p.Logprobs(t.Context(), dir, slices.Concat(req.Tokens, gen.Tokens), 3, 1)
					if err != nil {
						t.Error(err)
					}
					for j := range want {
						if d := gen.Logprobs[j] - want[j]; d > 1e-5 || d < -1e-5 {
							t.Errorf("token %d of version %d has the log-probability of another", j, gen.Version)
						}
					}
				})
			}
			b.load(t, 1)
			wg.Wait()
		})
	}
}

// TestSeveralServers go on when one of them is lost, and it comes back by itself.
func TestSeveralServers(t *testing.T) {
	a, other := newBed(t, config.EngineVLLM, 2*time.Second), newBed(t, config.EngineVLLM, 2*time.Second)
	cfg := a.cfg
	cfg.URLs = append(cfg.URLs, other.cfg.URLs...)
	e, err := external.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.Load(t.Context(), fakes.Ref(1), 0); err != nil {
		t.Fatal(err)
	}
	other.server.Fail(fakes.Faults{Restart: 1})
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if gen, err := e.Generate(t.Context(), request()); err != nil || len(gen.Tokens) != 20 {
				t.Errorf("%+v, error %v", gen, err)
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(5 * time.Second); other.server.Loads() < 2 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if a.server.Loads() != 1 || other.server.Loads() != 2 {
		t.Errorf("the servers have read weights %d and %d times, want 1 and 2", a.server.Loads(), other.server.Loads())
	}
}

// TestConfigurations that cannot work are refused before a server is asked.
func TestConfigurations(t *testing.T) {
	good := newBed(t, config.EngineVLLM, time.Second).cfg
	for want, change := range map[string]func(*external.Config){
		`engine kind "tgi", want vllm, sglang or llamacpp`:         func(c *external.Config) { c.Kind = "tgi" },
		"engine vllm: no url":                                      func(c *external.Config) { c.URLs = nil },
		`engine url "localhost:8000", want http://HOST:PORT`:       func(c *external.Config) { c.URLs = []string{"localhost:8000"} },
		"engine llamacpp: no command that starts a server":         func(c *external.Config) { c.Kind = config.EngineLlamaCpp },
		"engine: no folder for policies":                           func(c *external.Config) { c.Folder = "" },
		"engine: max_context 0 and vocabulary 64, want at least 2": func(c *external.Config) { c.MaxContext = 0 },
		"engine: tolerance -1, want more than 0":                   func(c *external.Config) { c.Tolerance = -1 },
	} {
		cfg := good
		change(&cfg)
		if _, err := external.New(cfg); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// listener is a log that is called with each message.
type listener func(message string)

func (l listener) Enabled(context.Context, slog.Level) bool { return true }

func (l listener) Handle(_ context.Context, r slog.Record) error { l(r.Message); return nil }

func (l listener) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l listener) WithGroup(string) slog.Handler { return l }

// heldPublisher does not write a policy before it may.
type heldPublisher struct {
	fakes.Publisher
	hold          blob.Ref
	writing, free chan struct{}
}

func (p heldPublisher) Write(ctx context.Context, ref blob.Ref, dir string) error {
	if ref == p.hold {
		close(p.writing)
		<-p.free
	}
	return p.Publisher.Write(ctx, ref, dir)
}

// TestALossMeetsALoad: the load waits for a request whose server was lost, and the request brings
// the server back.
func TestALossMeetsALoad(t *testing.T) {
	b := newBed(t, config.EngineVLLM, 5*time.Second)
	p := heldPublisher{fakes.Publisher{Vocab: vocab}, fakes.Ref(2), make(chan struct{}), make(chan struct{})}
	lost := make(chan struct{})
	once := sync.OnceFunc(func() { close(lost) })
	cfg := b.cfg
	cfg.Publisher, cfg.Log = p, slog.New(listener(func(message string) {
		if message == "engine server lost" {
			once()
		}
	}))
	e, err := external.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.Load(t.Context(), fakes.Ref(1), 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if err := e.Load(ctx, fakes.Ref(2), 1); err != nil {
			t.Errorf("load: %v", err)
		}
	})
	<-p.writing
	b.fail(t, fakes.Faults{Restart: 1})
	wg.Go(func() {
		if gen, err := e.Generate(t.Context(), request()); err != nil || len(gen.Tokens) != 20 {
			t.Errorf("%+v, error %v", gen, err)
		}
	})
	<-lost
	close(p.free)
}

// TestAServerLostTwice comes back also when it is lost again just when it has come back.
func TestAServerLostTwice(t *testing.T) {
	a, other := newBed(t, config.EngineVLLM, 2*time.Second), newBed(t, config.EngineVLLM, 2*time.Second)
	back, free := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() {
		close(back)
		<-free
	})
	cfg := a.cfg
	cfg.URLs = append(cfg.URLs, other.cfg.URLs...)
	cfg.Log = slog.New(listener(func(message string) {
		if message == "engine server is back" {
			once()
		}
	}))
	e, err := external.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.Load(t.Context(), fakes.Ref(1), 0); err != nil {
		t.Fatal(err)
	}
	lose := func() {
		a.server.Fail(fakes.Faults{Restart: 1})
		if gen, err := e.Generate(t.Context(), request()); err != nil || len(gen.Tokens) != 20 {
			t.Errorf("%+v, error %v", gen, err)
		}
	}
	lose()
	<-back
	lose()
	close(free)
	for deadline := time.Now().Add(5 * time.Second); a.server.Loads() < 3 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if got := a.server.Loads(); got != 3 {
		t.Errorf("the server has read weights %d times, want 3", got)
	}
}
