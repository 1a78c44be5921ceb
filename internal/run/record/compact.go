package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// A compact record is the magic and its sections. A section is the length of its zstd
// frame as a uvarint and the frame: first the heads of all trajectories, each behind
// its length, then the planes: of the lowest bytes of the tokens of all trajectories,
// and so on. Each section holds bytes of one kind, so that one code fits all of them.

const (
	magic = "temper trajectories 2\n"
	// magicBefore marks the records of builds before v0.1.0, whose calls had other fields.
	magicBefore = "temper trajectories 1\n"
	// tokenPlanes come before the planes of log-probabilities.
	tokenPlanes = 4
	numPlanes   = tokenPlanes + logprobBytes
	// maxSection bounds what a damaged record may make a reader allocate.
	maxSection = 1 << 30
)

// newEncoder and newDecoder make a coder for one caller: its buffers are small beside a
// record.
func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(true))
}

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxSection))
}

var (
	errRecord     = errors.New("compact record is damaged")
	errNotCompact = fmt.Errorf("compact record: want a first line %q", magic)
	errBefore     = errors.New("the record is of a build before v0.1.0: read it with that build, or train into a new store")
)

// Compact writes trajectories as a compact record.
func Compact(packed []Packed) ([]byte, error) {
	enc, err := newEncoder()
	if err != nil {
		return nil, err
	}
	all, most := len(magic), 0
	for i := range packed {
		all += packed[i].Size()
		most += max(packed[i].Tokens(), len(packed[i].head)+binary.MaxVarintLen64)
	}
	out := append(make([]byte, 0, all), magic...)
	section, frame := make([]byte, 0, most), make([]byte, 0, most)
	flush := func() {
		frame = enc.EncodeAll(section, frame[:0])
		out = append(binary.AppendUvarint(out, uint64(len(frame))), frame...)
		section = section[:0]
	}
	for i := range packed {
		section = append(binary.AppendUvarint(section, uint64(len(packed[i].head))), packed[i].head...)
	}
	flush()
	for plane := range numPlanes {
		for i := range packed {
			section = append(section, packed[i].planes[plane]...)
		}
		flush()
	}
	return out, nil
}

// DecodePacked reads a compact record.
func DecodePacked(data []byte) ([]Packed, error) { return new(planeReader).read(data, numPlanes) }

// TokenReader reads compact records without log-probabilities, which are most of them, one
// after another in the same memory. Its zero value is ready.
type TokenReader struct{ planeReader }

// Read returns trajectories that hold until the next call and whose Unpack fails. The data
// may end where TokensEnd says.
func (r *TokenReader) Read(data []byte) ([]Packed, error) { return r.read(data, tokenPlanes) }

// TokensEnd returns the place in a compact record where the tokens end and the
// log-probabilities begin. data is the beginning of the record. If it is too short, ok is
// false and end is the number of bytes needed at least.
func TokensEnd(data []byte) (end int, ok bool, err error) {
	end = len(magic)
	if len(data) >= end && !IsCompact(data) {
		return 0, false, errNotCompact
	}
	for range 1 + tokenPlanes {
		if end+binary.MaxVarintLen64 > len(data) {
			return end + binary.MaxVarintLen64, false, nil
		}
		size, n := binary.Uvarint(data[end:])
		if n <= 0 || size > maxSection {
			return 0, false, errRecord
		}
		end += n + int(size)
	}
	return end, true, nil
}

// planeReader keeps what reading a compact record takes.
type planeReader struct {
	dec      *zstd.Decoder
	sections [1 + numPlanes][]byte
}

// read reads a compact record with its first planes alone.
func (r *planeReader) read(data []byte, planes int) ([]Packed, error) {
	data, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return nil, errNotCompact
	}
	if r.dec == nil {
		dec, err := newDecoder()
		if err != nil {
			return nil, err
		}
		r.dec = dec
	}
	for i := range 1 + planes {
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return nil, errRecord
		}
		var err error
		if r.sections[i], err = r.dec.DecodeAll(data[n:][:size], r.sections[i][:0]); err != nil {
			return nil, fmt.Errorf("%w: section %d: %w", errRecord, i, err)
		}
		data = data[n+int(size):] //nolint:gosec // within the data
	}
	if planes == numPlanes && len(data) > 0 {
		return nil, fmt.Errorf("%w: %d bytes follow its end", errRecord, len(data))
	}
	packed, err := readHeads(r.sections[0])
	if err != nil {
		return nil, err
	}
	return packed, dealPlanes(packed, r.sections[1:][:planes])
}

// readHeads cuts the heads apart and reads the shapes.
func readHeads(data []byte) ([]Packed, error) {
	var out []Packed
	for len(data) > 0 {
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return nil, errRecord
		}
		p := Packed{head: data[n:][:size:size]}
		r := reader{data: p.head}
		p.shape, p.ProblemID, p.Rollout = r.shape(), r.text(), r.int()
		_, _, _ = r.int(), r.int(), r.int() // stage, step and version
		p.prompt = r.prompt(p.shape)
		if r.err != nil {
			return nil, fmt.Errorf("trajectory %d: %w", len(out)+1, r.err)
		}
		out = append(out, p)
		data = data[n+int(size):] //nolint:gosec // within the data
	}
	return out, nil
}

// dealPlanes gives each trajectory its part of every section.
func dealPlanes(packed []Packed, sections [][]byte) error {
	sections = slices.Clone(sections)
	for i := range packed {
		p := &packed[i]
		for k := range sections {
			n := p.shape.length(k)
			if n > len(sections[k]) {
				return fmt.Errorf("%w: trajectory %s lacks tokens", errRecord, p.describe())
			}
			p.planes[k], sections[k] = sections[k][:n:n], sections[k][n:]
		}
	}
	for k := range sections {
		if len(sections[k]) > 0 {
			return fmt.Errorf("%w: %d bytes belong to no trajectory", errRecord, len(sections[k]))
		}
	}
	return nil
}

// length returns the length of a plane.
func (s shape) length(plane int) int {
	switch {
	case plane >= tokenPlanes:
		return s.logprobs
	case plane < s.tokenBytes:
		return s.tokens
	default:
		return 0
	}
}
