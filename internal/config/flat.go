package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// Flat writes a configuration as text by key, such as "rl.optimizer.lr".
func Flat(cfg Run) (map[string]string, error) {
	data, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	out := map[string]string{}
	flattenInto(out, "", v)
	return out, nil
}

func flattenInto(out map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			at := key
			if path != "" {
				at = path + "." + key
			}
			flattenInto(out, at, inner)
		}
	case []any:
		plain := !slices.ContainsFunc(v, func(inner any) bool { return inner != nil && reflect.TypeOf(inner).Kind() == reflect.Map })
		if plain {
			data, err := json.Marshal(v)
			if err == nil { // decoded JSON always encodes
				out[path] = string(data)
			}
			return
		}
		for i, inner := range v {
			flattenInto(out, fmt.Sprintf("%s[%d]", path, i), inner)
		}
	case string:
		out[path] = v
	default:
		data, err := json.Marshal(v)
		if err == nil { // decoded JSON always encodes
			out[path] = string(data)
		}
	}
}
