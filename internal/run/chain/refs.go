package chain

import (
	"bytes"
	"encoding/json"
	"path"
	"strings"

	"temper/internal/blob"
	"temper/internal/run/artifact"
)

// refsIn are the Refs in a JSON document: objects of a key, a SHA-256 and a size. They
// hold for the run where they point into its folder or to the shared shards; what else
// a document names belongs to others. Text that a policy wrote is a string in JSON and
// cannot become a Ref.
func refsIn(layout artifact.Layout, data []byte) []blob.Ref {
	if !bytes.Contains(data, []byte(`"sha256"`)) {
		return nil
	}
	var v any
	if json.Unmarshal(data, &v) != nil {
		return nil
	}
	var out []blob.Ref
	collectRefs(v, func(ref blob.Ref) {
		if strings.HasPrefix(ref.Key, layout.Dir()+"/") || strings.HasPrefix(ref.Key, sharedShards) {
			out = append(out, ref)
		}
	})
	return out
}

// sharedShards is where all runs keep the shards of their checkpoints and policies.
const sharedShards = "cas/"

// provenance is the part of a checkpoint's manifest that tells how it was made. The objects
// that it names may be deleted.
const provenance = "written"

func collectRefs(v any, found func(blob.Ref)) {
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			collectRefs(inner, found)
		}
	case map[string]any:
		key, isKey := v["key"].(string)
		sum, isSum := v["sha256"].(string)
		size, isSize := v["size"].(float64)
		if isKey && isSum && isSize && len(v) == 3 {
			if key != "" {
				found(blob.Ref{Key: key, SHA256: sum, Size: int64(size)})
			}
			return
		}
		for name, inner := range v {
			if name != provenance {
				collectRefs(inner, found)
			}
		}
	}
}

// isPolicyFile reports whether a file of a policy names others.
func isPolicyFile(name string) bool {
	return path.Base(name) == "policy.json" || path.Base(name) == "shards.json"
}

// holdsRefs reports whether the object of a key is a document of this service that may name
// other objects. The files of models and the data are not: others define their content.
func holdsRefs(layout artifact.Layout, key string) bool {
	name, own := strings.CutPrefix(key, layout.Dir()+"/")
	if !own || path.Ext(name) != ".json" {
		return false
	}
	switch folder, _, _ := strings.Cut(name, "/"); folder {
	case "policies":
		return path.Dir(name) == "policies" || isPolicyFile(name)
	case "start":
		return isPolicyFile(name)
	case "data":
		return path.Dir(name) == "data"
	case "plan.json", "checkpoints", "evals", "steps", "retired":
		return true
	default:
		return false
	}
}
