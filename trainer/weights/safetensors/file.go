package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// File is an open safetensors file. Only its header is in memory. Its methods
// may be called concurrently.
type File struct {
	Header
	name  string
	r     io.ReaderAt
	start int64          // of the data
	index map[string]int // into Header.Tensors
	size  int64

	file    *os.File // of Open
	mapOnce sync.Once
	mapping mapping
}

// Open reads the header of the file at path. The caller closes the File.
func Open(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // a pipe could not even be opened
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	var file *File
	if err == nil {
		file, err = New(f, info.Size(), filepath.Base(path))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	file.file = f
	return file, nil
}

// New reads the header of a file of size bytes; name stands in its errors. It allocates nothing
// for a length beyond the file.
func New(r io.ReaderAt, size int64, name string) (*File, error) {
	h, err := readHeader(r, size)
	if err != nil {
		var bad *FormatError
		if errors.As(err, &bad) {
			bad.File = name
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &File{Header: *h, name: name, r: r, start: 8 + int64(len(h.raw)), size: size, index: map[string]int{}}
	for i, t := range h.Tensors {
		f.index[t.Name] = i
	}
	return f, nil
}

func readHeader(r io.ReaderAt, size int64) (*Header, error) {
	if size < 8 {
		return nil, problemf("truncated: %d bytes, want at least the 8 of the header's length", size)
	}
	var length [8]byte
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, 8), length[:]); err != nil {
		return nil, fmt.Errorf("read header's length: %w", err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > MaxHeader:
		return nil, problemf("header of %d bytes, limit is %d", n, MaxHeader)
	case int64(n) > size-8:
		return nil, problemf("truncated: header of %d bytes, %d follow", n, size-8)
	}
	raw := make([]byte, n)
	if _, err := io.ReadFull(io.NewSectionReader(r, 8, int64(n)), raw); err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	h, err := parseHeader(raw)
	if err != nil {
		return nil, err
	}
	return h, h.check(size - 8 - int64(n))
}

// Close closes the file of Open, and invalidates the results of View.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return errors.Join(f.unmap(), f.file.Close())
}

// Name returns the name of the file in errors.
func (f *File) Name() string { return f.name }

// Lookup finds a tensor by name.
func (f *File) Lookup(name string) (Info, bool) {
	i, ok := f.index[name]
	if !ok {
		return Info{}, false
	}
	return f.Tensors[i], true
}

// Section returns a reader of the tensor's bytes.
func (f *File) Section(t Info) *io.SectionReader {
	return io.NewSectionReader(f.r, f.start+t.Begin, t.Size())
}

// Raw returns the tensor's bytes, little-endian and row-major.
func (f *File) Raw(name string) ([]byte, error) {
	t, ok := f.Lookup(name)
	if !ok {
		return nil, fmt.Errorf("%s: tensor %s is missing", f.name, name)
	}
	raw := make([]byte, t.Size())
	if _, err := io.ReadFull(f.Section(t), raw); err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", f.name, name, err)
	}
	return raw, nil
}

// Float32s returns the tensor's values; see the function of that name.
func (f *File) Float32s(name string) ([]float32, error) {
	t, _ := f.Lookup(name)
	raw, err := f.Raw(name)
	if err != nil {
		return nil, err
	}
	values, err := Float32s(t.DType, raw)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", f.name, name, err)
	}
	return values, nil
}
