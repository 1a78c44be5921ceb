package remote

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"temper/internal/inference"
)

// ServedEngine is an engine that can be served: it replaces its weights and reports a status.
type ServedEngine interface {
	inference.Loader
	inference.Reporter
}

// Server answers requests to one engine. It is safe for concurrent use.
type Server struct {
	engine ServedEngine
	who    Identity
	// patience is how long a body may take to arrive.
	patience time.Duration

	mu       sync.Mutex
	running  map[string]context.CancelCauseFunc // generations by id
	busy     int                                // generations and loads under way
	idle     chan struct{}                      // closed when busy is 0 while draining
	draining bool
	onDrain  func()
	sha      string // of the policy that is served

	loading sync.Mutex // one load at a time, so that sha belongs to the version
}

// NewServer serves an engine that has not loaded anything yet. onDrain is called once,
// when the engine takes nothing new any more; nil is fine.
func NewServer(engine ServedEngine, who Identity, onDrain func()) *Server {
	return &Server{engine: engine, who: who, patience: bodyTime, running: map[string]context.CancelCauseFunc{}, idle: make(chan struct{}), onDrain: onDrain}
}

// Handler serves the paths of the protocol.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PathGenerate, s.serveGenerate)
	mux.HandleFunc("POST "+PathCut, s.serveCut)
	mux.HandleFunc("POST "+PathRelease, s.serveRelease)
	mux.HandleFunc("POST "+PathLoad, s.serveLoad)
	mux.HandleFunc("POST "+PathPrefetch, s.servePrefetch)
	mux.HandleFunc("POST "+PathDrain, func(w http.ResponseWriter, r *http.Request) { s.Drain(); s.serveStatus(w, r) })
	mux.HandleFunc("GET "+PathStatus, s.serveStatus)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &Failure{Code: CodeNotFound, Message: oneLine(r.Method + " " + r.URL.Path + ": no such path of a policy engine")})
	})
	return mux
}

// Status returns the status and identity of the engine.
func (s *Server) Status(ctx context.Context) (Status, error) {
	st, err := s.engine.Status(ctx)
	if err != nil {
		return Status{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Draining = st.Draining || s.draining
	return Status{Status: st, Identity: s.who, SHA256: s.sha}, nil
}

// Drain lets the engine end the work under way and take nothing new.
func (s *Server) Drain() {
	s.mu.Lock()
	first := !s.draining
	s.draining = true
	if first && s.busy == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	if first && s.onDrain != nil {
		s.onDrain()
	}
}

// Finish waits until a draining engine has nothing under way.
func (s *Server) Finish(ctx context.Context) error {
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errDraining = &Failure{Code: CodeDraining, Message: "the engine drains and takes nothing new"}

// CutAll answers every generation with its tokens so far.
func (s *Server) CutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cut := range s.running {
		cut(inference.ErrCut)
	}
}

// begin counts work that a drain waits for; end counts it out.
func (s *Server) begin() *Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return errDraining
	}
	s.busy++
	return nil
}

func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if s.draining && s.busy == 0 {
		close(s.idle)
	}
}

func (s *Server) serveGenerate(w http.ResponseWriter, r *http.Request) {
	if f := s.begin(); f != nil { // before the body is read
		refuse(w, f)
		return
	}
	defer s.end()
	var in GenerateRequest
	if f := s.readBody(w, r, smallBody+bytesPerToken*int64(s.engine.MaxContext()), &in); f != nil {
		refuse(w, f)
		return
	}
	tokens, f := in.check(s.who.Vocab, s.engine.MaxContext())
	if f != nil {
		refuse(w, f)
		return
	}
	ctx, done, f := s.track(r.Context(), in.ID)
	if f != nil {
		refuse(w, f)
		return
	}
	defer done()
	gen, err := s.engine.Generate(ctx, inference.Request{
		Tokens: tokens, MaxTokens: in.MaxTokens, Stop: in.Stop, Temperature: in.Temperature,
		Seed: in.Seed, Version: in.Version, Session: in.Session, Sampler: in.Sampler, TopLogprobs: in.TopLogprobs,
	})
	if err != nil {
		refuse(w, failureOf(err))
		return
	}
	answer(w, Generated{Tokens: PackInt32s(gen.Tokens), Logprobs: PackFloat32s(gen.Logprobs), Kept: gen.Kept, Top: gen.Top, Finish: gen.Finish, Version: gen.Version})
}

