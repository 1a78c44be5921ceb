package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// A compact record is the magic and its sections. A section is the length of its zstd
// frame as a uvarint and the frame: first the heads of all trajectories, each behind
// its length, then the planes: of the lowest bytes of the tokens of all trajectories,
// and so on. Each section holds bytes of one kind, so that one code fits all of them.

const (
	magic = "temper trajectories 1\n"
	// tokenPlanes come before the planes of log-probabilities.
	tokenPlanes = 4
	numPlanes   = tokenPlanes + logprobBytes
	// maxSection bounds what a damaged record may make a reader allocate.
	maxSection = 1 << 30
)

// newEncoder and newDecoder make the coder of one record: what they hold is small
// beside it, and nobody has to share them.
func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(true))
}

func newDecoder() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxSection))
}

var errRecord = errors.New("compact record is damaged")

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
			section = append(section, packed[i].plane(plane)...)
		}
		flush()
	}
	return out, nil
}

// plane is the part of a trajectory in one of the sections.
func (p *Packed) plane(i int) []byte {
	s := p.shape
	if i < tokenPlanes {
		if i >= s.tokenBytes {
			return nil
		}
		return p.planes[i*s.tokens:][:s.tokens]
	}
	return p.planes[s.tokens*s.tokenBytes+(i-tokenPlanes)*s.logprobs:][:s.logprobs]
}

// DecodePacked reads a compact record.
func DecodePacked(data []byte) ([]Packed, error) { return decodePlanes(data, numPlanes) }

// decodePlanes reads a compact record with its first planes alone.
func decodePlanes(data []byte, planes int) ([]Packed, error) {
	data, ok := bytes.CutPrefix(data, []byte(magic))
	if !ok {
		return nil, fmt.Errorf("compact record: want a first line %q", magic)
	}
	dec, err := newDecoder()
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	var sections [1 + numPlanes][]byte
	for i := range sections {
		size, n := binary.Uvarint(data)
		if n <= 0 || size > uint64(len(data)-n) {
			return nil, errRecord
		}
		if i <= planes {
			if sections[i], err = dec.DecodeAll(data[n:][:size], nil); err != nil {
				return nil, fmt.Errorf("%w: section %d: %w", errRecord, i, err)
			}
		}
		data = data[n+int(size):] //nolint:gosec // within the data
	}
	if len(data) > 0 {
		return nil, fmt.Errorf("%w: %d bytes follow its end", errRecord, len(data))
	}
	packed, err := readHeads(sections[0])
	if err != nil {
		return nil, err
	}
	return packed, dealPlanes(packed, sections[1:][:planes])
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
	for i := range packed {
		p := &packed[i]
		p.planes = make([]byte, 0, min(p.shape.size(), len(sections)*len(sections[0])))
		for k := range sections {
			n := p.shape.length(k)
			if n > len(sections[k]) {
				return fmt.Errorf("%w: trajectory %s lacks tokens", errRecord, p.describe())
			}
			p.planes = append(p.planes, sections[k][:n]...)
			sections[k] = sections[k][n:]
		}
	}
	for k := range sections {
		if len(sections[k]) > 0 {
			return fmt.Errorf("%w: %d bytes belong to no trajectory", errRecord, len(sections[k]))
		}
	}
	return nil
}

// length is how long a plane is.
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
