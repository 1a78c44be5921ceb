// Package tensor owns the vocabulary for weights on the host: a name, a shape and
// the values. It knows no network, no file format and no device, so that code that
// only hands weights on needs none of them.
//
// Invariant: the length of Data is the product of Shape. Code that receives a tensor from
// outside checks that; see model.Config.CheckTensors.
package tensor

// Named is one weight, or one moment of the optimizer, on the host.
type Named struct {
	Name  string // as Hugging Face checkpoints name it
	Shape []int
	Data  []float32 // row-major
}

// ByName returns a function that finds a tensor of the list by its name.
func ByName(list []Named) func(name string) (Named, bool) {
	byName := make(map[string]Named, len(list))
	for _, t := range list {
		byName[t.Name] = t
	}
	return func(name string) (Named, bool) {
		t, ok := byName[name]
		return t, ok
	}
}
