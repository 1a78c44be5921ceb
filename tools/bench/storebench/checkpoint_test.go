package storebench_test

import (
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/blob/memblob"
	"temper/tools/bench/storebench"
)

func TestCheckpointMeasuresAllAndLeavesNothing(t *testing.T) {
	files, err := fileblob.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	for name, store := range map[string]blob.Store{"with a raw client": files, "without": memblob.New()} {
		const size = 2 << 20
		r, err := storebench.Checkpoint(t.Context(), storebench.CheckpointConfig{Store: store, Size: size, Rounds: 2, Cold: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := r.Median
		if r.Bytes < size*9/10 || r.Bytes > size || r.Shards != 3 || len(r.Rounds) != 2 || min(r.First.Wall, m.Stall.Wall, m.Save.Wall, m.Load.Wall) <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if raw := name != "without"; raw != (m.RawPut.Wall > 0 && m.RawGet.Wall > 0) || raw != (r.SaveOf.Least > 0 && r.LoadOf.Least > 0) {
			t.Errorf("%s: raw figures %+v, ratios %v and %v", name, m, r.SaveOf, r.LoadOf)
		}
		if left, err := store.List(t.Context(), ""); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, error %v", name, left, err)
		}
	}
}

func TestCheckpointRefusesWhatSaysNothing(t *testing.T) {
	for _, c := range []storebench.CheckpointConfig{{Size: 100, Rounds: 1}, {Size: 1 << 20}} {
		if _, err := storebench.Checkpoint(t.Context(), c); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}
