package artifact

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// clocked are the JSON keys whose values come from the clock, from the machine,
// from Temporal's ids or from who wrote. Anything else of a run is a function of its
// configuration; a new key that is not must be added here.
var clocked = map[string]bool{
	"started": true, "ended": true, "time": true, "duration_ms": true, "owner": true,
	"wall_ns": true, "sample_ns": true, "tool_ns": true, "train_ns": true, "save_ns": true, "publish_ns": true, "walls_ns": true, "tokens_per_sec": true,
	"wall_seconds": true, "peak_rss_bytes": true, "time_split": true, "policy_path": true,
	"orchestration_ms_per_step": true, "orchestration_share": true,
	"written": true, // of a checkpoint: the epoch of its writer, and the manifest before it, which holds an epoch, too
	// Of the chain, the sums over times and who made what. The links stay: two runs of one
	// configuration have the same.
	"previous": true, "holds": true, "state": true, "parent_manifest": true, "made_by": true, "seal": true, "digest": true,
	"busy": true, "perf/throughput": true, "perf/sample_tokens_per_s": true, "perf/train_tokens_per_s": true, "perf/max_memory_gb": true, "perf/mfu/actor": true,
}

// clockedFamilies begin the names of series that machines and clocks decide.
var clockedFamilies = []string{"timing_s/", "cpu_s/", "engine/", "xla/", "tool/wall_s/", "tool/queue_s/"}

// Timeless is the content of a key without clocked values: two runs of one
// configuration have the same. Only JSON and metrics.jsonl hold such values.
func Timeless(key string, data []byte) ([]byte, error) {
	if path.Ext(key) != ".json" && path.Base(key) != "metrics.jsonl" {
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
			if clocked[key] || slices.ContainsFunc(clockedFamilies, func(f string) bool { return strings.HasPrefix(key, f) }) {
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
