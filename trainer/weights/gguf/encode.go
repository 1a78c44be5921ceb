package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Constants of the format, version 3.
const (
	magic     = "GGUF"
	version   = 3
	alignment = 32
)

// Types of metadata values.
const (
	kindUint32  = 4
	kindInt32   = 5
	kindFloat32 = 6
	kindBool    = 7
	kindString  = 8
	kindArray   = 9
)

// field is one key of the metadata. Its value is a uint32, a float32, a bool, a
// string, or a slice of strings or int32.
type field struct {
	key   string
	value any
}

func appendString(dst []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(dst, uint64(len(s))), s...)
}

func appendKind(dst []byte, kind uint32) []byte { return binary.LittleEndian.AppendUint32(dst, kind) }

func appendArray(dst []byte, kind uint32, n int) []byte {
	return binary.LittleEndian.AppendUint64(appendKind(appendKind(dst, kindArray), kind), uint64(n))
}

func (f field) append(dst []byte) ([]byte, error) {
	dst = appendString(dst, f.key)
	switch v := f.value.(type) {
	case uint32:
		return binary.LittleEndian.AppendUint32(appendKind(dst, kindUint32), v), nil
	case float32:
		return binary.LittleEndian.AppendUint32(appendKind(dst, kindFloat32), math.Float32bits(v)), nil
	case bool:
		if v {
			return append(appendKind(dst, kindBool), 1), nil
		}
		return append(appendKind(dst, kindBool), 0), nil
	case string:
		return appendString(appendKind(dst, kindString), v), nil
	case []string:
		dst = appendArray(dst, kindString, len(v))
		for _, s := range v {
			dst = appendString(dst, s)
		}
		return dst, nil
	case []int32:
		dst = appendArray(dst, kindInt32, len(v))
		for _, x := range v {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(x))
		}
		return dst, nil
	default:
		return nil, fmt.Errorf("metadata %s: values of type %T are not supported", f.key, f.value)
	}
}

// entry is one tensor of the file.
type entry struct {
	source string // the name in a Hugging Face checkpoint
	name   string
	shape  []int // outermost first
	kind   tensorKind
	offset int64 // from the start of the data
	// headDim is not 0 for projections to heads whose rows change places; see interleaved.
	headDim int
}

// header returns everything that stands before the data of the tensors.
func header(fields []field, entries []entry) ([]byte, error) {
	out := []byte(magic)
	out = binary.LittleEndian.AppendUint32(out, version)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(entries)))
	out = binary.LittleEndian.AppendUint64(out, uint64(len(fields)))
	var err error
	for _, f := range fields {
		if out, err = f.append(out); err != nil {
			return nil, err
		}
	}
	for _, e := range entries {
		out = appendString(out, e.name)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(e.shape)))
		for i := len(e.shape) - 1; i >= 0; i-- { // the format lists the innermost axis first
			out = binary.LittleEndian.AppendUint64(out, uint64(e.shape[i]))
		}
		out = binary.LittleEndian.AppendUint32(out, e.kind.code)
		out = binary.LittleEndian.AppendUint64(out, uint64(e.offset))
	}
	return append(out, make([]byte, padding(int64(len(out))))...), nil
}

// padding is how many bytes bring a size to the next boundary.
func padding(size int64) int64 { return (alignment - size%alignment) % alignment }
