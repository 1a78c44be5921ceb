package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// MaxPages bounds the memory of the pages of a Parquet file that are decoded at once: those that
// hold the next rows, and the dictionaries.
const MaxPages = 512 << 20

// Each value of a page takes up to so many bytes besides its own: an offset or an index and its
// levels, and a place in the row where a row has many of a column.
const (
	bytesPerValue    = 8
	bytesPerRepeated = 32
)

// ErrPages means that the pages of a file need more memory than MaxPages.
var ErrPages = fmt.Errorf("its pages take more than %d MiB of memory at once, the limit: write the file again with fewer rows in a page, or as JSON lines", MaxPages>>20)

// pageMemory counts the memory of the pages that are decoded at once.
type pageMemory struct {
	sum int64
	// pages and dicts are the weights of the last page and dictionary of each column.
	pages, dicts []int64
}

// begin starts another read, which needs no pages but the last ones of each column.
func (h *pageMemory) begin() {
	h.sum = 0
	for i := range h.pages {
		h.sum += h.pages[i] + h.dicts[i]
	}
}

// fits says whether a page has room.
func (h *pageMemory) fits(weight int64) bool { return weight <= MaxPages-h.sum }

func (h *pageMemory) add(column int, dictionary bool, weight int64) {
	h.sum += weight
	if dictionary {
		h.dicts[column] = weight
	} else {
		h.pages[column] = weight
	}
}

// weigher finds what a page takes when it is decoded. A few bytes may stand for very many
// values, whatever the header of the page says.
type weigher struct {
	repetition, definition int // greatest levels
	perValue               int64
}

func newWeigher(c *parquet.Column) weigher {
	w := weigher{repetition: c.MaxRepetitionLevel(), definition: c.MaxDefinitionLevel(), perValue: bytesPerValue}
	if w.repetition > 0 {
		w.perValue = bytesPerRepeated
	}
	if t := c.Type(); t.Kind() == parquet.FixedLenByteArray {
		w.perValue += int64(t.Length())
	}
	return w
}

var errTorn = errors.New("ends too early")

// declared is the weight of a page by its header.
func (w weigher) declared(h *format.PageHeader) int64 {
	return int64(max(h.UncompressedPageSize, h.CompressedPageSize)) + w.perValue*int64(numValues(h))
}

func numValues(h *format.PageHeader) int32 {
	switch {
	case h.DataPageHeader.Valid:
		return h.DataPageHeader.V.NumValues
	case h.DataPageHeaderV2.Valid:
		return h.DataPageHeaderV2.V.NumValues
	default:
		return h.DictionaryPageHeader.V.NumValues
	}
}

// unpacked returns the weight of a page from its unpacked bytes, levels and values.
func (w weigher) unpacked(h *format.PageHeader, page []byte) (int64, error) {
	weight := w.declared(h)
	var repetition, definition []byte
	var encoding format.Encoding
	levels := [2]format.Encoding{format.RLE, format.RLE}
	switch h.Type {
	case format.DataPage:
		v1 := &h.DataPageHeader.V
		levels = [2]format.Encoding{v1.RepetitionLevelEncoding, v1.DefinitionLevelEncoding}
		var err error
		if repetition, page, err = cutLevels(page, w.repetition > 0); err != nil {
			return 0, err
		}
		if definition, page, err = cutLevels(page, w.definition > 0); err != nil {
			return 0, err
		}
		encoding = v1.Encoding
	case format.DataPageV2:
		v2 := &h.DataPageHeaderV2.V
		r, d := int(v2.RepetitionLevelsByteLength), int(v2.DefinitionLevelsByteLength)
		repetition, definition, page = page[:r], page[r:r+d], page[r+d:]
		encoding = v2.Encoding
	default:
		return weight, nil // a dictionary is plain
	}
	counted := max(countLevels(levels[0], repetition, w.repetition), countLevels(levels[1], definition, w.definition))
	values, extra := countValues(encoding, page)
	return weight + w.perValue*max(counted, values) + extra, nil
}

// cutLevels takes levels with their length off a page of version 1.
func cutLevels(page []byte, has bool) (levels, rest []byte, err error) {
	if !has {
		return nil, page, nil
	}
	if len(page) < 4 {
		return nil, nil, errTorn
	}
	n := uint64(binary.LittleEndian.Uint32(page))
	page = page[4:]
	if n > uint64(len(page)) {
		return nil, nil, errTorn
	}
	return page[:n], page[n:], nil
}

func countLevels(encoding format.Encoding, levels []byte, greatest int) int64 {
	if encoding != format.RLE {
		return 8 * int64(len(levels)) // of a bit each at least
	}
	return countRuns(levels, bits.Len(uint(greatest)))
}

// countRuns counts the values of runs (encoding RLE), up to where they are malformed.
func countRuns(src []byte, width int) (count int64) {
	for len(src) > 0 {
		head, n := binary.Uvarint(src)
		if n <= 0 {
			return count
		}
		src = src[n:]
		values := int64(min(head>>1, math.MaxInt32))
		size := int64(width+7) / 8
		if head&1 != 0 {
			size = values * int64(width)
			values *= 8
		}
		if count += values; size > int64(len(src)) {
			return count
		}
		src = src[size:]
	}
	return count
}

// countValues counts the values of a page by their encoding, 0 where the bytes are as many as
// they take. extra is what they take besides.
func countValues(encoding format.Encoding, page []byte) (count, extra int64) {
	switch encoding {
	case format.RLEDictionary, format.PlainDictionary: //nolint:staticcheck // older writers still say so
		if len(page) == 0 {
			return 0, 0
		}
		return countRuns(page[1:], int(page[0])), 0
	case format.RLE: // truths, behind their length
		return countRuns(page[min(4, len(page)):], 1), 0
	case format.DeltaBinaryPacked, format.DeltaLengthByteArray:
		count, _ = skipDelta(page)
		return count, 0
	case format.DeltaByteArray:
		return countPrefixed(page)
	default:
		return 0, 0
	}
}

// countPrefixed is of texts each of which begins like the one before.
func countPrefixed(page []byte) (count, extra int64) {
	prefixes, suffixes := skipDelta(page)
	if lengths, _ := skipDelta(suffixes); lengths > prefixes {
		prefixes = lengths
	}
	if prefixes*bytesPerValue > MaxPages {
		return prefixes, 0
	}
	list, err := parquet.DeltaBinaryPacked.DecodeInt32(nil, page)
	if err != nil {
		return prefixes, 0 // the error is found again where the values are decoded
	}
	for _, n := range list {
		extra += max(0, int64(n))
	}
	return prefixes, extra
}

// skipDelta passes numbers in the encoding DELTA_BINARY_PACKED. rest is nil where they are
// malformed.
func skipDelta(src []byte) (count int64, rest []byte) {
	var head [4]uint64 // size of a block, small blocks in it, numbers, the first one
	for i := range head {
		v, n := binary.Uvarint(src)
		if n <= 0 {
			return 0, nil
		}
		head[i], src = v, src[n:]
	}
	block, small := head[0], head[1]
	count = int64(min(head[2], math.MaxInt32))
	if small == 0 || block > 1<<20 || block < small {
		return count, nil
	}
	for left := count - 1; left > 0; {
		_, n := binary.Uvarint(src) // the least difference
		if n <= 0 || uint64(len(src)-n) < small {
			return count, nil
		}
		widths := src[n : n+int(small)]
		src = src[n+int(small):]
		for _, width := range widths {
			size := block / small * uint64(width) / 8
			src = src[min(size, uint64(len(src))):]
			if left -= int64(block / small); left <= 0 {
				break
			}
		}
	}
	return count, src
}
