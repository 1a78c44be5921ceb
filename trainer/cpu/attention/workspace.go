package attention

import "sync"

// workspace is the scratch memory of a computation.
type workspace struct {
	keys, values, weights, scoresGrad []float32
}

// workspaces are reused by the next sequence; the collector frees unused ones.
var workspaces = sync.Pool{New: func() any { return new(workspace) }}

func take() *workspace  { return workspaces.Get().(*workspace) } //nolint:forcetypeassert // of New
func give(w *workspace) { workspaces.Put(w) }

// grow returns n numbers of a buffer, after it replaced a buffer that is too small.
func grow(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}