// track lets PathCut end a generation. done must be called.
func (s *Server) track(ctx context.Context, id string) (_ context.Context, done func(), _ *Failure) {
	ctx, cut := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.running[id]; taken {
		cut(nil)
		return nil, nil, invalidf("id", "a generation %.64q is under way", id)
	}
	s.running[id] = cut
	return ctx, func() {
		cut(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, id)
	}, nil
}

func (s *Server) serveCut(w http.ResponseWriter, r *http.Request) {
	var in CutRequest
	if f := s.readBody(w, r, smallBody, &in); f != nil {
		refuse(w, f)
		return
	}
	s.mu.Lock()
	cut, found := s.running[in.ID]
	s.mu.Unlock()
	if found {
		cut(inference.ErrCut)
	}
	answer(w, CutAnswer{Found: found})
}

func (s *Server) serveRelease(w http.ResponseWriter, r *http.Request) {
	var in ReleaseRequest
	if f := s.readBody(w, r, smallBody, &in); f != nil {
		refuse(w, f)
		return
	}
	for _, session := range in.Sessions {
		s.engine.Release(session)
	}
	answer(w, struct{}{})
}

func (s *Server) serveLoad(w http.ResponseWriter, r *http.Request) {
	if f := s.begin(); f != nil {
		refuse(w, f)
		return
	}
	defer s.end()
	var in LoadRequest
	if f := s.readBody(w, r, smallBody, &in); f != nil {
		refuse(w, f)
		return
	}
	if f := in.check(); f != nil {
		refuse(w, f)
		return
	}
	if err := s.load(r.Context(), in); err != nil {
		refuse(w, failureOf(err))
		return
	}
	answer(w, Loaded{Version: in.Version, SHA256: in.Ref.SHA256})
}

// servePrefetch lets the engine begin to read a policy. One that cannot reads it when it
// loads it.
func (s *Server) servePrefetch(w http.ResponseWriter, r *http.Request) {
	var in LoadRequest
	f := s.readBody(w, r, smallBody, &in)
	if f == nil {
		f = in.check()
	}
	if f != nil {
		refuse(w, f)
		return
	}
	if reader, ok := s.engine.(inference.Prefetcher); ok && in.Version != s.engine.Version() {
		reader.Prefetch(r.Context(), in.Ref, in.Version)
	}
	answer(w, struct{}{})
}

// load makes the engine serve a policy and notes which one it is. One version has one
// content: an engine that serves another content under the number must not pass for
// one that has loaded it.
func (s *Server) load(ctx context.Context, in LoadRequest) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	s.mu.Lock()
	served := s.sha
	s.mu.Unlock()
	if in.Version == s.engine.Version() && served != in.Ref.SHA256 {
		return &Failure{Code: CodeBadPolicy, Param: "ref", Message: "another policy is served as this version: restart the engine"}
	}
	if err := s.engine.Load(ctx, in.Ref, in.Version); err != nil {
		return err
	}
	if got := s.engine.Version(); got != in.Version {
		return errors.New("the engine serves another version than the one it has loaded")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sha = in.Ref.SHA256
	return nil
}

func (s *Server) serveStatus(w http.ResponseWriter, r *http.Request) {
	st, err := s.Status(r.Context())
	if err != nil {
		refuse(w, failureOf(err))
		return
	}
	answer(w, st)
}

// answer writes a message.
func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

// refuse writes an error.
func refuse(w http.ResponseWriter, f *Failure) {
	status, ok := statusOf[f.Code]
	if !ok {
		status = http.StatusInternalServerError
	}
	if f.Code == CodeOverloaded || f.Code == CodeDraining {
		w.Header().Set("Retry-After", "1")
	}
	write(w, status, failed{*f})
}

func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // every message is made of numbers and texts
		status, body = http.StatusInternalServerError, []byte(`{}`)
	}
	setWriteDeadline(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the caller has gone when this fails
}
