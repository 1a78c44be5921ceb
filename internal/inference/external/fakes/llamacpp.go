package fakes

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
)

// LlamaCpp is the handler of a llama.cpp server that was started with ModelFile. It reads
// its faults from the file ModelFile/../faults.json before each request, because it runs in
// a separate process.
func (s *Server) LlamaCpp() (http.Handler, error) {
	m, err := readModel(s.ModelFile)
	if err != nil {
		return nil, err
	}
	s.model, s.Vocab, s.label = m, m.Vocab, filepath.Base(s.ModelFile)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /completion", s.llamaComplete)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /props", func(w http.ResponseWriter, _ *http.Request) {
		s.readFaults()
		slots := 4
		if s.faults.NoCapacity {
			slots = 0
		}
		write(w, map[string]any{"total_slots": slots, "default_generation_settings": map[string]any{"n_ctx": s.contextTold()}}, false)
	})
	return mux, nil
}

// FaultsFile is where the fake of llama.cpp finds its faults.
const FaultsFile = "faults.json"

// PutFaults writes faults for the next requests.
func PutFaults(folder string, f Faults) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, FaultsFile), data, 0o644)
}

// readFaults takes the faults over; the file is gone afterwards, so that counts count.
func (s *Server) readFaults() {
	file := filepath.Join(filepath.Dir(s.ModelFile), FaultsFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return
	}
	var f Faults
	if json.Unmarshal(data, &f) == nil && os.Remove(file) == nil {
		s.Fail(f)
	}
}

func (s *Server) llamaComplete(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Prompt      []int32  `json:"prompt"`
		MaxTokens   int      `json:"n_predict"`
		Temperature float64  `json:"temperature"`
		Samplers    []string `json:"samplers"`
		Seed        uint64   `json:"seed"`
		Post        bool     `json:"post_sampling_probs"`
	}
	if !decode(w, r, &in) {
		return
	}
	s.readFaults()
	q := request{fmt.Sprint(r.RemoteAddr), in.Prompt, in.MaxTokens, in.Temperature, in.Seed, nil, in.Post}
	if !s.admit(w, r, q) {
		return
	}
	s.mu.Lock()
	f := s.faults
	broken := f.Broken > 0
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	n := 0
	o := s.run(r.Context(), q, func(t token) {
		if n++; broken && n == 4 {
			panic(http.ErrAbortHandler)
		}
		send(w, llamaEvent(t, in.Post, f, n == in.MaxTokens))
	})
	kind := map[string]string{"length": "limit", "stop": "eos", "abort": "eos"}[o.finish]
	send(w, map[string]any{"tokens": []int32{}, "stop": true, "stop_type": kind, "model": o.label, "content": ""})
}

func llamaEvent(t token, post bool, f Faults, last bool) map[string]any {
	p := map[string]any{"id": t.id, "logprob": t.logprob}
	if post {
		p = map[string]any{"id": t.id, "prob": math.Exp(t.logprob)}
	}
	if last && f.NullLogprob {
		p = map[string]any{"id": t.id, "logprob": nil}
	}
	if last && f.InfLogprob {
		p = map[string]any{"id": t.id, "prob": 0}
	}
	list := []any{p}
	if last && f.MissingLogprob {
		list = []any{}
	}
	if last && f.ExtraLogprob {
		list = append(list, p)
	}
	return map[string]any{"tokens": []int32{t.id}, "stop": false, "content": "never read this", "completion_probabilities": list}
}

func send(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = fmt.Fprintf(w, "data: %s\n\n", data) // the client may be gone
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}
