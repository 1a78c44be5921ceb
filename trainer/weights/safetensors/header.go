package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// MaxHeader bounds the JSON header in bytes, as the format does.
const MaxHeader = 100 << 20

// metadataKey is the only key of a header that names no tensor.
const metadataKey = "__metadata__"

// Info is one entry of a header.
type Info struct {
	Name  string
	DType DType
	Shape []int
	// Begin and End are the offsets of the tensor's bytes from the end of the header.
	Begin, End int64
}

// Size returns the tensor's bytes.
func (t Info) Size() int64 { return t.End - t.Begin }

// Header describes the tensors of a file in the order of their bytes.
type Header struct {
	Metadata map[string]string
	Tensors  []Info
	raw      []byte // the JSON text of the file, with its padding
}

// FormatError is a defect in the content of a file. Failures to read are other errors.
type FormatError struct {
	File    string // as given to Open or New
	Problem string
}

func (e *FormatError) Error() string {
	if e.File == "" {
		return e.Problem
	}
	return e.File + ": " + e.Problem
}

// problemf is a FormatError whose file is named later, by the reader.
func problemf(format string, args ...any) error {
	return &FormatError{Problem: fmt.Sprintf(format, args...)}
}

// NewHeader lays the tensors out as the reference implementation does: wide types first, then
// by name, the header padded with spaces to 8 bytes. Equal arguments give equal bytes. It
// ignores the offsets of the tensors.
func NewHeader(metadata map[string]string, tensors []Info) (*Header, error) {
	h := &Header{Metadata: metadata, Tensors: slices.Clone(tensors)}
	slices.SortFunc(h.Tensors, func(a, b Info) int {
		if d := b.DType.rank() - a.DType.rank(); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	seen, offset := map[string]bool{metadataKey: true, "": true}, int64(0)
	for i := range h.Tensors {
		t := &h.Tensors[i]
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor name %q is reserved or used twice", t.Name)
		}
		seen[t.Name] = true
		size, err := t.want()
		if err != nil {
			return nil, err
		}
		if size > math.MaxInt64-offset {
			return nil, fmt.Errorf("tensor %s: more than 2^63 bytes of data", t.Name)
		}
		t.Begin, t.End = offset, offset+size
		offset = t.End
	}
	return h, h.encode()
}

// encode makes the JSON of the header.
func (h *Header) encode() error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	member := func(key string, value any) error {
		separator := byte(',')
		if buf.Len() == 0 {
			separator = '{'
		}
		buf.WriteByte(separator)
		for _, part := range []any{key, value} {
			if err := enc.Encode(part); err != nil {
				return fmt.Errorf("header: %s: %w", key, err)
			}
			buf.Truncate(buf.Len() - 1) // the encoder ends with a line feed
			buf.WriteByte(':')
		}
		buf.Truncate(buf.Len() - 1)
		return nil
	}
	if h.Metadata != nil {
		if err := member(metadataKey, h.Metadata); err != nil {
			return err
		}
	}
	for _, t := range h.Tensors {
		entry := struct {
			DType   DType    `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.DType, append([]int{}, t.Shape...), [2]int64{t.Begin, t.End}}
		if err := member(t.Name, entry); err != nil {
			return err
		}
	}
	if buf.Len() == 0 {
		buf.WriteByte('{')
	}
	buf.WriteByte('}')
	if rest := buf.Len() % 8; rest != 0 {
		buf.WriteString(strings.Repeat(" ", 8-rest))
	}
	if buf.Len() > MaxHeader {
		return fmt.Errorf("header of %d bytes, limit is %d", buf.Len(), MaxHeader)
	}
	h.raw = buf.Bytes()
	return nil
}

// FileSize returns the bytes of the whole file.
func (h *Header) FileSize() int64 { return 8 + int64(len(h.raw)) + h.dataSize() }

func (h *Header) dataSize() int64 {
	if len(h.Tensors) == 0 {
		return 0
	}
	return h.Tensors[len(h.Tensors)-1].End
}

// prefix returns the start of the file: the length and the header.
func (h *Header) prefix() []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(h.raw))), h.raw...)
}

// want returns the bytes of a tensor by shape and type.
func (t Info) want() (int64, error) {
	width := t.DType.Size()
	if width == 0 {
		return 0, problemf("tensor %s: unknown dtype %q", t.Name, t.DType)
	}
	n := width
	for _, d := range t.Shape {
		if d < 0 || d > 0 && n > math.MaxInt64/int64(d) {
			return 0, problemf("tensor %s: shape %v is negative or too large", t.Name, t.Shape)
		}
		n *= int64(d)
	}
	return n, nil
}

// check returns an error unless the tensors tile size bytes of data, and sorts them by offset.
func (h *Header) check(size int64) error {
	slices.SortFunc(h.Tensors, func(a, b Info) int {
		switch {
		case a.Begin != b.Begin:
			return int(min(max(a.Begin-b.Begin, -1), 1))
		case a.End != b.End:
			return int(min(max(a.End-b.End, -1), 1))
		default:
			return strings.Compare(a.Name, b.Name)
		}
	})
	end, last := int64(0), "the header"
	for _, t := range h.Tensors {
		want, err := t.want()
		if err != nil {
			return err
		}
		at := fmt.Sprintf("tensor %s: offsets [%d, %d]", t.Name, t.Begin, t.End)
		switch {
		case t.End < t.Begin:
			return problemf("%s are out of order", at)
		case t.End > size:
			return problemf("%s reach beyond the %d bytes of data", at, size)
		case t.Size() != want:
			return problemf("%s hold %d bytes, shape %v of %s wants %d", at, t.Size(), t.Shape, t.DType, want)
		case t.Begin < end:
			return problemf("%s overlap %s, which ends at %d", at, last, end)
		case t.Begin > end:
			return problemf("%s leave a hole of %d bytes after %s", at, t.Begin-end, last)
		}
		end, last = t.End, "tensor "+t.Name
	}
	if end != size {
		return problemf("%d bytes of data after %s", size-end, last)
	}
	return nil
}
