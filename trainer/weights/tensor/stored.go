package tensor

import "math"

// Stored is a weight where it lies, for example in a mapped file. Nobody changes the
// values. They are float32, or bfloat16 as their bits, of which float32 has all: one of
// the two slices is nil.
type Stored struct {
	Name     string
	Shape    []int
	Float32  []float32
	BFloat16 []uint16
}

// Len is the number of values.
func (s Stored) Len() int { return len(s.Float32) + len(s.BFloat16) }

// Values returns the values as float32: those that are there, or new ones.
func (s Stored) Values() []float32 {
	if s.BFloat16 == nil {
		return s.Float32
	}
	out := make([]float32, len(s.BFloat16))
	Widen(out, s.BFloat16)
	return out
}

// Named is the weight as float32.
func (s Stored) Named() Named { return Named{Name: s.Name, Shape: s.Shape, Data: s.Values()} }

// Widen converts the bits of bfloat16 values to float32, exactly.
func Widen(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}

// Stored is the weight where it lies. The caller must not change it from then on.
func (n Named) Stored() Stored { return Stored{Name: n.Name, Shape: n.Shape, Float32: n.Data} }

// Lookup finds weights by name.
type Lookup func(name string) (Stored, bool)

// StoredByName is ByName for weights where they lie.
func StoredByName(list []Named) Lookup {
	find := ByName(list)
	return func(name string) (Stored, bool) {
		t, ok := find(name)
		return t.Stored(), ok
	}
}
