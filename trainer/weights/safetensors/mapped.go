package safetensors

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is a memory-mapped file of Open.
type mapping struct {
	data []byte
	err  error
}

// mapped maps the whole file for reading, once. The kernel reads its pages on demand and shares
// them with other processes that map the file.
func (f *File) mapped() ([]byte, error) {
	f.mapOnce.Do(func() {
		if f.file == nil {
			f.mapping.err = fmt.Errorf("%s is not open as a file", f.name)
			return
		}
		data, err := unix.Mmap(int(f.file.Fd()), 0, int(f.size), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			f.mapping.err = fmt.Errorf("map %s: %w", f.name, err)
			return
		}
		f.mapping.data = data
	})
	return f.mapping.data, f.mapping.err
}

// unmap ends the mapping, if there is one.
func (f *File) unmap() error {
	data := f.mapping.data
	if data == nil {
		return nil
	}
	f.mapping.data = nil
	return unix.Munmap(data)
}

// View returns the values of an F32 tensor, or the bits of a BF16 one, in the file's memory,
// until Close. Truncating the file meanwhile ends the process with a fault. ok is false if the
// values cannot be read in place: a File of New, another type, a machine with another order of
// bytes, or values that do not begin at a multiple of their size, as the format allows.
func (f *File) View(name string) (f32 []float32, bf16 []uint16, ok bool, err error) {
	t, found := f.Lookup(name)
	if !found {
		return nil, nil, false, fmt.Errorf("%s: tensor %s is missing", f.name, name)
	}
	if f.file == nil || !littleEndian() || t.DType != F32 && t.DType != BF16 || (f.start+t.Begin)%t.DType.Size() != 0 {
		return nil, nil, false, nil
	}
	data, err := f.mapped()
	if err != nil {
		return nil, nil, false, err
	}
	if t.Size() == 0 {
		return nil, nil, false, nil
	}
	start, n := unsafe.Pointer(&data[f.start+t.Begin]), int(t.Size()/t.DType.Size())
	if t.DType == F32 {
		return unsafe.Slice((*float32)(start), n), nil, true, nil
	}
	return nil, unsafe.Slice((*uint16)(start), n), true, nil
}
