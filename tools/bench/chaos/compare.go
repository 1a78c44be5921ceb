package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"path"
	"slices"
	"strings"

	"temper/internal/artifact"
	"temper/internal/blob"
)

// Contents is what a run left in the store, by key below its folder, without
// what the clock put there.
type Contents map[string][]byte

// clocked are the JSON keys whose values come from the clock, from the machine,
// from Temporal's ids or from who wrote. Anything else of a run is a function of its
// configuration; a new key that is not must be added here.
var clocked = map[string]bool{
	"started": true, "ended": true, "time": true, "duration_ms": true, "owner": true,
	"wall_ns": true, "sample_ns": true, "tool_ns": true, "train_ns": true, "save_ns": true, "walls_ns": true, "tokens_per_sec": true,
	"wall_seconds": true, "peak_rss_bytes": true, "time_split": true, "policy_path": true,
	"orchestration_ms_per_step": true, "orchestration_share": true,
	"written": true, // of a checkpoint: the epoch of its writer, and the manifest before it, which holds an epoch, too
	// Of the chain, the sums over times and who made what. The links stay: two runs of one
	// configuration have the same.
	"previous": true, "holds": true, "state": true, "parent_manifest": true, "made_by": true, "seal": true, "digest": true,
	"perf/throughput": true, "perf/sample_tokens_per_s": true, "perf/train_tokens_per_s": true,
}

// clockedFamily begins the names of series that are all times.
const clockedFamily = "timing_s/"

// writersOwn begin the keys that say which process wrote, or is about to write or to
// delete: a writer that died leaves its announcement until it is collected, and who
// goes on with its deletions notes what is left of them.
var writersOwn = []string{"checkpoints/shards/", "checkpoints/pending/", "retired/", "head.json"}

// Read loads what a run left. Shards of checkpoints are left out: a crash may
// leave some that no manifest names; those that one names are checked by loading it.
func Read(ctx context.Context, store blob.Store, run artifact.Layout) (Contents, error) {
	infos, err := store.List(ctx, run.Dir()+"/")
	if err != nil {
		return nil, err
	}
	out := Contents{}
	for _, info := range infos {
		name := strings.TrimPrefix(info.Key, run.Dir()+"/")
		if slices.ContainsFunc(writersOwn, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		data, err := blob.ReadKey(ctx, store, info.Key)
		if err != nil {
			return nil, err
		}
		if data, err = timeless(name, data); err != nil {
			return nil, fmt.Errorf("%s: %w", store.Locate(info.Key), err)
		}
		name = out.unclocked(name)
		out[name] = data
	}
	return out, nil
}

// unclocked takes the time out of the name of an event; events that differ in
// nothing else are counted.
func (c Contents) unclocked(name string) string {
	if path.Dir(name) != "events" {
		return name
	}
	_, rest, _ := strings.Cut(path.Base(name), "-")
	for n := 1; ; n++ {
		name = fmt.Sprintf("events/%s#%d", rest, n)
		if _, taken := c[name]; !taken {
			return name
		}
	}
}

// timeless is data without clocked values.
func timeless(name string, data []byte) ([]byte, error) {
	if path.Ext(name) != ".json" && name != "metrics.jsonl" {
		return data, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var out bytes.Buffer
	for dec.More() {
		var v any
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		line, err := json.Marshal(unclock(v))
		if err != nil {
			return nil, err
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

func unclock(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			if clocked[key] || strings.HasPrefix(key, clockedFamily) {
				delete(v, key)
				continue
			}
			v[key] = unclock(inner)
		}
	case []any:
		for i := range v {
			v[i] = unclock(v[i])
		}
	}
	return v
}

// Difference is an object that two runs do not have in common.
type Difference struct {
	Name string `json:"name"`
	// Kind is missing, extra or changed.
	Kind string `json:"kind"`
	Bits int64  `json:"bits"`
}

// Compare lists where got differs from want, by name.
func Compare(want, got Contents) []Difference {
	var out []Difference
	for name, a := range want {
		b, ok := got[name]
		switch {
		case !ok:
			out = append(out, Difference{name, "missing", int64(8 * len(a))})
		case !bytes.Equal(a, b):
			out = append(out, Difference{name, "changed", differingBits(a, b)})
		}
	}
	for name, b := range got {
		if _, ok := want[name]; !ok {
			out = append(out, Difference{name, "extra", int64(8 * len(b))})
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// differingBits counts those of the common length and all beyond it.
func differingBits(a, b []byte) int64 {
	n := int64(8 * (max(len(a), len(b)) - min(len(a), len(b))))
	for i := range min(len(a), len(b)) {
		n += int64(bits.OnesCount8(a[i] ^ b[i]))
	}
	return n
}
