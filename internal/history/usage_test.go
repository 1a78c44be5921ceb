package history_test

import (
	"bytes"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/history"
	"temper/internal/run/artifact"
)

// TestUsageByKind: every object of a run is counted once, under the right kind.
func TestUsageByKind(t *testing.T) {
	store := memblob.New()
	opened(t, store, "r", 3)
	dir := artifact.Layout{RunID: "r"}.Dir()
	r := mustOpen(t, store, "r")
	before, err := r.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	size := 1
	for _, key := range []string{
		"policies/v000000/model.safetensors", "policies/v000000/policy.json", "policies/v000001/policy.json", "policies/v000001.json",
		"steps/000001/trajectories/p1.jsonl", "steps/000001/batch.json", "steps/000001/step.json", "steps/000002/trajectories/p2.jsonl", "steps/000002/step.json",
		"evals/stage-01-before-v000000.jsonl", "evals/stage-01-before-v000000.json", "evals/stage-01-before-v000000/p1.json",
		"data/sft.jsonl", "tokenizer.json", "steps/000001/samples/p1", "events/1-x-y.json",
	} {
		if _, err := blob.PutBytes(t.Context(), store, dir+"/"+key, bytes.Repeat([]byte("x"), size), blob.Always); err != nil {
			t.Fatal(err)
		}
		size *= 2
	}
	got, err := r.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []history.KindSize{
		{"policies", 4, 1 + 2 + 4 + 8, "policy", 2}, {"checkpoints", 0, 0, "checkpoint", 0}, {"trajectories", 2, 16 + 128, "step", 2},
		{"batches", 2, 32 + 1<<14, "step", 2}, {"records", 3, 64 + 256 + 1<<15, "step", 2},
		{"evaluations", 3, 512 + 1024 + 2048, "evaluation", 1}, {"data", 2, 4096 + 8192, "", 0},
	}
	for i, w := range want {
		k := got.Kinds[i]
		k.Objects -= before.Kinds[i].Objects
		k.Bytes -= before.Kinds[i].Bytes
		if k != w {
			t.Errorf("got %+v, want %+v", k, w)
		}
	}
}
