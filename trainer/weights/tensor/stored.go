package tensor

import "math"

// Stored is a weight in place, for example in a mapped file. The values are read-only. They
// are float32, or the bits of bfloat16, which float32 extends: one of the slices is nil.
type Stored struct {
	Name     string
	Shape    []int
	Float32  []float32
	BFloat16 []uint16
}

// Len returns the number of values.
func (s Stored) Len() int { return len(s.Float32) + len(s.BFloat16) }

// Values returns the values as float32: Float32, or a converted copy.
func (s Stored) Values() []float32 {
	if s.BFloat16 == nil {
		return s.Float32
	}
	out := make([]float32, len(s.BFloat16))
	Widen(out, s.BFloat16)
	return out
}

// Named returns the weight as float32.
func (s Stored) Named() Named { return Named{Name: s.Name, Shape: s.Shape, Data: s.Values()} }

// Widen converts the bits of bfloat16 values to float32, exactly.
func Widen(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}

// Stored returns the weight in place. The caller must not change it afterwards.
func (n Named) Stored() Stored { return Stored{Name: n.Name, Shape: n.Shape, Float32: n.Data} }

// Lookup returns a weight by name.
type Lookup func(name string) (Stored, bool)

// StoredByName is ByName for weights in place.
func StoredByName(list []Named) Lookup {
	find := ByName(list)
	return func(name string) (Stored, bool) {
		t, ok := find(name)
		return t.Stored(), ok
	}
}
