package rows

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// maxHeader bounds the header of a page, which may hold its least and its greatest text.
const maxHeader = MaxPages / 2

// column is one of the columns of a row group. Its pages are decompressed here and not by the
// library, which takes the memory that a page claims, and what its bytes become, without a bound.
type column struct {
	*parquet.FileColumnChunk
	pages *pageReader
}

// Pages returns the pages of the column, decompressed.
func (c column) Pages() parquet.Pages { return c.PagesFrom(c.pages) }

// columnGroup is a row group of such columns.
type columnGroup struct {
	parquet.RowGroup
	columns []parquet.ColumnChunk
}

func (g columnGroup) ColumnChunks() []parquet.ColumnChunk { return g.columns }

// Rows reads the rows of the group.
func (g columnGroup) Rows() parquet.Rows { return parquet.NewRowGroupRowReader(g) }

// pageReader hands out the bytes of a column, one behind the other, as if it had never been
// compressed. No page is decompressed before there is room for it.
type pageReader struct {
	file   io.ReaderAt
	size   int64 // of the file
	chunk  *format.ColumnMetaData
	column int
	weigh  weigher
	held   *pageMemory
	unpack *unpacker

	next int64 // in the file
	at   int64 // in what is handed out
	// head and body are what is left of the page that is handed out, and packed is what its
	// body comes from, which has not been read yet.
	head, body []byte
	packed     packedPage
	// err is why no more is read. It names the column.
	err error
}

// packedPage is a page that has room.
type packedPage struct {
	header *format.PageHeader // nil when there is none
	codec  format.CompressionCodec
	levels int   // bytes of levels that stand before what is compressed
	size   int   // decompressed
	start  int64 // in the file
	length int   // in the file
}

// begins is where the column begins in the file.
func begins(chunk *format.ColumnMetaData) int64 {
	if chunk.DictionaryPageOffset != 0 {
		return chunk.DictionaryPageOffset
	}
	return chunk.DataPageOffset
}

// ReadAt reads from the beginning, or continues where the last call ended, up to the end of
// the header of a page or of its body.
func (r *pageReader) ReadAt(p []byte, off int64) (int, error) {
	if off == 0 {
		r.next, r.at, r.head, r.body, r.packed = begins(r.chunk), 0, nil, nil, packedPage{}
	}
	if off != r.at {
		return 0, fmt.Errorf("read at %d, want %d", off, r.at)
	}
	n, err := r.read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	r.at += int64(n)
	return n, err
}

