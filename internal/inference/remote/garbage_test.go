package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"temper/internal/blob"
	"temper/internal/inference"
	"temper/internal/inference/remote"
	"temper/internal/rl"
)

// liar answers with what a test says.
type liar struct {
	status remote.Status
	answer any
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var v any = l.status
	if r.URL.Path != remote.PathStatus {
		v = l.answer
	}
	if text, ok := v.(string); ok {
		_, _ = w.Write([]byte(text))
		return
	}
	_ = json.NewEncoder(w).Encode(v)
}

// honest is the status of an engine that can be used.
func honest() remote.Status {
	return remote.Status{Status: inference.Status{Version: 4, MaxContext: 96, Capacity: 1000, Exact: true}, Identity: who}
}

// TestGarbageStatus: an engine of another run or model, and one whose figures cannot be
// true, are refused with one line that names what is wrong.
func TestGarbageStatus(t *testing.T) {
	for want, change := range map[string]func(*remote.Status){
		`serves run "run-2", want "run-1"`:                func(s *remote.Status) { s.Run = "run-2" },
		`serves a model with fingerprint "other"`:         func(s *remote.Status) { s.Model = "other" },
		"has a vocabulary of 51, the run has 50":          func(s *remote.Status) { s.Vocab = 51 },
		"reports a capacity of 0 tokens, want at least 1": func(s *remote.Status) { s.Capacity = 0 },
		"reports a max_context of 0, want at least 1":     func(s *remote.Status) { s.MaxContext = 0 },
		"reports a load below 0: used 0, running -1":      func(s *remote.Status) { s.Running = -1 },
		"reports a load below 0: used -5, running 0":      func(s *remote.Status) { s.Used = -5 },
		"reports version -2":                              func(s *remote.Status) { s.Version = -2 },
	} {
		l := &liar{status: honest()}
		change(&l.status)
		web := httptest.NewServer(l)
		_, err := remote.Dial(t.Context(), remote.Config{Address: web.URL, Expect: expect})
		web.Close()
		if !errors.Is(err, remote.ErrGarbage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v, want ErrGarbage with %q in one line", err, want)
		}
	}
	for _, text := range []string{"", "no json", `{"capacity":NaN}`, `{"capacity":1e40}`, "<html>", `[]`} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		_, err := remote.Dial(t.Context(), remote.Config{Address: web.URL, Expect: expect})
		web.Close()
		if !errors.Is(err, remote.ErrGarbage) {
			t.Errorf("status %q: error %v, want ErrGarbage", text, err)
		}
	}
}

// TestGarbageGenerations: what cannot be an answer never becomes part of a trajectory.
func TestGarbageGenerations(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	ok := gen([]int32{7, 8, 9}, []float32{-1, -2, -3}, rl.FinishStop, 4)
	for want, answer := range map[string]remote.Generated{
		"3 tokens with 2 log-probs":                        gen([]int32{7, 8, 9}, []float32{-1, -2}, rl.FinishStop, 4),
		"4 tokens, asked for 3":                            gen([]int32{7, 8, 9, 1}, []float32{-1, -2, -3, -4}, rl.FinishStop, 4),
		"sampled with version 5, asked for 4":              gen([]int32{7, 8, 9}, []float32{-1, -2, -3}, rl.FinishStop, 5),
		"token 50 at position 1 is outside the vocabulary": gen([]int32{7, 50, 9}, []float32{-1, -2, -3}, rl.FinishStop, 4),
		"token -1 at position 0 is outside the vocabulary": gen([]int32{-1, 8, 9}, []float32{-1, -2, -3}, rl.FinishStop, 4),
		"log-prob NaN at position 2":                       gen([]int32{7, 8, 9}, []float32{-1, -2, nan}, rl.FinishStop, 4),
		"log-prob -Inf at position 0":                      gen([]int32{7, 8, 9}, []float32{inf, -2, -3}, rl.FinishStop, 4),
		"log-prob 0.5 at position 0":                       gen([]int32{7, 8, 9}, []float32{0.5, -2, -3}, rl.FinishStop, 4),
		`finished by "stop" after 2 tokens without a stop`: gen([]int32{7, 8}, []float32{-1, -2}, rl.FinishStop, 4),
		`finished by "stop" after 0 tokens without a stop`: gen(nil, nil, rl.FinishStop, 4),
		`finished by "length" after 2 tokens, asked for 3`: gen([]int32{7, 8}, []float32{-1, -2}, rl.FinishLength, 4),
		`finished by "whim"`:                               gen([]int32{7, 8, 9}, []float32{-1, -2, -3}, "whim", 4),
	} {
		checkGarbage(t, answer, want)
	}
	for _, text := range []string{"", "no json", `{"tokens":"AAA="}`, `{"tokens":"!"}`, `{"tokens":[1,2,3]}`, `{"tokens":"AQAAAA==","logprobs":NaN}`} {
		checkGarbage(t, text, "")
	}
	l := &liar{status: honest(), answer: ok}
	web := httptest.NewServer(l)
	defer web.Close()
	if _, err := dial(t, web.URL).Generate(t.Context(), asked); err != nil {
		t.Errorf("an honest answer is refused: %v", err)
	}
}

