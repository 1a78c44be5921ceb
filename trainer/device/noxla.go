//go:build !xla

package device

import "github.com/gomlx/gomlx/core/graph"

const withXLA = false

func checkPlugin(string) error { return ErrNotBuilt }

// InPlace does nothing: only XLA has to be told.
func InPlace(*graph.Graph, []Alias) error { return nil }

// MemoryOf knows nothing of other backends.
func MemoryOf(*graph.Graph) (CompiledMemory, bool, error) { return CompiledMemory{}, false, nil }
