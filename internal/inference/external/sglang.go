package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// sglang speaks with an SGLang server.
type sglang struct{ wire }

func (s *sglang) label(name string) string { return name }
func (s *sglang) needsFile() bool          { return false }

type sglangAnswer struct {
	Tokens []int32 `json:"output_ids"`
	Meta   struct {
		Finish *struct {
			Type    string          `json:"type"`
			Matched json.RawMessage `json:"matched"`
			Message string          `json:"message"`
		} `json:"finish_reason"`
		Version  string              `json:"weight_version"`
		Logprobs [][]json.RawMessage `json:"output_token_logprobs"` // [logprob, id, text or null]
	} `json:"meta_info"`
}

func (s *sglang) generate(ctx context.Context, c call) (answer, error) {
	sampling := map[string]any{ // ignore_eos would switch stop_token_ids off, too
		"max_new_tokens": c.maxTokens, "temperature": c.temperature, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "ignore_eos": false,
		"sampling_seed": seed32(c.seed), "skip_special_tokens": false, "no_stop_trim": true,
	}
	if len(c.stop) > 0 {
		sampling["stop_token_ids"] = c.stop
	}
	body := map[string]any{
		"rid": c.id, "input_ids": c.tokens, "sampling_params": sampling, "return_logprob": true, "logprob_start_len": -1, "top_logprobs_num": 0,
	}
	var out sglangAnswer
	if err := withAbort(ctx, s.abort, c.id, func(ctx context.Context) error {
		return s.call(ctx, http.MethodPost, "/generate", body, &out)
	}); err != nil {
		return answer{}, err
	}
	return out.answer()
}

func (o *sglangAnswer) answer() (answer, error) {
	a := answer{tokens: o.Tokens, labels: []string{o.Meta.Version}}
	if o.Meta.Finish == nil {
		return a, fmt.Errorf("no finish reason (%w)", errLost)
	}
	var err error
	if a.finish, err = finishOf(o.Meta.Finish.Type); err != nil {
		return a, err
	}
	var ids []int32
	for _, entry := range o.Meta.Logprobs {
		var lp logprob
		var id int32
		if len(entry) < 2 || json.Unmarshal(entry[1], &id) != nil || lp.UnmarshalJSON(entry[0]) != nil {
			return a, fmt.Errorf("output_token_logprobs holds %s, want [logprob, id] (%w)", entry, errLost)
		}
		ids, a.logprobs = append(ids, id), append(a.logprobs, float32(lp))
	}
	// The stop token may be left out of the ids, but not here.
	if len(ids) == len(a.tokens)+1 && a.finish == "stop" {
		a.tokens = append(a.tokens, ids[len(ids)-1])
	}
	for i := range min(len(ids), len(a.tokens)) {
		if ids[i] != a.tokens[i] {
			return a, fmt.Errorf("token %d is %d, its log-probability is of %d (%w)", i, a.tokens[i], ids[i], errRefused)
		}
	}
	var id int32
	if n := len(a.tokens); len(o.Meta.Finish.Matched) > 0 && json.Unmarshal(o.Meta.Finish.Matched, &id) == nil && (n == 0 || a.tokens[n-1] != id) {
		a.cutStop = &id
	}
	return a, nil
}

func (s *sglang) abort(ctx context.Context, id string) error {
	return s.call(ctx, http.MethodPost, "/abort_request", map[string]any{"rid": id}, nil)
}

func (s *sglang) load(ctx context.Context, p published) error {
	var out struct {
		Success *bool  `json:"success"`
		Message string `json:"message"`
	}
	body := map[string]any{"model_path": p.dir, "weight_version": s.label(p.name), "flush_cache": true, "abort_all_requests": true}
	if err := s.call(ctx, http.MethodPost, "/pause_generation", map[string]string{"mode": "abort"}, nil); err != nil {
		return err
	}
	err := s.call(ctx, http.MethodPost, "/update_weights_from_disk", body, &out)
	if err == nil && out.Success != nil && !*out.Success {
		err = fmt.Errorf("%s/update_weights_from_disk: %s (%w)", s.base, out.Message, errRefused)
	}
	resumed, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
	defer cancel()
	return errors.Join(err, s.call(resumed, http.MethodPost, "/continue_generation", map[string]any{}, nil))
}

func (s *sglang) limits(ctx context.Context) (limits, error) {
	var out struct {
		ContextLength int `json:"context_length"`
	}
	err := s.call(ctx, http.MethodGet, "/server_info", nil, &out)
	return limits{maxContext: out.ContextLength}, err
}

func (s *sglang) status(ctx context.Context) (load, error) {
	var out struct {
		Loads []struct {
			Running  int    `json:"num_running_reqs"`
			Waiting  int    `json:"num_waiting_reqs"`
			Used     *int64 `json:"num_used_tokens"`
			Capacity *int64 `json:"max_total_num_tokens"`
		} `json:"loads"`
	}
	if err := s.call(ctx, http.MethodGet, "/v1/loads?include=core", nil, &out); err != nil {
		return load{}, err
	}
	l := load{capacity: -1, used: -1}
	for _, rank := range out.Loads {
		l.running += rank.Running
		l.waiting += rank.Waiting
		if rank.Capacity != nil {
			l.capacity = max(l.capacity, 0) + *rank.Capacity
		}
		if rank.Used != nil {
			l.used = max(l.used, 0) + *rank.Used
		}
	}
	return l, nil
}
