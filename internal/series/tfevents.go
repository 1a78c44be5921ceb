package series

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"time"
)

// File begins a file.
func File(at time.Time) []byte {
	return appendRecord(nil, appendText(appendDouble(nil, 1, seconds(at)), 3, "brain.Event:2"))
}

// Append adds the scalars of a step.
func Append(out []byte, step int, at time.Time, values map[string]float64) []byte {
	event := appendVarint(appendDouble(nil, 1, seconds(at)), 2, uint64(step)) //nolint:gosec // steps count from 1
	var summary []byte
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := binary.AppendUvarint(appendText(nil, 1, name), 2<<3|5)
		value = binary.LittleEndian.AppendUint32(value, math.Float32bits(float32(values[name])))
		summary = appendText(summary, 1, string(value))
	}
	return appendRecord(out, appendText(event, 5, string(summary)))
}

func seconds(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }

func appendDouble(b []byte, field int, x float64) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(b, uint64(field<<3|1)), math.Float64bits(x)) //nolint:gosec // a small constant
}

func appendVarint(b []byte, field int, x uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(field<<3)), x) //nolint:gosec // a small constant
}

func appendText(b []byte, field int, text string) []byte {
	return append(binary.AppendUvarint(binary.AppendUvarint(b, uint64(field<<3|2)), uint64(len(text))), text...) //nolint:gosec // a small constant
}

// appendRecord frames data: its length, a masked CRC-32C of that, the data, and a masked
// CRC-32C of the data.
func appendRecord(out, data []byte) []byte {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	out = append(out, length...)
	out = binary.LittleEndian.AppendUint32(out, maskedCRC(length))
	out = append(out, data...)
	return binary.LittleEndian.AppendUint32(out, maskedCRC(data))
}

func maskedCRC(data []byte) uint32 {
	crc := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (crc>>15 | crc<<17) + 0xa282ead8
}
