package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/trainer/weights/safetensors"
)

// assemble makes a file by hand.
func assemble(header string, data ...byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func open(data []byte) (*safetensors.File, error) {
	return safetensors.New(bytes.NewReader(data), int64(len(data)), "x.safetensors")
}

// bytesOf writes the raw tensors under the header.
func bytesOf(t *testing.T, h *safetensors.Header, raw map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	err := h.Write(&out, func(w io.Writer, t safetensors.Info) error {
		_, err := w.Write(raw[t.Name])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != h.FileSize() {
		t.Errorf("%d bytes, FileSize says %d", out.Len(), h.FileSize())
	}
	return out.Bytes()
}

// TestLayoutIsTheReferences: wide types first, then by name, as the reference
// implementation's files have it; the header fills up to 8 bytes.
func TestLayoutIsTheReferences(t *testing.T) {
	h, err := safetensors.NewHeader(map[string]string{"format": "pt"}, []safetensors.Info{
		{Name: "b", DType: "BF16", Shape: []int{2}}, {Name: "a<", DType: "BF16", Shape: []int{1, 1}}, {Name: "h", DType: "F16", Shape: nil},
		{Name: "z", DType: "F32", Shape: []int{1}}, {Name: "e", DType: "I64", Shape: []int{0, 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	raw := map[string][]byte{"b": {1, 2, 3, 4}, "a<": {5, 6}, "h": {7, 8}, "z": {9, 10, 11, 12}}
	got := bytesOf(t, h, raw)
	header := `{"__metadata__":{"format":"pt"},"e":{"dtype":"I64","shape":[0,3],"data_offsets":[0,0]},` +
		`"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a<":{"dtype":"BF16","shape":[1,1],"data_offsets":[4,6]},` +
		`"b":{"dtype":"BF16","shape":[2],"data_offsets":[6,10]},"h":{"dtype":"F16","shape":[],"data_offsets":[10,12]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := assemble(header, 9, 10, 11, 12, 5, 6, 1, 2, 3, 4, 7, 8)
	if !bytes.Equal(got, want) {
		t.Errorf("bytes\n%q, want\n%q", got, want)
	}
	f, err := open(got)
	if err != nil {
		t.Fatal(err)
	}
	if again := bytesOf(t, &f.Header, raw); !bytes.Equal(again, got) {
		t.Errorf("written again\n%q, want\n%q", again, got)
	}
	if raw, err := f.Raw("b"); err != nil || !bytes.Equal(raw, []byte{1, 2, 3, 4}) {
		t.Errorf("b is %v, error %v", raw, err)
	}
	if diff := cmp.Diff(map[string]string{"format": "pt"}, f.Metadata); diff != "" {
		t.Error(diff)
	}
}

// TestForeignHeaderStays: a file in another order with other spaces is written
// again as it was.
func TestForeignHeaderStays(t *testing.T) {
	data := assemble(` { "b":{"shape":[1],"dtype":"U8","data_offsets":[1,2]}, "a":{"dtype":"I8","data_offsets":[0,1],"shape":[1]}}  `[1:], 7, 8)
	f, err := open(data)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytesOf(t, &f.Header, map[string][]byte{"a": {7}, "b": {8}}); !bytes.Equal(got, data) {
		t.Errorf("bytes\n%q, want\n%q", got, data)
	}
}

func TestDefectsAreNamed(t *testing.T) {
	entry := func(name, dtype, shape string, begin, end int) string {
		return fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, begin, end)
	}
	object := func(entries ...string) string { return "{" + strings.Join(entries, ",") + "}" }
	eight := make([]byte, 8)
	for want, data := range map[string][]byte{
		"truncated: 3 bytes, want at least the 8 of the header's length": {1, 2, 3},
		"truncated: header of 2 bytes, 1 follow":                         assemble("{}")[:9],
		"header of 1152921504606846976 bytes, limit is 104857600":        binary.LittleEndian.AppendUint64(nil, 1<<60),
		"header of 18446744073709551615 bytes, limit is 104857600":       binary.LittleEndian.AppendUint64(nil, 1<<64-1),
		"truncated: header of 104857600 bytes, 0 follow":                 binary.LittleEndian.AppendUint64(nil, safetensors.MaxHeader),
		"header: [, want {":                                              assemble("[]"),
		"header: EOF":                                                    assemble(""),
		"header: more than one JSON value":                               assemble("{} {}"),
		"header is no valid UTF-8":                                       assemble("{\"\xff\":1}"),
		"header: tensor a: 1, want {":                                    assemble(`{"a":1}`),
		"header: tensor a: no dtype":                                     assemble(`{"a":{"shape":[],"data_offsets":[0,4]}}`),
		"header: tensor a: no shape":                                     assemble(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, eight[:4]...),
		"header: tensor a: unknown key Shape":                            assemble(`{"a":{"Shape":[1]}}`),
		"header: tensor a: key dtype comes twice":                        assemble(`{"a":{"dtype":"F32","dtype":"F16"}}`),
		"header: tensor a: 3 data_offsets, want 2":                       assemble(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,4,4]}}`),
		"header: tensor a: shape: [, want an integer from 0 to 2^63-1":   assemble(object(entry("a", "F32", "[[[[[[1]]]]]]", 0, 4))),
		"header: tensor a: shape: -1, want an integer from 0 to 2^63-1":  assemble(object(entry("a", "F32", "[-1,-1]", 0, 4))),
		"header: tensor a: shape: 1.5, want an integer from 0 to 2^63-1": assemble(object(entry("a", "F32", "[1.5]", 0, 4))),
		"header: tensor a: data_offsets: 9223372036854775808, want an integer from 0 to 2^63-1": assemble(`{"a":{"data_offsets":[9223372036854775808,0]}}`),
		"header: __metadata__: 1, want a string":                                                assemble(`{"__metadata__":{"a":1}}`),
		"header: tensor a comes twice":                                                          assemble(object(entry("a", "F32", "[1]", 0, 4), entry("a", "F32", "[1]", 4, 8)), eight...),
		`tensor a: unknown dtype "F31"`:                                                         assemble(object(entry("a", "F31", "[1]", 0, 8)), eight...),
		"tensor a: offsets [0, 12] reach beyond the 8 bytes of data":                            assemble(object(entry("a", "F32", "[3]", 0, 12)), eight...),
		"tensor a: offsets [4, 0] are out of order":                                             assemble(object(entry("a", "F32", "[1]", 4, 0)), eight...),
		"tensor a: offsets [0, 8] hold 8 bytes, shape [3] of F32 wants 12":                      assemble(object(entry("a", "F32", "[3]", 0, 8)), eight...),
		"tensor b: offsets [0, 4] overlap tensor a, which ends at 4":                            assemble(object(entry("a", "F32", "[1]", 0, 4), entry("b", "F32", "[1]", 0, 4)), eight...),
		"tensor a: offsets [4, 8] leave a hole of 4 bytes after the header":                     assemble(object(entry("a", "F32", "[1]", 4, 8)), eight...),
		"4 bytes of data after tensor a":                                                        assemble(object(entry("a", "F32", "[1]", 0, 4)), eight...),
		"tensor a: shape [4611686018427387904 8] is negative or too large":                      assemble(object(entry("a", "F32", "[4611686018427387904,8]", 0, 8)), eight...),
	} {
		_, err := open(data)
		var bad *safetensors.FormatError
		if !errors.As(err, &bad) {
			t.Errorf("error %v, want a FormatError: %s", err, want)
			continue
		}
		if err.Error() != "x.safetensors: "+want {
			t.Errorf("error %q, want %q", err, want)
		}
	}
}

func TestDeepNestingIsAnError(t *testing.T) {
	deep := assemble(`{"a":{"shape":` + strings.Repeat("[", 1<<20))
	if _, err := open(deep); err == nil || !strings.Contains(err.Error(), "want an integer") {
		t.Errorf("error %v", err)
	}
}

func TestNewHeaderRefuses(t *testing.T) {
	for want, infos := range map[string][]safetensors.Info{
		`tensor name "a" is reserved or used twice`:            {{Name: "a", DType: "F32"}, {Name: "a", DType: "BF16"}},
		`tensor name "" is reserved or used twice`:             {{DType: "F32"}},
		`tensor name "__metadata__" is reserved or used twice`: {{Name: "__metadata__", DType: "F32"}},
		`tensor a: unknown dtype "f32"`:                        {{Name: "a", DType: "f32"}},
		"tensor a: shape [-1] is negative or too large":        {{Name: "a", DType: "F32", Shape: []int{-1}}},
		"tensor b: more than 2^63 bytes of data":               {{Name: "a", DType: "U8", Shape: []int{1 << 62}}, {Name: "b", DType: "U8", Shape: []int{1 << 62}}},
	} {
		if _, err := safetensors.NewHeader(nil, infos); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestWriteCountsBytes(t *testing.T) {
	h, err := safetensors.NewHeader(nil, []safetensors.Info{{Name: "a", DType: "F32", Shape: []int{2}}})
	if err != nil {
		t.Fatal(err)
	}
	for want, values := range map[string][]float32{
		"write tensor a: 4 bytes too few for shape [2] of F32": {1},
		"write tensor a: 4 bytes too many":                     {1, 2, 3},
	} {
		err := h.Write(io.Discard, func(w io.Writer, t safetensors.Info) error { return safetensors.PutFloat32s(w, t.DType, values) })
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestOpenReadsFilesOnly(t *testing.T) {
	if _, err := safetensors.Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("directory: error %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := safetensors.Open(pipe); err == nil || !strings.Contains(err.Error(), "no regular file") { // nobody writes to it
		t.Errorf("pipe: error %v", err)
	}
	if _, err := safetensors.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want ErrNotExist", err)
	}
}

// FuzzOpen: any bytes are a FormatError, or a file that is written again as it was.
func FuzzOpen(f *testing.F) {
	f.Add(assemble(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 1, 2, 3, 4))
	f.Add(assemble(`{"a":{"dtype":"BF16","shape":[2,0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1))
	f.Add(assemble("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := open(data)
		if err != nil {
			var bad *safetensors.FormatError
			if !errors.As(err, &bad) {
				t.Fatalf("error %v, want a FormatError", err)
			}
			return
		}
		var out bytes.Buffer
		err = file.Write(&out, func(w io.Writer, info safetensors.Info) error {
			_, err := io.Copy(w, file.Section(info))
			return err
		})
		if err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Fatalf("written again: %d bytes, want the same %d; error %v", out.Len(), len(data), err)
		}
	})
}
