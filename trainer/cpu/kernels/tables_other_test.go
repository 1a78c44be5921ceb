//go:build !goexperiment.simd || !amd64

package kernels

// tested is an attention with and without tables.
type tested struct{ inner, tables attentionFunc }

// testedTables is empty: the backend adds term by term.
func testedTables() map[string]tested { return nil }
