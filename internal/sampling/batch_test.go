package sampling_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/internal/blob/memblob"
	"temper/internal/run"
	"temper/internal/sampling"
	"temper/internal/series"
)

// counted is a store that counts the bytes that are read from it.
type counted struct {
	blob.Store
	read, requests int
}

func (c *counted) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	c.requests++
	r, err := c.Store.Get(ctx, key)
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r, counter{c}), r}, err
}

type counter struct{ *counted }

func (c counter) Write(p []byte) (int, error) { c.read += len(p); return len(p), nil }

// paperShard is what a call leaves of many groups of 32 rollouts.
func paperShard(t testing.TB, store blob.Store, ids []string) blob.Ref {
	t.Helper()
	var groups []run.GroupRecord
	for _, id := range ids {
		key := "runs/paper/steps/000001/samples/" + id + ".bin"
		g := run.GroupRecord{ProblemID: id, Fate: "kept", NumSamples: 16, Samples: blob.RefOf(key, []byte(id))}
		g.All = series.Tally{Num: 32, Calls: 97, Failed: 13, Tokens: 160123, Turns: 111, Clipped: 2, Reward: 20}
		g.Correct, g.KeptCorrect = series.Tally{Num: 20, Calls: 60, Failed: 7, Tokens: 99999, Turns: 70, Reward: 20}, series.Tally{Num: 10, Calls: 30, Failed: 1}
		for i := range 20 {
			g.ErrorPenalties, g.FormatPenalties = append(g.ErrorPenalties, float64(i%4)/3), append(g.FormatPenalties, 0)
		}
		groups = append(groups, g)
	}
	ref, err := blob.PutJSON(t.Context(), store, "runs/paper/steps/000001/shards/"+ids[0]+".json", groups, blob.Always)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// TestBatchOfThePapersSize: what the control worker reads, and what it holds, for
// 512 groups of 32 rollouts.
func TestBatchOfThePapersSize(t *testing.T) {
	store := &counted{Store: memblob.New()}
	in := sampling.BatchInput{Run: run.Ref{RunID: "paper"}, Stage: 1, Step: 1}
	for i := range 512 {
		in.ProblemIDs = append(in.ProblemIDs, fmt.Sprintf("dapo-math-%08d", i))
	}
	for i := range 4 {
		in.Shards = append(in.Shards, paperShard(t, store.Store, in.ProblemIDs[i*128:(i+1)*128]))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := sampling.BuildBatch(t.Context(), store, in)
	runtime.ReadMemStats(&after)
	if err != nil || got.Samples != 8192 || got.Stats.Groups != 512 || got.Stats.RewardMean != 20./32 {
		t.Fatalf("%+v, error %v", got, err)
	}
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("read %d bytes in %d requests, allocated %d bytes in all", store.read, store.requests, allocated)
	if store.read > 1e6 || allocated > 64<<20 {
		t.Errorf("read %d bytes and allocated %d, want at most 1 MB and 64 MiB", store.read, allocated)
	}
}

// TestShardsLeaveNoTrace: however a step was cut, its batch has the same bytes, and
// the records of the shards are gone.
func TestShardsLeaveNoTrace(t *testing.T) {
	var ids []string
	for i := range 12 {
		ids = append(ids, fmt.Sprint("p", i))
	}
	var want map[string]string
	for _, cuts := range [][]int{{0, 12}, {0, 5, 12}, {0, 1, 2, 12}} {
		store := memblob.New()
		in := sampling.BatchInput{Run: run.Ref{RunID: "paper"}, Stage: 1, Step: 1, ProblemIDs: ids}
		for i := range len(cuts) - 1 {
			in.Shards = append(in.Shards, paperShard(t, store, ids[cuts[i]:cuts[i+1]]))
		}
		if _, err := sampling.BuildBatch(t.Context(), store, in); err != nil {
			t.Fatal(err)
		}
		got := content(t, store)
		for key := range got {
			if strings.Contains(key, "/shards/") {
				t.Errorf("%s is left", key)
			}
		}
		if want == nil {
			want = got
		}
		if len(got) != 2 || got["runs/paper/steps/000001/batch.json"] != want["runs/paper/steps/000001/batch.json"] {
			t.Errorf("cut at %v: another batch", cuts)
		}
	}
}

// TestBatchSurvivesItsDeaths: an attempt that died behind the batch has deleted
// what it was made of.
func TestBatchSurvivesItsDeaths(t *testing.T) {
	store := memblob.New()
	in := sampling.BatchInput{Run: run.Ref{RunID: "paper"}, Stage: 1, Step: 1, ProblemIDs: []string{"a", "b"}}
	in.Shards = []blob.Ref{paperShard(t, store, in.ProblemIDs)}
	want, err := sampling.BuildBatch(t.Context(), store, in)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), "runs/paper/steps/000001/rollouts.json"); err != nil {
		t.Fatal(err)
	}
	got, err := sampling.BuildBatch(t.Context(), store, in)
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
	paperShard(t, store, in.ProblemIDs) // the step was interrupted behind its batch, and is sampled again
	got, err = sampling.BuildBatch(t.Context(), store, in)
	if err != nil || !cmp.Equal(got, want) || len(content(t, store)) != 2 {
		t.Errorf("%+v (%v), want %+v and no shard", got, err, want)
	}
}

// TestIncompleteShards are refused: a batch is of all problems of its step, once.
func TestIncompleteShards(t *testing.T) {
	for name, have := range map[string][]string{"one missing": {"a"}, "a stranger": {"a", "c"}, "one twice": {"a", "b", "b"}} {
		store := memblob.New()
		in := sampling.BatchInput{Run: run.Ref{RunID: "paper"}, Step: 1, ProblemIDs: []string{"a", "b"}, Shards: []blob.Ref{paperShard(t, store, have)}}
		if _, err := sampling.BuildBatch(t.Context(), store, in); err == nil || !strings.Contains(err.Error(), "batch of step 1: the shards have") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func content(t testing.TB, store blob.Store) map[string]string {
	t.Helper()
	infos, err := store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, info := range infos {
		data, err := blob.ReadKey(t.Context(), store, info.Key)
		if err != nil {
			t.Fatal(err)
		}
		out[info.Key] = string(data)
	}
	return out
}