func (r *pageReader) read(p []byte) (n int, err error) {
	if len(r.head)+len(r.body)+r.packed.size == 0 {
		if err := r.advance(); err != nil {
			return 0, err
		}
	}
	if len(r.head) > 0 {
		n = copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	if size := r.packed.size; size > 0 && size <= len(p) {
		if err := r.unpackInto(p[:size]); err != nil { // without a copy, which is the rule
			return 0, err // callers that get all they wanted ask for no error
		}
		return size, nil
	} else if size > 0 {
		body := make([]byte, size)
		if err := r.unpackInto(body); err != nil {
			return 0, err
		}
		r.body = body
	}
	n = copy(p, r.body)
	r.body = r.body[n:]
	return n, nil
}

// advance finds the next page, or io.EOF, and writes a header that describes the page as it
// is now.
func (r *pageReader) advance() error {
	left := min(begins(r.chunk)+r.chunk.TotalCompressedSize, r.size) - r.next
	if left <= 0 {
		return io.EOF
	}
	header, size, err := r.header(left)
	if err != nil {
		return err
	}
	if err := checkHeader(header); err != nil {
		return err
	}
	if !r.held.fits(r.weigh.declared(header) + size) {
		return ErrPages
	}
	if int64(header.CompressedPageSize) > left-size {
		return errTorn
	}
	page := packedPage{
		header: header, codec: r.chunk.Codec, start: r.next + size, length: int(header.CompressedPageSize), size: int(header.UncompressedPageSize),
	}
	if v2 := header.DataPageHeaderV2; header.Type == format.DataPageV2 {
		page.levels = int(v2.V.RepetitionLevelsByteLength) + int(v2.V.DefinitionLevelsByteLength)
		if v2.V.IsCompressed.Valid && !v2.V.IsCompressed.V {
			page.codec = format.Uncompressed
		}
	}
	switch {
	case page.length == page.levels: // nothing behind them, which no codec need have written
		page.size = page.length
	case page.codec == format.Uncompressed && page.length > page.size:
		return fmt.Errorf("a page %w", errLarger)
	case page.codec == format.Uncompressed:
		page.size = page.length
	}
	r.packed, r.next = page, page.start+int64(page.length)
	plain := *header
	plain.CRC, plain.CompressedPageSize, plain.UncompressedPageSize = 0, int32(page.size), int32(page.size)
	plain.DataPageHeader.V.Statistics, plain.DataPageHeaderV2.V.Statistics = format.Statistics{}, format.Statistics{}
	r.head, err = thrift.Marshal(new(thrift.CompactProtocol), &plain)
	return err
}

// header decodes the next header and returns its length.
func (r *pageReader) header(left int64) (*format.PageHeader, int64, error) {
	for window := int64(4 << 10); ; window *= 16 {
		window = min(window, left, maxHeader)
		data := make([]byte, window)
		n, err := r.file.ReadAt(data, r.next)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		var protocol thrift.CompactProtocol
		in := protocol.NewReaderFromBytes(data[:n])
		header := new(format.PageHeader)
		if err = thrift.NewDecoder(in).Decode(header); err == nil {
			return header, int64(in.BytesRead()), nil
		}
		if int64(n) < window || window == min(left, maxHeader) {
			return nil, 0, fmt.Errorf("header of a page: %w", err)
		}
	}
}

func checkHeader(h *format.PageHeader) error {
	v2 := &h.DataPageHeaderV2.V
	levels := int64(v2.RepetitionLevelsByteLength) + int64(v2.DefinitionLevelsByteLength)
	least := min(h.CompressedPageSize, h.UncompressedPageSize, numValues(h), v2.RepetitionLevelsByteLength, v2.DefinitionLevelsByteLength)
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid,
		h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid && levels <= int64(min(h.CompressedPageSize, h.UncompressedPageSize)),
		h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		if least >= 0 {
			return nil
		}
	}
	return errors.New("the header of a page is malformed")
}

// unpackInto decompresses the page into out, and finds what its values will take.
func (r *pageReader) unpackInto(out []byte) error {
	page := r.packed
	r.packed = packedPage{}
	packed := out
	if page.codec != format.Uncompressed && page.length > page.levels {
		packed = make([]byte, page.length)
	}
	if _, err := r.file.ReadAt(packed, page.start); err != nil {
		return errTorn
	}
	if crc := uint32(page.header.CRC); crc != 0 && crc32.ChecksumIEEE(packed) != crc {
		return errors.New("a page is not what its checksum says")
	}
	if &packed[0] != &out[0] {
		copy(out, packed[:page.levels])
		if err := r.unpack.unpack(page.codec, packed[page.levels:], out[page.levels:]); err != nil {
			return fmt.Errorf("a page %w", err)
		}
	}
	weight, err := r.weigh.unpacked(page.header, out)
	if err != nil {
		return fmt.Errorf("a page %w", err)
	}
	if !r.held.fits(weight) {
		return ErrPages
	}
	r.held.add(r.column, page.header.Type == format.DictionaryPage, weight)
	return nil
}

// openPlain opens the file once more, as one whose columns are not compressed and stand nowhere:
// their bytes come from pageReaders.
func openPlain(meta *format.FileMetaData) (*parquet.File, error) {
	plain := *meta
	plain.KeyValueMetadata = nil
	plain.RowGroups = make(thrift.Slice[format.RowGroup], len(meta.RowGroups))
	for i, group := range meta.RowGroups {
		columns := make(thrift.Slice[format.ColumnChunk], len(group.Columns))
		for j, c := range group.Columns {
			columns[j].MetaData = format.ColumnMetaData{
				Type: c.MetaData.Type, Encoding: c.MetaData.Encoding, PathInSchema: c.MetaData.PathInSchema, NumValues: c.MetaData.NumValues,
				Codec: format.Uncompressed, TotalCompressedSize: math.MaxInt64,
			}
		}
		group.Columns = columns
		plain.RowGroups[i] = group
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &plain)
	if err != nil {
		return nil, err
	}
	const magic = "PAR1"
	n := len(footer)
	text := append([]byte(magic), footer...)
	text = append(text, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	text = append(text, magic...)
	return parquet.OpenFile(bytes.NewReader(text), int64(len(text)), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(64<<10))
}
