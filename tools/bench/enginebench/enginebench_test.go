package enginebench_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"temper/tools/bench/enginebench"
	"temper/tools/bench/trainerbench"
)

// steady is an opponent that takes the same time for every round.
type steady struct{ fail error }

func (steady) Name() string { return "steady" }

func (s steady) Decode(_ context.Context, prompts [][]int32, n int) (enginebench.Round, error) {
	return enginebench.Round{Wall: time.Second, CPU: time.Second, Tokens: len(prompts) * n}, s.fail
}

func plan(t *testing.T) enginebench.Plan {
	t.Helper()
	model, err := trainerbench.Model("d16,L1,H2,KV1,E16,ff16,V32")
	if err != nil {
		t.Fatal(err)
	}
	return enginebench.Plan{Model: model, Seed: 1, Rounds: 2, Cases: []enginebench.Case{{Size: "tiny", Batch: 3, Context: 40, NewTokens: 20}}}
}

// measure returns the rows of a plan.
func measure(t *testing.T, p enginebench.Plan) []enginebench.Row {
	t.Helper()
	var rows []enginebench.Row
	if err := enginebench.Measure(t.Context(), p, func(r enginebench.Row) { rows = append(rows, r) }); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestRowsOfOneCase(t *testing.T) {
	p := plan(t)
	p.Opponents = []enginebench.Opponent{steady{}}
	rows := measure(t, p)
	if len(rows) != 2 || rows[0].Contender != "temper" || rows[1].Contender != "steady" {
		t.Fatalf("rows %+v, want one of ours and one of the other", rows)
	}
	if r := rows[0]; r.TokensPerSecond <= 0 || r.TokensPerCPUSecond <= 0 || r.FirstTokenMS <= 0 || len(r.Digest) != 16 {
		t.Errorf("our row %+v lacks a figure", r)
	}
	if r := rows[1]; r.TokensPerCPUSecond != 60 || r.Ratio <= 0 || r.Digest != "" {
		t.Errorf("their row %+v, want 60 tokens/CPU-s and a ratio", r)
	}
}

// TestDigestIsOfTheBits: it depends on seed and load alone.
func TestDigestIsOfTheBits(t *testing.T) {
	p := plan(t)
	want := measure(t, p)[0].Digest
	p.Graph, p.Shards = true, 1
	if got := measure(t, p)[0].Digest; got != want {
		t.Errorf("digest %s with the graph, %s without", got, want)
	}
	p.Seed = 2
	if measure(t, p)[0].Digest == want {
		t.Error("another seed has the same digest")
	}
}

func TestFailureNamesCaseAndContender(t *testing.T) {
	p, want := plan(t), errors.New("gone")
	p.Opponents = []enginebench.Opponent{steady{fail: want}}
	err := enginebench.Measure(t.Context(), p, func(enginebench.Row) {})
	if !errors.Is(err, want) || !strings.Contains(err.Error(), "batch 3") || !strings.Contains(err.Error(), "steady") {
		t.Errorf("got error %v, want one that names batch and contender", err)
	}
}

func TestBadPlanNamesAllFaults(t *testing.T) {
	err := enginebench.Plan{Cases: []enginebench.Case{{Batch: 0, Context: 10, NewTokens: 20}}}.Validate()
	for _, want := range []string{"rounds", "batch 0", "context of 10"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
	if err := (enginebench.Plan{Rounds: 1}).Validate(); err == nil {
		t.Error("a plan without cases is accepted")
	}
}

// TestLlamaCPPIsAskedForAllTokens: the server gets ids, and fewer tokens than asked for
// are an error.
func TestLlamaCPPIsAskedForAllTokens(t *testing.T) {
	limit := 100
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Prompt []int32 `json:"prompt"`
			N      int     `json:"n_predict"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.URL.Path != "/completion" || len(req.Prompt) != 2 {
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": make([]int32, min(limit, req.N))})
	}))
	defer server.Close()
	l := enginebench.LlamaCPP{URL: server.URL}
	r, err := l.Decode(t.Context(), [][]int32{{1, 2}, {3, 4}}, 7)
	if err != nil || r.Tokens != 14 || r.Wall <= 0 || r.FirstToken <= 0 {
		t.Errorf("round %+v, error %v: want 14 tokens in some time", r, err)
	}
	limit = 5
	if _, err := l.Decode(t.Context(), [][]int32{{1, 2}}, 7); err == nil || !strings.Contains(err.Error(), "5 tokens, want 7") {
		t.Errorf("got error %v for a server that cuts answers", err)
	}
}
