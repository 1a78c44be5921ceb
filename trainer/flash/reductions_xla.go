//go:build xla

package flash

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/gomlx/core/graph"
)

// forgetReductions drops the functions that the backend has made for reductions of a graph.
// go-xla makes one for each operation and type, within the function that asks first, and
// refuses it in every other one: a loop that reduces, and what follows it, need their own.
// The cache is not exported; a version of the library without it is an error.
func forgetReductions(g *graph.Graph) error {
	if g.Backend().Name() != xla.BackendName {
		return nil
	}
	builder := reflect.ValueOf(g).Elem().FieldByName("builder")
	if !builder.IsValid() || builder.Kind() != reflect.Interface || builder.Elem().Kind() != reflect.Pointer {
		return fmt.Errorf("%T has no builder in this version of the library", g)
	}
	cache := builder.Elem().Elem().FieldByName("cacheReductions")
	if !cache.IsValid() || cache.Kind() != reflect.Map {
		return fmt.Errorf("%s has no cache of reductions in this version of the library", builder.Elem().Type())
	}
	reflect.NewAt(cache.Type(), unsafe.Pointer(cache.UnsafeAddr())).Elem().Clear() //nolint:gosec // the only way to a field that is not exported
	return nil
}
