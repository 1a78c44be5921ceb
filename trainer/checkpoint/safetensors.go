package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"temper/internal/blob"
	"temper/trainer/qwen3"
)

// ErrCorrupt means that bytes are no valid checkpoint, policy or safetensors file.
var ErrCorrupt = fmt.Errorf("checkpoint is corrupt: %w", blob.ErrCorrupt)

// maxHeader bounds the JSON header of a safetensors file, as the format does.
const maxHeader = 100 << 20

// tensorHeader is one entry of a safetensors header.
type tensorHeader struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // begin and end, relative to the end of the header
}

// EncodeSafetensors returns the tensors as the bytes of a safetensors file in
// F32. Equal tensors give equal bytes: header and data are sorted by name, and
// spaces pad the header to 8 bytes.
func EncodeSafetensors(tensors []qwen3.Tensor) ([]byte, error) {
	sorted := slices.SortedFunc(slices.Values(tensors), func(a, b qwen3.Tensor) int { return strings.Compare(a.Name, b.Name) })
	headers := map[string]any{"__metadata__": map[string]string{"format": "pt"}} // encoding/json sorts the keys
	size := int64(0)
	for i, t := range sorted {
		if t.Name == "" || t.Name == "__metadata__" || i > 0 && t.Name == sorted[i-1].Name {
			return nil, fmt.Errorf("encode safetensors: tensor name %q is reserved or used twice", t.Name)
		}
		if n, err := numElements(t.Shape); err != nil || n != int64(len(t.Data)) {
			return nil, fmt.Errorf("encode safetensors: tensor %s: %d values do not fill shape %v", t.Name, len(t.Data), t.Shape)
		}
		end := size + 4*int64(len(t.Data))
		headers[t.Name] = tensorHeader{DType: "F32", Shape: append([]int{}, t.Shape...), Offsets: [2]int64{size, end}}
		size = end
	}
	header, err := json.Marshal(headers)
	if err != nil {
		return nil, fmt.Errorf("encode safetensors: %w", err)
	}
	header = append(header, bytes.Repeat([]byte{' '}, (8-len(header)%8)%8)...)
	out := make([]byte, 0, 8+int64(len(header))+size)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(header)))
	out = append(out, header...)
	for _, t := range sorted {
		for _, x := range t.Data {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
		}
	}
	return out, nil
}

// DecodeSafetensors reads a safetensors file of F32, F16 or BF16 tensors. It
// returns them as float32, sorted by name. Errors wrap ErrCorrupt.
func DecodeSafetensors(file []byte) ([]qwen3.Tensor, error) {
	tensors, err := decodeSafetensors(file)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w: %w", err, ErrCorrupt)
	}
	return tensors, nil
}

func decodeSafetensors(file []byte) ([]qwen3.Tensor, error) {
	if len(file) < 8 {
		return nil, fmt.Errorf("truncated: %d bytes, want at least the 8 of the header's length", len(file))
	}
	length := binary.LittleEndian.Uint64(file)
	if length > maxHeader {
		return nil, fmt.Errorf("header of %d bytes, limit is %d", length, maxHeader)
	}
	if uint64(len(file)-8) < length {
		return nil, fmt.Errorf("truncated: header of %d bytes, %d follow", length, len(file)-8)
	}
	headers, err := parseHeader(file[8 : 8+length])
	if err != nil {
		return nil, err
	}
	data := file[8+length:]
	if err := checkOffsets(headers, int64(len(data))); err != nil {
		return nil, err
	}
	var out []qwen3.Tensor
	for name, h := range headers {
		out = append(out, qwen3.Tensor{Name: name, Shape: h.Shape, Data: toFloat32(h.DType, data[h.Offsets[0]:h.Offsets[1]])})
	}
	slices.SortFunc(out, func(a, b qwen3.Tensor) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// parseHeader decodes the header; unlike encoding/json it refuses a name that
// comes twice.
func parseHeader(header []byte) (map[string]tensorHeader, error) {
	dec := json.NewDecoder(bytes.NewReader(header))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("header is no JSON object")
	}
	headers := map[string]tensorHeader{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
		name, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("header: key %v is no string", token)
		}
		if name == "__metadata__" {
			var ignored map[string]string
			if err := dec.Decode(&ignored); err != nil {
				return nil, fmt.Errorf("header: metadata: %w", err)
			}
			continue
		}
		if _, twice := headers[name]; twice {
			return nil, fmt.Errorf("header: tensor %s comes twice", name)
		}
		var h tensorHeader
		if err := dec.Decode(&h); err != nil {
			return nil, fmt.Errorf("header: tensor %s: %w", name, err)
		}
		headers[name] = h
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("header: more than one JSON value")
	}
	return headers, nil
}

// checkOffsets demands that the tensors tile the data: no overlap, no hole.
func checkOffsets(headers map[string]tensorHeader, size int64) error {
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := headers[a].Offsets, headers[b].Offsets
		for i := range x {
			if x[i] != y[i] {
				return int(min(max(x[i]-y[i], -1), 1))
			}
		}
		return strings.Compare(a, b)
	})
	end, last := int64(0), "the header"
	for _, name := range names {
		h := headers[name]
		width, ok := map[string]int64{"F32": 4, "F16": 2, "BF16": 2}[h.DType]
		if !ok {
			return fmt.Errorf("tensor %s: dtype %q, want F32, F16 or BF16", name, h.DType)
		}
		n, err := numElements(h.Shape)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", name, err)
		}
		begin, stop := h.Offsets[0], h.Offsets[1]
		switch {
		case begin < 0 || stop < begin:
			return fmt.Errorf("tensor %s: offsets [%d, %d] are out of order", name, begin, stop)
		case stop > size:
			return fmt.Errorf("tensor %s: offsets [%d, %d] reach beyond the %d bytes of data", name, begin, stop, size)
		case stop-begin != n*width:
			return fmt.Errorf("tensor %s: offsets [%d, %d] hold %d bytes, shape %v of %s wants %d",
				name, begin, stop, stop-begin, h.Shape, h.DType, n*width)
		case begin < end:
			return fmt.Errorf("tensor %s: offsets [%d, %d] overlap %s, which ends at %d", name, begin, stop, last, end)
		case begin > end:
			return fmt.Errorf("tensor %s: a hole of %d bytes after %s", name, begin-end, last)
		}
		end, last = stop, name
	}
	if end != size {
		return fmt.Errorf("%d bytes of data after %s", size-end, last)
	}
	return nil
}

// numElements multiplies the dimensions and guards against overflow.
func numElements(shape []int) (int64, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt64/8/int64(d) {
			return 0, fmt.Errorf("shape %v is negative or too large", shape)
		}
		n *= int64(d)
	}
	return n, nil
}

// toFloat32 converts little-endian values; checkOffsets knows the dtype.
func toFloat32(dtype string, raw []byte) []float32 {
	width := 2
	if dtype == "F32" {
		width = 4
	}
	out := make([]float32, len(raw)/width)
	for i := range out {
		switch dtype {
		case "F32":
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		case "BF16":
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		default:
			out[i] = halfToFloat32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}
	return out
}

// halfToFloat32 converts IEEE 754 binary16, exactly.
func halfToFloat32(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch exponent {
	case 0: // zero and subnormals are multiples of 2^-24
		return math.Float32frombits(math.Float32bits(float32(fraction)/(1<<24)) | sign)
	case 31: // infinity and NaN
		return math.Float32frombits(sign | 255<<23 | fraction<<13)
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
	}
}
