package attention

import "sync"

// workspace is what a computation needs for a time.
type workspace struct {
	keys, values, weights, scoresGrad []float32
}

// workspaces are kept for the next sequence; the collector takes those that nobody needs.
var workspaces = sync.Pool{New: func() any { return new(workspace) }}

func take() *workspace  { return workspaces.Get().(*workspace) } //nolint:forcetypeassert // of New
func give(w *workspace) { workspaces.Put(w) }

// grow returns n numbers of a buffer, which it replaces where it is too small.
func grow(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}
