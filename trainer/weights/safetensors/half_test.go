package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"temper/trainer/weights/safetensors"
)

// TestHalvesComeBack: every 16-bit pattern, NaN payloads included, survives
// float32.
func TestHalvesComeBack(t *testing.T) {
	var raw []byte
	for h := range 1 << 16 {
		raw = binary.LittleEndian.AppendUint16(raw, uint16(h))
	}
	for _, d := range []safetensors.DType{safetensors.F16, safetensors.BF16} {
		values, err := safetensors.Float32s(d, raw)
		if err != nil {
			t.Fatal(err)
		}
		back, err := safetensors.AppendFloat32s(nil, d, values)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back, raw) {
			t.Errorf("%s: patterns changed", d)
		}
	}
}

func TestKnownHalves(t *testing.T) {
	nan := math.Float32frombits(0x7f800001) // its payload is in the lost bits alone
	for _, row := range []struct {
		x         float32
		bf16, f16 uint16
	}{
		{1, 0x3f80, 0x3c00},
		{-2, 0xc000, 0xc000},
		{1 + 1.0/256, 0x3f80, 0x3c04},        // a tie of bf16: to even
		{1 + 3.0/256, 0x3f82, 0x3c0c},        // the other tie
		{1 + 1.0/2048, 0x3f80, 0x3c00},       // a tie of f16: to even
		{1 + 3.0/2048, 0x3f80, 0x3c02},       // the other tie
		{65519, 0x4780, 0x7bff},              // below half way to infinity
		{65520, 0x4780, 0x7c00},              // half way
		{math.MaxFloat32, 0x7f80, 0x7c00},    // rounds up to infinity
		{1.0 / (1 << 25), 0x3300, 0x0000},    // half the smallest subnormal: to even
		{3.0 / (1 << 25), 0x33c0, 0x0002},    // one and a half: to even
		{2047.0 / (1 << 25), 0x3880, 0x0400}, // up to the smallest normal
		{float32(math.Copysign(0, -1)), 0x8000, 0x8000},
		{float32(math.Inf(-1)), 0xff80, 0xfc00},
		{nan, 0x7fc0, 0x7e00},
	} {
		if got := safetensors.Float32ToBF16(row.x); got != row.bf16 {
			t.Errorf("bf16 of %v is %#04x, want %#04x", row.x, got, row.bf16)
		}
		if got := safetensors.Float32ToF16(row.x); got != row.f16 {
			t.Errorf("f16 of %v is %#04x, want %#04x", row.x, got, row.f16)
		}
	}
}

// TestFiniteStaysFinite: a number that a type has as an infinity alone is an error that
// names the tensor; an infinity comes through.
func TestFiniteStaysFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, row := range []struct {
		d    safetensors.DType
		x    float32
		fits bool
	}{
		{safetensors.F16, 65519, true}, {safetensors.F16, 65520, false}, {safetensors.F16, -1e5, false}, {safetensors.F16, inf, true},
		{safetensors.BF16, 3e38, true}, {safetensors.BF16, -math.MaxFloat32, false}, {safetensors.BF16, -inf, true},
		{safetensors.F32, math.MaxFloat32, true},
	} {
		header, err := safetensors.NewHeader(nil, []safetensors.Info{{Name: "a.weight", DType: row.d, Shape: []int{2}}})
		if err != nil {
			t.Fatal(err)
		}
		err = header.Write(io.Discard, func(w io.Writer, info safetensors.Info) error {
			return safetensors.PutFloat32s(w, info.DType, []float32{1, row.x})
		})
		if row.fits != (err == nil) || err != nil && !strings.Contains(err.Error(), "write tensor a.weight: ") {
			t.Errorf("%v in %s: %v", row.x, row.d, err)
		}
	}
}

// TestRoundingIsToNearest compares with both neighbours of the result.
func TestRoundingIsToNearest(t *testing.T) {
	for name, format := range map[string]struct {
		narrow func(float32) uint16
		widen  func(uint16) float32
		limit  uint16 // the largest finite value
	}{
		"bf16": {safetensors.Float32ToBF16, safetensors.BF16ToFloat32, 0x7f7f},
		"f16":  {safetensors.Float32ToF16, safetensors.F16ToFloat32, 0x7bff},
	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			at := rapid.Uint16Range(0, format.limit-1).Draw(t, "at")
			low, high := float64(format.widen(at)), float64(format.widen(at+1))
			x := float32(low + (high-low)*rapid.Float64Range(0, 1).Draw(t, "part"))
			want := at
			switch middle := (low + high) / 2; {
			case float64(x) > middle, float64(x) == middle && at%2 == 1:
				want = at + 1
			}
			if got := format.narrow(x); got != want {
				t.Fatalf("%v between %v and %v gave %#x, want %#x", x, low, high, got, want)
			}
			if got := format.narrow(-x); got != want|0x8000 {
				t.Fatalf("%v gave %#x, want %#x", -x, got, want|0x8000)
			}
		}))
	}
}

func TestOtherTypesAreBytes(t *testing.T) {
	if _, err := safetensors.Float32s("I64", make([]byte, 8)); err == nil {
		t.Error("I64 was converted")
	}
	if _, err := safetensors.AppendFloat32s(nil, "F64", []float32{1}); err == nil {
		t.Error("F64 was made")
	}
}
