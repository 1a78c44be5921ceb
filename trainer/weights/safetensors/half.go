package safetensors

import "math"

// Bits of IEEE 754 binary32.
const (
	signMask32 = 0x80000000
	inf32      = 0x7f800000
)

// BF16ToFloat32 widens a bfloat16, exactly.
func BF16ToFloat32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// Float32ToBF16 rounds to the nearest bfloat16, ties to even; values beyond the range become
// infinite. A NaN keeps the top of its payload.
func Float32ToBF16(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&^signMask32 > inf32 {
		h := uint16(bits >> 16)
		if h&0x7f == 0 { // the payload was in the lost half: without it this is an infinity
			h |= 0x40
		}
		return h
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// F16ToFloat32 widens an IEEE 754 binary16, exactly.
func F16ToFloat32(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch exponent {
	case 0: // zero and subnormals are multiples of 2^-24
		return math.Float32frombits(math.Float32bits(float32(fraction)/(1<<24)) | sign)
	case 31: // infinity and NaN
		return math.Float32frombits(sign | inf32 | fraction<<13)
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
	}
}

// Float32ToF16 rounds to the nearest IEEE 754 binary16, ties to even; values from 65520 on
// become infinite. A NaN keeps the top of its payload.
func Float32ToF16(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, abs := uint16(bits>>16)&0x8000, bits&^signMask32
	switch {
	case abs > inf32:
		payload := uint16(abs>>13) & 0x3ff
		if payload == 0 { // see Float32ToBF16
			payload = 0x200
		}
		return sign | 0x7c00 | payload
	case abs >= 0x477ff000: // 65520, half way from the largest value to the next power of two
		return sign | 0x7c00
	case abs < 0x38800000: // below 2^-14: a multiple of 2^-24, computed without loss
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(abs))*(1<<24)))
	default:
		r := abs - (127-15)<<23
		return sign | uint16((r+0xfff+r>>13&1)>>13)
	}
}
