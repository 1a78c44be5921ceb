package main

import (
	"bytes"
	"strings"
	"testing"

	"temper/internal/artifact"
	"temper/internal/blob"
	"temper/internal/blob/memblob"
)

// TestUsageByKind: every object of a run is counted once, under the right kind.
func TestUsageByKind(t *testing.T) {
	store, layout := memblob.New(), artifact.Layout{RunID: "r"}
	size := 1
	for _, key := range []string{
		"policies/v000000/model.safetensors", "policies/v000000/policy.json", "policies/v000001/policy.json", "policies/v000001.json",
		"steps/000001/trajectories/p1.jsonl", "steps/000001/batch.json", "steps/000001/step.json", "steps/000002/trajectories/p2.jsonl", "steps/000002/step.json",
		"evals/stage-01-before-v000000.jsonl", "evals/stage-01-before-v000000.json", "evals/stage-01-before-v000000/p1.json",
		"data/sft.jsonl", "tokenizer.json", "config.yaml", "events/1-x-y.json",
	} {
		if _, err := blob.PutBytes(t.Context(), store, layout.Dir()+"/"+key, bytes.Repeat([]byte("x"), size), blob.Always); err != nil {
			t.Fatal(err)
		}
		size *= 2
	}
	got, err := usageOf(t.Context(), store, layout)
	if err != nil {
		t.Fatal(err)
	}
	want := []kindSize{
		{"policies", 4, 1 + 2 + 4 + 8, "policy", 2}, {"checkpoints", 0, 0, "checkpoint", 0}, {"trajectories", 2, 16 + 128, "step", 2},
		{"batches", 1, 32, "step", 2}, {"records", 4, 64 + 256 + 1<<14 + 1<<15, "step", 2},
		{"evaluations", 3, 512 + 1024 + 2048, "evaluation", 1}, {"data", 2, 4096 + 8192, "", 0},
	}
	for i, w := range want {
		if got.Kinds[i] != w {
			t.Errorf("got %+v, want %+v", got.Kinds[i], w)
		}
	}
	var out bytes.Buffer
	if err := got.print(&out); err != nil || !strings.Contains(out.String(), "all") || !strings.Contains(out.String(), "0.066") {
		t.Errorf("printed (%v):\n%s", err, &out)
	}
}
