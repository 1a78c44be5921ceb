package fakes

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Server is the part that all fakes share.
type Server struct {
	// MaxContext is what the server accepts.
	MaxContext int
	Vocab      int
	// Key, if it is set, is demanded of each request.
	Key string
	// ModelFile is what the server of llama.cpp was started with.
	ModelFile string

	mu     sync.Mutex
	faults Faults
	model  Model
	label  string
	loads  int
	dead   bool
	aborts map[string]chan struct{}
}

// Fail replaces the faults.
func (s *Server) Fail(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Loads is how often the server has read weights.
func (s *Server) Loads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads
}

// Dead reports whether a bad request has ended the server.
func (s *Server) Dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// restart forgets what the server has loaded. The lock is held.
func (s *Server) restart() { s.model, s.label = Model{Weights: 1 << 40, Vocab: s.Vocab}, "default" }

// request is what all three servers are asked for.
type request struct {
	id          string
	ids         []int32
	maxTokens   int
	temperature float64
	seed        uint64
	stop        []int32
	post        bool // log-probabilities after the temperature
}

// token is one that was sampled.
type token struct {
	id      int32
	logprob float64
}

// sampled is an answer before a server puts it into its words.
type sampled struct {
	tokens []token
	finish string
	match  *int32
	label  string
	faults Faults // as they were when the request began
	first  bool   // the fault that breaks answers hits this one
}

// admit answers what is no matter of sampling: faults of the connection, keys, limits.
// It returns false when the request is answered.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, q request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dead:
		panic(http.ErrAbortHandler)
	case s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key:
		fail(w, http.StatusUnauthorized, "Unauthorized")
	case take(&s.faults.Restart):
		if s.ModelFile != "" { // a separate process, which its parent restarts
			os.Exit(3)
		}
		s.restart()
		panic(http.ErrAbortHandler)
	case take(&s.faults.Unavailable):
		fail(w, http.StatusServiceUnavailable, "loading")
	case take(&s.faults.Page):
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><body>Welcome to nginx!</body></html>"))
	case take(&s.faults.ErrorInside):
		fail(w, http.StatusOK, "CUDA error: an illegal memory access was encountered")
	case len(q.ids) == 0 || len(q.ids)+1 > s.MaxContext:
		fail(w, http.StatusBadRequest, "the context is too long")
	case slices.ContainsFunc(q.ids, func(id int32) bool { return id < 0 || int(id) >= s.Vocab }):
		s.dead = true // as vLLM does
		panic(http.ErrAbortHandler)
	default:
		return true
	}
	return false
}

// run samples a request as the faults want it. emit gets each token.
func (s *Server) run(ctx context.Context, q request, emit func(token)) sampled {
	s.mu.Lock()
	m, out := s.model, sampled{finish: "length", label: s.label, faults: s.faults}
	if take(&s.faults.WrongLabel) {
		out.label = "somebody-elses"
	}
	aborted := take(&s.faults.Abort)
	out.first = take(&s.faults.Broken)
	cut := make(chan struct{})
	if s.aborts == nil {
		s.aborts = map[string]chan struct{}{}
	}
	s.aborts[q.id] = cut
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.aborts, q.id)
	}()
	limit := min(q.maxTokens, s.MaxContext-len(q.ids)) // cut without a word
	ids := slices.Clone(q.ids)
	for len(out.tokens) < limit {
		if aborted && len(out.tokens) == 3 {
			out.finish = "abort"
			break
		}
		select {
		case <-cut:
			out.finish = "abort"
			return out
		case <-ctx.Done():
			return out
		case <-time.After(out.faults.Slow):
		}
		id, processed, raw := m.sample(ids, q.temperature, q.seed)
		t := token{id, processed}
		if out.faults.RawLogprobs || !q.post {
			t.logprob = raw
		}
		if out.faults.PaddedToken {
			t.id = int32(m.Vocab)
		}
		ids = append(ids, id)
		out.tokens = append(out.tokens, t)
		if emit != nil {
			emit(t)
		}
		if slices.Contains(q.stop, id) && !out.faults.Overshoot {
			out.finish, out.match = "stop", &id
			break
		}
	}
	return out
}

// abort ends a request that samples now.
func (s *Server) abort(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cut, ok := s.aborts[id]; ok {
		close(cut)
		delete(s.aborts, id)
	}
}

// load reads weights from a folder, or pretends to.
func (s *Server) load(dir string) error {
	m, err := readModel(filepath.Join(dir, weightsFile))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loads++
	if !s.faults.StaleWeights {
		s.model = m
	}
	return nil
}

// logprobs is what an answer says of its tokens, with the faults. A nil is null.
func (o *sampled) logprobs() []*float64 {
	var out []*float64
	for i := range o.tokens {
		out = append(out, &o.tokens[i].logprob)
	}
	n := len(out)
	switch f := &o.faults; {
	case n == 0:
	case f.MissingLogprob:
		out = out[:n-1]
	case f.ExtraLogprob:
		out = append(out, out[0])
	case f.NullLogprob:
		out[n-1] = nil
	case f.InfLogprob:
		low := -math.MaxFloat64
		out[n-1] = &low // becomes -inf in float32
	}
	return out
}

// ids are the tokens of an answer, without a stop token that the server leaves out.
func (o *sampled) ids() []int32 {
	out := []int32{}
	for _, t := range o.tokens {
		out = append(out, t.id)
	}
	if o.faults.CutStop && o.finish == "stop" {
		out = out[:len(out)-1]
	}
	return out
}

func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "code": status}}) // the client may be gone
}

// write sends an answer, or half of it.
func write(w http.ResponseWriter, v any, half bool) {
	data, err := json.Marshal(v)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if half {
		_, _ = w.Write(data[:len(data)/2]) // what follows ends the connection
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(data) // the client may be gone
}
