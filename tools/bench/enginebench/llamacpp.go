package enginebench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"temper/tools/bench/meter"
)

// LlamaCPP is a server of llama.cpp with a model of the same shape.
type LlamaCPP struct {
	URL string
	PID int // of the server, for its CPU time; 0 where it is unknown
}

// Name is what rows call it.
func (LlamaCPP) Name() string { return "llama.cpp" }

// Decode asks for one token after each prompt, so that the server's slots hold the
// prompts, and then for all tokens. What the rate counts are those.
func (l LlamaCPP) Decode(ctx context.Context, prompts [][]int32, newTokens int) (Round, error) {
	firsts := make([]time.Duration, len(prompts))
	begin := time.Now()
	if err := l.complete(ctx, prompts, 1, func(i int) { firsts[i] = time.Since(begin) }); err != nil {
		return Round{}, err
	}
	cpu, begin := l.cpu(), time.Now()
	if err := l.complete(ctx, prompts, newTokens, func(int) {}); err != nil {
		return Round{}, err
	}
	return Round{FirstToken: meter.Median(firsts), Wall: time.Since(begin), CPU: l.cpu() - cpu, Tokens: len(prompts) * newTokens}, nil
}

// cpu is the processor time of the server so far.
func (l LlamaCPP) cpu() time.Duration { return meter.Processes()[l.PID].CPU }

// complete sends all prompts at once.
func (l LlamaCPP) complete(ctx context.Context, prompts [][]int32, n int, done func(i int)) error {
	errs := make([]error, len(prompts))
	var wg sync.WaitGroup
	for i, p := range prompts {
		wg.Go(func() {
			errs[i] = l.post(ctx, p, n)
			done(i)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// post asks for n tokens after a prompt, and checks that they came.
func (l LlamaCPP) post(ctx context.Context, prompt []int32, n int) error {
	body, err := json.Marshal(map[string]any{
		"prompt": prompt, "n_predict": n, "temperature": 1, "samplers": []string{"temperature"}, "seed": 1,
		"n_probs": 1, "return_tokens": true, "cache_prompt": true, "ignore_eos": true,
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.URL+"/completion", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s/completion: %s: %.200s", l.URL, resp.Status, data)
	}
	var answer struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("%s/completion: %w", l.URL, err)
	}
	if len(answer.Tokens) != n {
		return fmt.Errorf("%s/completion: %d tokens, want %d: give the server --ctx-size for all sequences and --parallel for the batch", l.URL, len(answer.Tokens), n)
	}
	return nil
}
