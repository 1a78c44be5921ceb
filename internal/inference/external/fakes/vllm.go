package fakes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// VLLM is the handler of a vLLM server.
func (s *Server) VLLM() http.Handler {
	s.mu.Lock()
	s.restart()
	s.mu.Unlock()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /inference/v1/generate", s.vllmGenerate)
	mux.HandleFunc("POST /abort_requests", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			IDs []string `json:"request_ids"`
		}
		if decode(w, r, &in) {
			for _, id := range in.IDs {
				s.abort(strings.TrimPrefix(id, "generate-tokens-"))
			}
		}
	})
	dev := func(pattern string, f func(map[string]any) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.vllmAdmin(w, r, f) })
	}
	dev("POST /pause", func(map[string]any) error { return nil })
	dev("POST /resume", func(map[string]any) error { return nil })
	dev("POST /reset_prefix_cache", func(map[string]any) error { return nil })
	dev("POST /collective_rpc", func(in map[string]any) error {
		kwargs, _ := in["kwargs"].(map[string]any)
		dir, _ := kwargs["weights_path"].(string)
		return s.load(dir)
	})
	dev("POST /update_weight_version", func(in map[string]any) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.label = fmt.Sprint(in["new_version"])
		return nil
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		write(w, map[string]any{"data": []any{map[string]any{"id": "m", "max_model_len": s.contextTold()}}}, false)
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", s.vllmMetrics)
	return mux
}

func (s *Server) contextTold() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.ShortContext {
		return s.MaxContext / 2
	}
	return s.MaxContext
}

func (s *Server) vllmAdmin(w http.ResponseWriter, r *http.Request, f func(map[string]any) error) {
	s.mu.Lock()
	noDev, fails := s.faults.NoDevMode, s.faults.LoadFails
	s.mu.Unlock()
	if noDev {
		http.NotFound(w, r)
		return
	}
	in := map[string]any{}
	if r.ContentLength > 0 && !decode(w, r, &in) {
		return
	}
	if err := f(in); err != nil || fails && strings.HasSuffix(r.URL.Path, "rpc") {
		fail(w, http.StatusInternalServerError, fmt.Sprint("reload failed: ", err))
		return
	}
	write(w, map[string]any{"results": []any{nil}}, false)
}

func (s *Server) vllmGenerate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID       string  `json:"request_id"`
		Tokens   []int32 `json:"token_ids"`
		Sampling struct {
			MaxTokens   int     `json:"max_tokens"`
			Temperature float64 `json:"temperature"`
			Seed        uint64  `json:"seed"`
			Stop        []int32 `json:"stop_token_ids"`
			Logprobs    *int    `json:"logprobs"`
		} `json:"sampling_params"`
	}
	in.Sampling.MaxTokens, in.Sampling.Temperature = 16, 1
	if !decode(w, r, &in) {
		return
	}
	q := request{in.ID, in.Tokens, in.Sampling.MaxTokens, in.Sampling.Temperature, in.Sampling.Seed, in.Sampling.Stop, true}
	if !s.admit(w, r, q) {
		return
	}
	o := s.run(r.Context(), q, nil)
	content := []any{}
	for _, lp := range o.logprobs() {
		content = append(content, map[string]any{"logprob": lp, "rank": 1})
	}
	var reason any
	if o.match != nil {
		reason = *o.match
	}
	choice := map[string]any{
		"index": 0, "finish_reason": o.finish, "stop_reason": reason, "token_ids": o.ids(), "text": "never read this",
		"weight_versions": s.spans(o),
	}
	if in.Sampling.Logprobs != nil {
		choice["logprobs"] = map[string]any{"content": content}
	}
	write(w, map[string]any{"request_id": in.ID, "model": "m", "choices": []any{choice}}, o.first)
}

func (s *Server) spans(o sampled) any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.NoLabel {
		return nil
	}
	n := len(o.tokens)
	spans := []any{map[string]any{"version": o.label, "start": 0, "end": n}}
	if take(&s.faults.MixedVersion) {
		spans = []any{map[string]any{"version": o.label, "start": 0, "end": n / 2}, map[string]any{"version": "next", "start": n / 2, "end": n}}
	}
	return spans
}

func (s *Server) vllmMetrics(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	blocks, usage := 64, "0.25"
	if s.faults.NoCapacity {
		blocks = 0
	}
	if s.faults.NaNLoad {
		usage = "NaN"
	}
	_, _ = fmt.Fprintf(w, "# HELP vllm:cache_config_info x\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"%d\"} 1.0\n"+
		"vllm:kv_cache_usage_perc{engine=\"0\"} %s\nvllm:num_requests_running{engine=\"0\"} 2\n", blocks, usage) // the client may be gone
}

func decode(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(r.Body).Decode(v); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}
