//go:build !xla

package device

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/gomlx/core/graph"
)

const withXLA = false

func checkPlugin(string) error { return ErrNotBuilt }

func keepGraphs(string, compute.Backend) error { return ErrNotBuilt }

func describeXLA(string) (line string, ok bool, err error) { return "", false, ErrNotBuilt }

// InPlace does nothing: only XLA needs it.
func InPlace(*graph.Graph, []Alias) error { return nil }

// MemoryOf returns false: only XLA reports its memory.
func MemoryOf(*graph.Graph) (CompiledMemory, bool, error) { return CompiledMemory{}, false, nil }

// Constrain returns x: no other backend has several devices.
func Constrain(x *graph.Node, _ *distributed.DeviceMesh, _ Sharding) *graph.Node { return x }

// Settle returns its arguments: only XLA needs it.
func Settle(x, y *graph.Node) (a, b *graph.Node) { return x, y }
