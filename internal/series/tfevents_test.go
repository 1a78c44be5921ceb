package series_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"temper/internal/series"
)

// TestFramesAreWhole: each record has its length, and masked sums of length and data, as
// TFRecord wants.
func TestFramesAreWhole(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	data := series.Append(series.File(at), 3, at, map[string]float64{"b": 1, "a": 2})
	masked := func(b []byte) uint32 {
		crc := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (crc>>15 | crc<<17) + 0xa282ead8
	}
	records := 0
	for ; len(data) > 0; records++ {
		n := binary.LittleEndian.Uint64(data)
		if binary.LittleEndian.Uint32(data[8:]) != masked(data[:8]) || binary.LittleEndian.Uint32(data[12+n:]) != masked(data[12:12+n]) {
			t.Fatalf("record %d: wrong sum", records)
		}
		data = data[16+n:]
	}
	if records != 2 {
		t.Errorf("%d records, want the version and a step", records)
	}
}
