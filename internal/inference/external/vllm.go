package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"temper/internal/inference"
	"temper/internal/rl"
)

// vllm speaks with a vLLM server that was started with VLLM_SERVER_DEV_MODE=1: the
// routes that load weights exist only there.
type vllm struct{ wire }

func (v *vllm) label(name string) string { return name }
func (v *vllm) needsFile() bool          { return false }

type vllmAnswer struct {
	Choices []struct {
		Finish     string          `json:"finish_reason"`
		StopReason json.RawMessage `json:"stop_reason"`
		Tokens     []int32         `json:"token_ids"`
		Logprobs   *struct {
			Content []struct {
				Logprob *logprob `json:"logprob"`
			} `json:"content"`
		} `json:"logprobs"`
		Versions []struct {
			Version string `json:"version"`
		} `json:"weight_versions"`
	} `json:"choices"`
}

func (v *vllm) generate(ctx context.Context, c call) (answer, error) {
	sampling := map[string]any{
		"max_tokens": c.maxTokens, "temperature": c.temperature, "top_p": 1, "top_k": 0, "min_p": 0, "repetition_penalty": 1,
		"seed": seed32(c.seed), "stop_token_ids": c.stop, "ignore_eos": true, "logprobs": 0, "n": 1, "detokenize": false,
	}
	if len(c.stop) == 0 {
		delete(sampling, "stop_token_ids")
	}
	body := map[string]any{"request_id": c.id, "token_ids": c.tokens, "sampling_params": sampling, "output_mode": "tokens"}
	var out vllmAnswer
	if err := withAbort(ctx, v.abort, c.id, func(ctx context.Context) error {
		return v.call(ctx, http.MethodPost, "/inference/v1/generate", body, &out)
	}); err != nil {
		return answer{}, err
	}
	return out.answer()
}

func (o *vllmAnswer) answer() (answer, error) {
	if len(o.Choices) != 1 {
		return answer{}, fmt.Errorf("%d choices, want 1 (%w)", len(o.Choices), errLost)
	}
	choice := &o.Choices[0]
	a := answer{tokens: choice.Tokens}
	var err error
	if a.finish, err = finishOf(choice.Finish); err != nil {
		return answer{}, err
	}
	if choice.Logprobs != nil {
		for _, t := range choice.Logprobs.Content {
			a.logprobs = append(a.logprobs, number(t.Logprob))
		}
	}
	for _, span := range choice.Versions {
		a.labels = append(a.labels, span.Version)
	}
	if len(a.labels) == 0 {
		a.labels = []string{""} // it does not say: not ours
	}
	var id int32
	if n := len(a.tokens); json.Unmarshal(choice.StopReason, &id) == nil && string(choice.StopReason) != "null" && (n == 0 || a.tokens[n-1] != id) {
		a.cutStop = &id
	}
	return a, nil
}

func finishOf(word string) (rl.FinishReason, error) {
	switch word {
	case "stop":
		return rl.FinishStop, nil
	case "length":
		return rl.FinishLength, nil
	case "abort":
		return rl.FinishAbort, nil
	default:
		return "", fmt.Errorf("finish reason %q, want stop, length or abort (%w)", word, errLost)
	}
}

// abort ends a request. The route of generate puts a word before the id, and the route of
// abort does not. The list must not be empty: that would end all requests.
func (v *vllm) abort(ctx context.Context, id string) error {
	return v.call(ctx, http.MethodPost, "/abort_requests", map[string]any{"request_ids": []string{"generate-tokens-" + id, id}}, nil)
}

// load follows the order in which no request meets a mixture: pause, read the
// weights, drop what the old ones left in the cache, label, resume.
func (v *vllm) load(ctx context.Context, p published) (err error) {
	if err := v.call(ctx, http.MethodPost, "/pause?mode=abort", nil, nil); err != nil {
		return devMode(err)
	}
	defer func() {
		resumed, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
		defer cancel()
		err = errors.Join(err, v.call(resumed, http.MethodPost, "/resume", nil, nil))
	}()
	reload := map[string]any{"method": "reload_weights", "kwargs": map[string]string{"weights_path": p.dir}}
	if err := v.call(ctx, http.MethodPost, "/collective_rpc", reload, nil); err != nil {
		return devMode(err)
	}
	if err := v.call(ctx, http.MethodPost, "/reset_prefix_cache", nil, nil); err != nil {
		return devMode(err)
	}
	return devMode(v.call(ctx, http.MethodPost, "/update_weight_version", map[string]string{"new_version": v.label(p.name)}, nil))
}

