//go:build xla

package gomlxhooks

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/go-xla/pjrt"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"
)

// read returns a private field. A field of another type is an error.
func read[T any](of any, name string) (T, error) {
	var zero T
	f, err := fieldOf(of, name)
	if err != nil {
		return zero, err
	}
	x, ok := f.Interface().(T)
	if !ok {
		return zero, fmt.Errorf("field %s of %T is a %s in this version of the library", name, of, f.Type())
	}
	return x, nil
}

// write sets a private field. A field of another type is an error.
func write[T any](of any, name string, x T) error {
	f, err := fieldOf(of, name)
	if err != nil {
		return err
	}
	if want := reflect.TypeFor[T](); f.Type() != want {
		return fmt.Errorf("field %s of %T is a %s in this version of the library, want %s", name, of, f.Type(), want)
	}
	f.Set(reflect.ValueOf(&x).Elem())
	return nil
}

// Program returns the program that a graph has built up to now.
//
// gomlx v0.28.16, core/graph/graph.go: Graph.builder compute.Builder.
// go-xla v0.4.13, compute/xla/builder.go: Builder.mainFn *Function.
// go-xla v0.4.13, compute/xla/function.go: Function.fn *stablehlo.Function.
func Program(g *graph.Graph) (*stablehlo.Function, error) {
	builder, err := read[compute.Builder](g, "builder")
	if err != nil {
		return nil, err
	}
	function, err := read[*xla.Function](builder, "mainFn")
	if err != nil {
		return nil, err
	}
	return read[*stablehlo.Function](function, "fn")
}

// NodeValue returns the value of a node in the program.
//
// gomlx v0.28.16, core/graph/node.go: Node.outputOps []compute.Value.
// go-xla v0.4.13, compute/xla/builder.go: Node.value *stablehlo.Value.
func NodeValue(n *graph.Node) (*stablehlo.Value, error) {
	old, err := nodeOf(n)
	if err != nil {
		return nil, err
	}
	return read[*stablehlo.Value](old, "value")
}

// SetNodeValue replaces the value of a node, which has one output, and the inputs from which
// the node is cloned.
//
// gomlx v0.28.16, core/graph/node.go: Node.inputs NodeInputs, beside the fields of NodeValue.
func SetNodeValue(n *graph.Node, v *stablehlo.Value, inputs graph.NodeInputs) error {
	old, err := nodeOf(n)
	if err != nil {
		return err
	}
	replaced := *old
	if err := write(&replaced, "value", v); err != nil {
		return err
	}
	if err := write(n, "outputOps", []compute.Value{&replaced}); err != nil {
		return err
	}
	return write(n, "inputs", inputs)
}

// nodeOf returns the backend's node of a graph's node.
func nodeOf(n *graph.Node) (*xla.Node, error) {
	ops, err := read[[]compute.Value](n, "outputOps")
	if err != nil {
		return nil, err
	}
	node, ok := ops[0].(*xla.Node)
	if !ok {
		return nil, fmt.Errorf("a value is a %T in this version of the library", ops[0])
	}
	return node, nil
}

// ForgetReductions drops the functions that the backend has made for reductions of a graph.
// go-xla makes one for each operation and type, inside the function that asks first, and
// refuses it in every other function.
//
// go-xla v0.4.13, compute/xla/builder.go: Builder.cacheReductions map[reductionKey]*stablehlo.Function.
func ForgetReductions(g *graph.Graph) error {
	builder, err := read[compute.Builder](g, "builder")
	if err != nil {
		return err
	}
	cache, err := fieldOf(builder, "cacheReductions")
	if err != nil {
		return err
	}
	if cache.Kind() != reflect.Map {
		return fmt.Errorf("field cacheReductions of %T is a %s in this version of the library", builder, cache.Type())
	}
	cache.Clear()
	return nil
}

// LoadedExecutable returns the program of a compiled graph on its devices.
//
// gomlx v0.28.16, core/graph/graph.go: Graph.executable compute.Executable.
// go-xla v0.4.13, compute/xla/executable.go: Executable.exec *pjrt.LoadedExecutable.
func LoadedExecutable(g *graph.Graph) (*pjrt.LoadedExecutable, error) {
	executable, err := read[compute.Executable](g, "executable")
	if err != nil {
		return nil, err
	}
	return read[*pjrt.LoadedExecutable](executable, "exec")
}

// Client returns the client of a backend, and its pointer to the plugin's client.
//
// go-xla v0.4.13, compute/xla/backend.go: Backend.client *pjrt.Client.
// go-xla v0.4.13, pjrt/clients.go: Client.client *clientC, clientC.c *C.PJRT_Client.
func Client(b compute.Backend) (client *pjrt.Client, pointer unsafe.Pointer, err error) {
	if client, err = read[*pjrt.Client](b, "client"); err != nil {
		return nil, nil, err
	}
	inner, err := fieldOf(client, "client")
	if err != nil {
		return nil, nil, err
	}
	c, err := fieldOf(inner.Interface(), "c")
	if err != nil {
		return nil, nil, err
	}
	if c.Kind() != reflect.Pointer {
		return nil, nil, fmt.Errorf("field c of %s is a %s in this version of the library", inner.Type(), c.Type())
	}
	return client, c.UnsafePointer(), nil
}

// Table is the place of a plugin's table of functions, a struct PJRT_Api of C.
type Table struct {
	at   *unsafe.Pointer
	kind reflect.Type
}

// PluginTable returns the table of functions through which go-xla calls a plugin.
//
// go-xla v0.4.13, pjrt/plugins.go: Plugin.api *C.PJRT_Api.
func PluginTable(p *pjrt.Plugin) (Table, error) {
	api, err := fieldOf(p, "api")
	if err != nil {
		return Table{}, err
	}
	if api.Kind() != reflect.Pointer || api.Type().Elem().Kind() != reflect.Struct {
		return Table{}, fmt.Errorf("field api of %T is a %s in this version of the library", p, api.Type())
	}
	return Table{(*unsafe.Pointer)(api.Addr().UnsafePointer()), api.Type().Elem()}, nil
}

// Pointer returns the address of the table that is in use.
func (t Table) Pointer() unsafe.Pointer { return *t.at }

// Replace makes go-xla call the functions of another table.
func (t Table) Replace(table unsafe.Pointer) { *t.at = table }

// Offset returns the offset of a function in the table, in bytes.
func (t Table) Offset(function string) (uintptr, error) {
	f, ok := t.kind.FieldByName(function)
	if !ok {
		return 0, fmt.Errorf("the table of a plugin has no %s in this version of the library", function)
	}
	return f.Offset, nil
}
