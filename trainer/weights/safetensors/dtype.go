package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DType is the type of a tensor's values as the header spells it.
type DType string

// The types that have a conversion to float32 and back. Others are bytes.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
)

// widths lists the bytes of a value in the order in which the reference
// implementation ranks the types, which is the order of tensors in a file.
func widths() []struct {
	dtype DType
	bytes int64
} {
	return []struct {
		dtype DType
		bytes int64
	}{
		{"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"I16", 2}, {"U16", 2},
		{F16, 2}, {BF16, 2}, {"I32", 4}, {"U32", 4}, {F32, 4}, {"C64", 8}, {"F64", 8}, {"I64", 8}, {"U64", 8},
	}
}

// Size returns the bytes of one value, 0 for an unknown type.
func (d DType) Size() int64 {
	for _, w := range widths() {
		if w.dtype == d {
			return w.bytes
		}
	}
	return 0
}

// rank orders types as the reference implementation does.
func (d DType) rank() int {
	for i, w := range widths() {
		if w.dtype == d {
			return i
		}
	}
	return -1
}

// IsFloat reports whether Float32s and AppendFloat32s know the type.
func (d DType) IsFloat() bool { return d == F32 || d == F16 || d == BF16 }

// Float32s converts little-endian values to float32, which is exact for F32,
// F16 and BF16, NaN payloads included. Other types are an error.
func Float32s(d DType, raw []byte) ([]float32, error) {
	if !d.IsFloat() {
		return nil, fmt.Errorf("dtype %s has no conversion to float32, want F32, F16 or BF16", d)
	}
	out := make([]float32, int64(len(raw))/d.Size())
	switch d {
	case F32:
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	case BF16:
		for i := range out {
			out[i] = BF16ToFloat32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	default:
		for i := range out {
			out[i] = F16ToFloat32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}
	return out, nil
}

func tooLarge(d DType, x float32) error {
	return fmt.Errorf("%g is too large for %s, in which it would be infinite", x, d)
}

// AppendFloat32s appends the values as little-endian F32, F16 or BF16, rounded to nearest, ties
// to even. Values from Float32s return bit for bit. A finite number that overflows the type is
// an error.
func AppendFloat32s(dst []byte, d DType, values []float32) ([]byte, error) {
	switch d {
	case F32:
		for _, x := range values {
			dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(x))
		}
	case BF16:
		for _, x := range values {
			h := Float32ToBF16(x)
			if h&0x7fff == 0x7f80 && !math.IsInf(float64(x), 0) {
				return nil, tooLarge(d, x)
			}
			dst = binary.LittleEndian.AppendUint16(dst, h)
		}
	case F16:
		for _, x := range values {
			h := Float32ToF16(x)
			if h&0x7fff == 0x7c00 && !math.IsInf(float64(x), 0) {
				return nil, tooLarge(d, x)
			}
			dst = binary.LittleEndian.AppendUint16(dst, h)
		}
	default:
		return nil, fmt.Errorf("dtype %s has no conversion from float32, want F32, F16 or BF16", d)
	}
	return dst, nil
}
