package engine_test

import (
	"testing"

	"temper/internal/inference"
	"temper/trainer/engine"
)

// TestPassesByRows: each pass is counted once, by the requests that it served.
func TestPassesByRows(t *testing.T) {
	e := start(t, engine.Config{Model: demo(128, 1, 384), Slots: 4, Shards: 1, MaxContext: 64})
	alone := generate(t, e, inference.Request{Tokens: prompt(1, 3), MaxTokens: 6, Temperature: 1, Seed: 1, Version: -1})
	got := e.PassesByRows()
	if len(got) != 2 || got[0] != 0 || got[1] != e.Stats().Steps || got[1] < int64(len(alone.Tokens)) {
		t.Errorf("one request made passes %v of %d", got, e.Stats().Steps)
	}
	amid(t, e, 3, inference.Request{Tokens: prompt(2, 3), MaxTokens: 6, Temperature: 1, Seed: 2, Version: -1})
	passes, served := int64(0), int64(0)
	for rows, n := range e.PassesByRows() {
		passes, served = passes+n, served+int64(rows)*n
	}
	if s := e.Stats(); passes != s.Steps || served < s.Generated {
		t.Errorf("%d passes served %d requests, the engine counts %d passes and %d tokens", passes, served, s.Steps, s.Generated)
	}
}
