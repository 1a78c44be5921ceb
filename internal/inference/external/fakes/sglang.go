package fakes

import (
	"net/http"
)

// SGLang is the handler of an SGLang server.
func (s *Server) SGLang() http.Handler {
	s.mu.Lock()
	s.restart()
	s.mu.Unlock()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /generate", s.sglangGenerate)
	mux.HandleFunc("POST /abort_request", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ID string `json:"rid"`
		}
		if decode(w, r, &in) {
			s.abort(in.ID)
		}
	})
	mux.HandleFunc("POST /pause_generation", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /continue_generation", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /update_weights_from_disk", s.sglangLoad)
	mux.HandleFunc("GET /server_info", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]any{"context_length": s.contextTold()}, false)
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/loads", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		capacity := 1024
		if s.faults.NoCapacity {
			capacity = 0
		}
		load := map[string]any{"num_running_reqs": 2, "num_waiting_reqs": 0, "num_used_tokens": 256, "max_total_num_tokens": capacity}
		if s.faults.NaNLoad {
			load["num_used_tokens"] = "NaN"
		}
		write(w, map[string]any{"loads": []any{load}}, false)
	})
	return mux
}

func (s *Server) sglangLoad(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Path    string `json:"model_path"`
		Version string `json:"weight_version"`
	}
	if !decode(w, r, &in) {
		return
	}
	s.mu.Lock()
	fails := s.faults.LoadFails
	s.mu.Unlock()
	if err := s.load(in.Path); err != nil || fails {
		write(w, map[string]any{"success": false, "message": "missing tensors"}, false)
		return
	}
	s.mu.Lock()
	s.label = in.Version
	s.mu.Unlock()
	write(w, map[string]any{"success": true, "message": "ok", "num_paused_requests": 0}, false)
}

func (s *Server) sglangGenerate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID       string  `json:"rid"`
		Tokens   []int32 `json:"input_ids"`
		Sampling struct {
			MaxTokens   int     `json:"max_new_tokens"`
			Temperature float64 `json:"temperature"`
			Seed        uint64  `json:"sampling_seed"`
			Stop        []int32 `json:"stop_token_ids"`
			IgnoreEOS   bool    `json:"ignore_eos"`
			NoStopTrim  bool    `json:"no_stop_trim"`
		} `json:"sampling_params"`
		Logprob bool `json:"return_logprob"`
	}
	in.Sampling.MaxTokens, in.Sampling.Temperature = 128, 1
	if !decode(w, r, &in) {
		return
	}
	if in.Sampling.IgnoreEOS { // it ignores these, too
		in.Sampling.Stop = nil
	}
	q := request{in.ID, in.Tokens, in.Sampling.MaxTokens, in.Sampling.Temperature, in.Sampling.Seed, in.Sampling.Stop, true}
	if !s.admit(w, r, q) {
		return
	}
	o := s.run(r.Context(), q, nil)
	finish := map[string]any{"type": o.finish}
	if o.match != nil {
		finish["matched"] = *o.match
	}
	s.mu.Lock()
	label := o.label
	if s.faults.NoLabel {
		label = ""
	}
	if take(&s.faults.MixedVersion) {
		label = "next"
	}
	s.mu.Unlock()
	meta := map[string]any{"id": in.ID, "finish_reason": finish, "weight_version": label, "num_retractions": 0}
	if in.Logprob {
		entries := []any{}
		for i, lp := range o.logprobs() {
			entries = append(entries, []any{lp, o.tokens[min(i, len(o.tokens)-1)].id, nil})
		}
		meta["output_token_logprobs"] = entries
	}
	write(w, map[string]any{"text": "never read this", "output_ids": o.ids(), "meta_info": meta}, o.first)
}
