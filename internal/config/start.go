package config

import (
	"reflect"
	"slices"
	"strings"
)

// dimension is a field of Model that a checkpoint says for itself.
type dimension struct {
	path  string
	value reflect.Value
}

// dimensions lists the fields of the model that Path stands in for.
func (m *Model) dimensions() []dimension {
	var out []dimension
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		if !slices.Contains([]string{"path", "max_context", "compute", "remat"}, key) {
			out = append(out, dimension{"model." + key, v.Field(i)})
		}
	}
	return out
}

// forgetDefaults zeroes the dimensions that nobody stated when a checkpoint says
// them, so that those that were stated stand out.
func (m *Model) forgetDefaults(stated func(path string) bool) {
	if m.Path == "" {
		return
	}
	for _, d := range m.dimensions() {
		if !stated(d.path) {
			d.value.SetZero()
		}
	}
}
