package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/blob"
	"temper/trainer/checkpoint"
	"temper/trainer/qwen3"
)

// file assembles a safetensors file by hand.
func file(header string, data ...byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func TestEncodeSafetensorsIsExact(t *testing.T) {
	b := qwen3.Tensor{Name: "b", Shape: []int{2}, Data: []float32{1, -2}}
	a := qwen3.Tensor{Name: "a", Shape: []int{1, 1}, Data: []float32{0.5}}
	header := `{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`
	header += strings.Repeat(" ", (8-len(header)%8)%8)
	want := file(header, 0, 0, 0, 0x3f, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0)
	for _, tensors := range [][]qwen3.Tensor{{a, b}, {b, a}} {
		got, err := checkpoint.EncodeSafetensors(tensors)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("bytes\n%q, want\n%q", got, want)
		}
	}
	if len(header)%8 != 0 {
		t.Errorf("header of %d bytes is not aligned", len(header))
	}
}

func TestSafetensorsKeepEveryBit(t *testing.T) {
	bits := []uint32{0, 0x80000000, 1, 0x807fffff, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0x3f800001}
	want := qwen3.Tensor{Name: "x", Shape: []int{3, 3}}
	for _, b := range bits {
		want.Data = append(want.Data, math.Float32frombits(b))
	}
	data, err := checkpoint.EncodeSafetensors([]qwen3.Tensor{want, {Name: "empty", Shape: []int{0, 4}}, {Name: "scalar", Data: []float32{7}}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := checkpoint.DecodeSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].Name != "empty" || got[1].Name != "scalar" || got[1].Data[0] != 7 {
		t.Fatalf("decoded %v", got)
	}
	for i, b := range bits {
		if g := math.Float32bits(got[2].Data[i]); g != b {
			t.Errorf("value %d has bits %#x, want %#x", i, g, b)
		}
	}
}

func TestDecodeHalfPrecision(t *testing.T) {
	header := `{"h":{"dtype":"F16","shape":[6],"data_offsets":[0,12]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[12,16]}}`
	var data []byte
	for _, h := range []uint16{0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x7c00, 0x3f80, 0xc049} {
		data = binary.LittleEndian.AppendUint16(data, h)
	}
	got, err := checkpoint.DecodeSafetensors(file(header, data...))
	if err != nil {
		t.Fatal(err)
	}
	want := []qwen3.Tensor{
		{Name: "b", Shape: []int{2}, Data: []float32{1, -3.140625}},
		{Name: "h", Shape: []int{6}, Data: []float32{1, -2, 1.0 / (1 << 24), 65504, float32(math.Copysign(0, -1)), float32(math.Inf(1))}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-) got (+):\n%s", diff)
	}
	if !math.Signbit(float64(got[1].Data[4])) {
		t.Error("minus zero lost its sign")
	}
}

func TestDecodeSafetensorsSaysWhatIsWrong(t *testing.T) {
	entry := func(name, dtype, shape string, begin, end int) string {
		return fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, begin, end)
	}
	object := func(entries ...string) string { return "{" + strings.Join(entries, ",") + "}" }
	eight := make([]byte, 8)
	for want, data := range map[string][]byte{
		"truncated: 3 bytes, want at least the 8 of the header's length":   {1, 2, 3},
		"truncated: header of 2 bytes, 1 follow":                           file("{}")[:9],
		"header of 1099511627776 bytes, limit is 104857600":                binary.LittleEndian.AppendUint64(nil, 1<<40),
		"header is no JSON object":                                         file("[]"),
		"header: more than one JSON value":                                 file("{} {}"),
		"header: tensor a comes twice":                                     file(object(entry("a", "F32", "[1]", 0, 4), entry("a", "F32", "[1]", 4, 8)), eight...),
		`tensor a: dtype "I64", want F32, F16 or BF16`:                     file(object(entry("a", "I64", "[1]", 0, 8)), eight...),
		"tensor a: offsets [0, 12] reach beyond the 8 bytes of data":       file(object(entry("a", "F32", "[3]", 0, 12)), eight...),
		"tensor a: offsets [4, 0] are out of order":                        file(object(entry("a", "F32", "[1]", 4, 0)), eight...),
		"tensor a: offsets [0, 8] hold 8 bytes, shape [3] of F32 wants 12": file(object(entry("a", "F32", "[3]", 0, 8)), eight...),
		"tensor b: offsets [0, 4] overlap a, which ends at 4":              file(object(entry("a", "F32", "[1]", 0, 4), entry("b", "F32", "[1]", 0, 4)), eight...),
		"tensor a: a hole of 4 bytes after the header":                     file(object(entry("a", "F32", "[1]", 4, 8)), eight...),
		"4 bytes of data after a":                                          file(object(entry("a", "F32", "[1]", 0, 4)), eight...),
		"tensor a: shape [4611686018427387904 8] is negative or too large": file(object(entry("a", "F32", "[4611686018427387904,8]", 0, 8)), eight...),
		"tensor a: shape [-1 -1] is negative or too large":                 file(object(entry("a", "F32", "[-1,-1]", 0, 4)), eight[:4]...),
	} {
		_, err := checkpoint.DecodeSafetensors(data)
		if !errors.Is(err, checkpoint.ErrCorrupt) || !errors.Is(err, blob.ErrCorrupt) {
			t.Errorf("error %v, want ErrCorrupt", err)
			continue
		}
		if got := err.Error(); !strings.HasPrefix(got, "safetensors: "+want+": ") {
			t.Errorf("error %q, want %q", got, want)
		}
	}
}

func TestEncodeSafetensorsRefuses(t *testing.T) {
	for want, tensors := range map[string][]qwen3.Tensor{
		`tensor name "a" is reserved or used twice`: {{Name: "a"}, {Name: "a"}},
		"tensor a: 2 values do not fill shape [3]":  {{Name: "a", Shape: []int{3}, Data: make([]float32, 2)}},
		`tensor name "" is reserved or used twice`:  {{Data: []float32{1}}},
	} {
		for i := range tensors {
			if tensors[i].Shape == nil && tensors[i].Data == nil {
				tensors[i].Data = []float32{0}
			}
		}
		if _, err := checkpoint.EncodeSafetensors(tensors); err == nil || err.Error() != "encode safetensors: "+want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// FuzzDecodeSafetensors: any bytes give tensors that encode again, or ErrCorrupt.
func FuzzDecodeSafetensors(f *testing.F) {
	good, err := checkpoint.EncodeSafetensors([]qwen3.Tensor{{Name: "a", Shape: []int{2}, Data: []float32{1, 2}}, {Name: "b", Data: []float32{3}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(file("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, err := checkpoint.DecodeSafetensors(data)
		if err != nil {
			if !errors.Is(err, checkpoint.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			return
		}
		for _, x := range tensors {
			if x.Name == "" {
				return // valid in the format, refused when written
			}
		}
		if _, err := checkpoint.EncodeSafetensors(tensors); err != nil {
			t.Fatalf("decoded tensors do not encode: %v", err)
		}
	})
}
