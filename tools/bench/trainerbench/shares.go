package trainerbench

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// kind is a kind of work, and parts of the names of its functions.
type kind struct {
	name  string
	parts []string
}

// kinds of work of the CPU backend. The innermost function of a stack that
// belongs to a kind decides, so that a copy within a transposition counts as one.
func kinds() []kind {
	return []kind{
		{"gemm", []string{"/dot/matmul"}},
		{"transpose", []string{"/ops.execTranspose", "/ops.ExecuteTranspose", "/ops.transpose", "/ops.(*TransposeIterator)", "/ops.dispatchTranspose"}},
		{"reduce", []string{"educe", "fusedSoftmax", "FusedSoftmax", "ayerNorm"}},
		{"move", []string{"/ops.execSlice", "/ops.execPad", "/ops.pad", "/ops.execConcat", "/ops.execGather", "/ops.gather", "/ops.execScatter",
			"/ops.scatter", "/ops.execBroadcast", "/ops.execReshape", "roadcastInDim"}},
		{"elementwise", []string{"/ops.simd", "/ops/avx", "/ops.exec", "/activations", "/simdmath", "/ops.where"}},
		{"backend", []string{"compute/internal/gobackend"}},
	}
}

// Shares reads a CPU profile in the format of runtime/pprof and returns the
// share of each kind of work: gemm (matrix products with their packing),
// transpose, elementwise, reduce (with softmax), move (slices, gathers and
// the like), backend (scheduling, buffers) and other, the rest.
func Shares(profile []byte) (map[string]float64, error) {
	p, err := parseProfile(profile)
	if err != nil {
		return nil, fmt.Errorf("read the CPU profile: %w", err)
	}
	kindOf := make(map[uint64]string, len(p.functions)) // "" for none
	for id, name := range p.functions {
		kindOf[id] = classify(p.text(name))
	}
	out, total := map[string]float64{}, 0.0
	for _, s := range p.samples {
		name := "other"
		for _, f := range p.stack(s) {
			if k := kindOf[f]; k != "" {
				name = k
				break
			}
		}
		out[name] += s.value
		total += s.value
	}
	for name := range out {
		out[name] /= total
	}
	return out, nil
}

func classify(function string) string {
	for _, k := range kinds() {
		for _, part := range k.parts {
			if strings.Contains(function, part) {
				return k.name
			}
		}
	}
	return ""
}

// profile is the part of pprof's profile.proto that shares need.
type profile struct {
	samples   []sample
	locations map[uint64][]uint64 // functions of a location, inner first
	functions map[uint64]uint64   // index of a function's name
	strings   []string
}

type sample struct {
	locations []uint64 // inner first
	value     float64  // the last one: nanoseconds of processor time
}

func (p *profile) text(i uint64) string {
	if i >= uint64(len(p.strings)) {
		return ""
	}
	return p.strings[i]
}

// stack lists the functions of a sample, inner first.
func (p *profile) stack(s sample) []uint64 {
	var out []uint64
	for _, l := range s.locations {
		out = append(out, p.locations[l]...)
	}
	return out
}

// parseProfile decodes a compressed profile. Field numbers are profile.proto's.
func parseProfile(data []byte) (*profile, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	p := &profile{locations: map[uint64][]uint64{}, functions: map[uint64]uint64{}}
	return p, fields(raw, func(number int, _ uint64, body []byte) error {
		switch number {
		case 2:
			s := sample{}
			err := fields(body, func(n int, v uint64, b []byte) error {
				switch n {
				case 1:
					return numbers(v, b, func(v uint64) { s.locations = append(s.locations, v) })
				case 2:
					return numbers(v, b, func(v uint64) { s.value = float64(v) })
				}
				return nil
			})
			p.samples = append(p.samples, s)
			return err
		case 4:
			return p.location(body)
		case 5:
			var id, name uint64
			err := fields(body, func(n int, v uint64, _ []byte) error {
				switch n {
				case 1:
					id = v
				case 2:
					name = v
				}
				return nil
			})
			p.functions[id] = name
			return err
		case 6:
			p.strings = append(p.strings, string(body))
		}
		return nil
	})
}

// location decodes one location with its inlined functions.
func (p *profile) location(body []byte) error {
	var id uint64
	var functions []uint64
	err := fields(body, func(n int, v uint64, b []byte) error {
		switch n {
		case 1:
			id = v
		case 4:
			return fields(b, func(n int, v uint64, _ []byte) error {
				if n == 1 {
					functions = append(functions, v)
				}
				return nil
			})
		}
		return nil
	})
	p.locations[id] = functions
	return err
}

// fields calls f for each field of a message: with its number, or with its bytes.
func fields(b []byte, f func(n int, v uint64, body []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		var body []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			body, n = protowire.ConsumeBytes(b)
		default:
			return errors.New("field of an unknown type")
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(int(number), v, body); err != nil {
			return err
		}
	}
	return nil
}

// numbers calls f for a number, or for each of a packed list.
func numbers(v uint64, packed []byte, f func(uint64)) error {
	if packed == nil {
		f(v)
		return nil
	}
	for len(packed) > 0 {
		v, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return protowire.ParseError(n)
		}
		packed = packed[n:]
		f(v)
	}
	return nil
}
