package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"
)

// Start returns the start of a file with the header: all bytes before the first tensor.
func (h *Header) Start() []byte { return h.prefix() }

// F32Bytes returns the values as the bytes of a file. On a little-endian machine it copies
// nothing: the result is the memory of values, so that writing to one changes the other.
func F32Bytes(values []float32) []byte {
	if len(values) == 0 {
		return nil
	}
	if littleEndian() {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
	}
	out := make([]byte, 0, 4*len(values))
	for _, x := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// FillF32 reads the values of an F32 tensor with read, which fills the buffer that it
// gets, in pieces.
func FillF32(values []float32, read func([]byte) error) error {
	if littleEndian() {
		return read(F32Bytes(values))
	}
	raw := make([]byte, 4*len(values))
	if err := read(raw); err != nil {
		return err
	}
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

// F32View returns the values of an F32 tensor in the memory of data, the whole file. A machine
// with another order of bytes gets a copy.
func F32View(data []byte, t Info) ([]float32, error) {
	if len(data) < 8 {
		return nil, errors.New("file without a header")
	}
	start := 8 + binary.LittleEndian.Uint64(data)
	if t.DType != F32 || start > uint64(len(data)) || uint64(t.End) > uint64(len(data))-start {
		return nil, fmt.Errorf("type %s at %d to %d in a file of %d bytes", t.DType, t.Begin, t.End, len(data))
	}
	raw := data[start:][t.Begin:t.End]
	if len(raw) == 0 {
		return nil, nil
	}
	if p := unsafe.Pointer(unsafe.SliceData(raw)); littleEndian() && uintptr(p)%4 == 0 {
		return unsafe.Slice((*float32)(p), len(raw)/4), nil
	}
	return Float32s(t.DType, raw)
}

// littleEndian reports whether the machine is little-endian, as safetensors files are.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