// devMode explains the refusal of a route.
func devMode(err error) error {
	if errors.Is(err, errRefused) {
		return fmt.Errorf("%w; the routes that load weights need VLLM_SERVER_DEV_MODE=1", err)
	}
	return err
}

func (v *vllm) limits(ctx context.Context) (limits, error) {
	var out struct {
		Data []struct {
			MaxModelLen int `json:"max_model_len"`
		} `json:"data"`
	}
	if err := v.call(ctx, http.MethodGet, "/v1/models", nil, &out); err != nil || len(out.Data) == 0 {
		return limits{}, err
	}
	return limits{maxContext: out.Data[0].MaxModelLen}, nil
}

func (v *vllm) status(ctx context.Context) (load, error) {
	text, err := v.text(ctx, "/metrics")
	if err != nil {
		return load{}, err
	}
	l := load{capacity: -1, used: -1}
	if blocks, size := labelOfMetric(text, "vllm:cache_config_info", "num_gpu_blocks"), labelOfMetric(text, "vllm:cache_config_info", "block_size"); blocks >= 0 && size >= 0 {
		l.capacity = int64(blocks * size)
	}
	if share, ok := metric(text, "vllm:kv_cache_usage_perc"); ok && l.capacity >= 0 {
		if !(share >= 0 && share <= 1) {
			return load{}, fmt.Errorf("%s: vllm:kv_cache_usage_perc is %v, want 0 to 1 (%w)", v.base, share, errRefused)
		}
		l.used = int64(share * float64(l.capacity))
	}
	for name, to := range map[string]*int{"vllm:num_requests_running": &l.running, "vllm:num_requests_waiting": &l.waiting} {
		if n, ok := metric(text, name); ok {
			*to = int(n)
		}
	}
	return l, nil
}

// metric sums up the samples of a name in Prometheus' text format.
func metric(text, name string) (sum float64, found bool) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if end := strings.LastIndexByte(rest, '}'); end >= 0 {
			rest = rest[end+1:]
		}
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		if x, err := strconv.ParseFloat(fields[0], 64); err == nil {
			sum, found = sum+x, true
		}
	}
	return sum, found
}

// labelOfMetric is a number in a label of a metric, -1 if it is not there.
func labelOfMetric(text, name, label string) int {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		_, rest, ok := strings.Cut(line, label+`="`)
		value, _, closed := strings.Cut(rest, `"`)
		if n, err := strconv.Atoi(value); ok && closed && err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// number is a log-probability that may be missing, which is NaN.
func number(l *logprob) float32 {
	if l == nil {
		return nan
	}
	return float32(*l)
}

// abortPatience is how long a server that was told to end a request may take for the
// answer.
const abortPatience = 10 * time.Second

// withAbort runs a request that the server answers in one piece. When ctx ends, it
// tells the server to end the request. After inference.ErrCut it waits for the answer,
// which has what was sampled; f then returns nil.
func withAbort(ctx context.Context, abort func(context.Context, string) error, id string, f func(context.Context) error) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(inner) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	if !errors.Is(context.Cause(ctx), inference.ErrCut) {
		go func() { // its answer does not matter
			late, stop := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
			defer stop()
			_ = abort(late, id)
		}()
		cancel()
		<-done //nolint:errcheck // the error of cancel
		return ctx.Err()
	}
	limited, stop := context.WithTimeout(inner, abortPatience)
	defer stop()
	again := time.NewTicker(abortPatience / 20)
	defer again.Stop()
	for {
		_ = abort(limited, id) // it may come before the request itself: it is repeated
		select {
		case err := <-done:
			return err
		case <-limited.Done():
			cancel()
			<-done //nolint:errcheck // the error of cancel
			return ctx.Err()
		case <-again.C:
		}
	}
}