// gen is an answer as it is written.
func gen(tokens []int32, logprobs []float32, finish rl.FinishReason, version int64) remote.Generated {
	return remote.Generated{Tokens: remote.PackInt32s(tokens), Logprobs: remote.PackFloat32s(logprobs), Finish: finish, Version: version}
}

// asked is what the liars of these tests answer.
var asked = inference.Request{Tokens: []int32{1, 2}, MaxTokens: 3, Stop: []int32{9}, Temperature: 1, Version: 4}

func checkGarbage(t *testing.T, answer any, want string) {
	t.Helper()
	web := httptest.NewServer(&liar{status: honest(), answer: answer})
	defer web.Close()
	var doubts []error
	e, err := remote.Dial(t.Context(), remote.Config{Address: web.URL, Expect: expect, Doubt: func(err error) { doubts = append(doubts, err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Generate(t.Context(), asked)
	if !errors.Is(err, remote.ErrGarbage) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(doubts) != 1 {
		t.Errorf("error %v with %d doubts, want ErrGarbage with %q in one line", err, len(doubts), want)
	}
}

// TestLieAboutALoad: an engine that has loaded something else is not to be trusted.
func TestLieAboutALoad(t *testing.T) {
	ref := blob.RefOf("policies/5", []byte("6"))
	for _, answer := range []any{remote.Loaded{Version: 4, SHA256: ref.SHA256}, remote.Loaded{Version: 5, SHA256: "00"}, "{}", ""} {
		web := httptest.NewServer(&liar{status: honest(), answer: answer})
		e := dial(t, web.URL)
		if err := e.Load(t.Context(), ref, 5); !errors.Is(err, remote.ErrGarbage) || e.Version() != 4 {
			t.Errorf("answer %v: error %v and version %d, want ErrGarbage and 4", answer, err, e.Version())
		}
		web.Close()
	}
}

// TestRefusalsOfProxies: answers of others than an engine are errors, too.
func TestRefusalsOfProxies(t *testing.T) {
	for status, want := range map[int]error{429: inference.ErrOverloaded, 503: inference.ErrOverloaded, 401: nil, 403: nil, 404: nil, 500: nil, 302: nil} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://example.invalid/")
			w.WriteHeader(status)
		}))
		_, err := remote.Dial(t.Context(), remote.Config{Address: web.URL, Expect: expect})
		web.Close()
		if err == nil || want != nil && !errors.Is(err, want) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("status %d: error %v, want %v", status, err, want)
		}
	}
}

// TestAddresses: what is no address is refused before anything is sent.
func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:80": true, "http://a:1": true, "https://a": true, "unix:/tmp/a": true, "http://a/prefix/": true,
		"": false, "a": false, ":80": false, "a:": false, "ftp://a": false, "http://": false, "unix:": false,
		"http://user:word@a": false, "http://a?b=c": false, "registry,": false,
	} {
		if err := remote.CheckAddress(address); (err == nil) != ok {
			t.Errorf("%q: %v, want ok %v", address, err, ok)
		}
	}
}
