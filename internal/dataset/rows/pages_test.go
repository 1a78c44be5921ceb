package rows

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// writePages writes a file of one column of texts, whose footer claims little.
func writePages(t *testing.T, codec format.CompressionCodec, repetition format.FieldRepetitionType, pages ...[]byte) string {
	t.Helper()
	text := []byte("PAR1")
	for _, p := range pages {
		text = append(text, p...)
	}
	kind := thrift.Null[format.Type]{V: format.ByteArray, Valid: true}
	meta := format.FileMetaData{
		Version: 1, NumRows: 1,
		Schema: thrift.Slice[format.SchemaElement]{
			{Name: "schema", NumChildren: thrift.Null[int32]{V: 1, Valid: true}},
			{Name: "problem", Type: kind, RepetitionType: thrift.Null[format.FieldRepetitionType]{V: repetition, Valid: true}},
		},
		RowGroups: thrift.Slice[format.RowGroup]{{NumRows: 1, TotalByteSize: 100, Columns: thrift.Slice[format.ColumnChunk]{{MetaData: format.ColumnMetaData{
			Type: format.ByteArray, Encoding: thrift.Slice[format.Encoding]{format.Plain}, PathInSchema: thrift.Slice[string]{"problem"},
			Codec: codec, NumValues: 1, TotalUncompressedSize: 100, TotalCompressedSize: int64(len(text) - 4), DataPageOffset: 4,
		}}}}},
	}
	footer := marshal(t, &meta)
	text = append(text, footer...)
	text = append(binary.LittleEndian.AppendUint32(text, uint32(len(footer))), "PAR1"...)
	path := filepath.Join(t.TempDir(), "in.parquet")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := thrift.Marshal(new(thrift.CompactProtocol), v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// dataPage is a page of version 1 that claims to have size bytes.
func dataPage(t *testing.T, encoding format.Encoding, numValues, size int, body []byte) []byte {
	t.Helper()
	return append(marshal(t, &format.PageHeader{
		Type: format.DataPage, UncompressedPageSize: int32(size), CompressedPageSize: int32(len(body)),
		DataPageHeader: thrift.Null[format.DataPageHeader]{Valid: true, V: format.DataPageHeader{
			NumValues: int32(numValues), Encoding: encoding, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE,
		}},
	}), body...)
}

// zeros compresses n bytes of 0 by a stream, so that the test itself needs no memory for them.
func zeros(t *testing.T, n int, open func(io.Writer) io.WriteCloser) []byte {
	t.Helper()
	var out bytes.Buffer
	w := open(&out)
	for part := make([]byte, 1<<20); n > 0; n -= len(part) {
		if _, err := w.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstdWriter(w io.Writer) io.WriteCloser {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return z
}

// levels are definition levels with their length before them.
func levels(runs []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(runs))), runs...)
}

// prefixed are values in DELTA_BYTE_ARRAY that all begin with the n bytes of the first one.
func prefixed(t *testing.T, values, n int) []byte {
	t.Helper()
	prefixes, suffixes := make([]int32, values), make([]int32, values)
	for i := range prefixes {
		prefixes[i] = int32(n)
	}
	prefixes[0], suffixes[0] = 0, int32(n)
	var page []byte
	for _, list := range [][]int32{prefixes, suffixes} {
		part, err := parquet.DeltaBinaryPacked.EncodeInt32(nil, list)
		if err != nil {
			t.Fatal(err)
		}
		page = append(page, part...)
	}
	return append(page, make([]byte, n)...)
}

// TestBombs: a small file that would become large is refused before it takes the memory,
// whichever of its parts lies about it.
func TestBombs(t *testing.T) {
	const (
		many   = 1<<31 - 1
		lie    = 64 << 20
		limits = 24 << 20 // of what is allocated meanwhile, the tables of codecs included
	)
	packed := make([]byte, 1<<20)
	n, err := lz4.CompressBlock(make([]byte, lie), packed, nil)
	if err != nil {
		t.Fatal(err)
	}
	run := binary.AppendUvarint(nil, 1<<30<<1) // of 2^30 values
	delta := slices.Concat(binary.AppendUvarint(nil, 128), []byte{4}, binary.AppendUvarint(nil, many), []byte{0})
	texts := append(marshal(t, &format.PageHeader{
		Type: format.DictionaryPage, UncompressedPageSize: 4, CompressedPageSize: 4,
		DictionaryPageHeader: thrift.Null[format.DictionaryPageHeader]{Valid: true, V: format.DictionaryPageHeader{NumValues: 1}},
	}), 0, 0, 0, 0)
	column := func(codec format.CompressionCodec, pages ...[]byte) string {
		return writePages(t, codec, format.Required, pages...)
	}
	optional := func(page []byte) string { return writePages(t, format.Uncompressed, format.Optional, page) }
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"declared": {column(format.Zstd, dataPage(t, format.Plain, 1, 1500<<20, zeros(t, 1500<<20, zstdWriter))), ErrPages},
		"zstd":     {column(format.Zstd, dataPage(t, format.Plain, 1, 1000, zeros(t, lie, zstdWriter))), errLarger},
		"gzip":     {column(format.Gzip, dataPage(t, format.Plain, 1, 1000, zeros(t, lie, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }))), errLarger},
		"brotli":   {column(format.Brotli, dataPage(t, format.Plain, 1, 1000, zeros(t, lie, func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 1) }))), errLarger},
		"snappy":   {column(format.Snappy, dataPage(t, format.Plain, 1, 1000, snappy.Encode(nil, make([]byte, lie)))), errLarger},
		"lz4":      {column(format.Lz4Raw, dataPage(t, format.Plain, 1, 1000, packed[:n])), errLarger},
		"packed":   {column(format.Snappy, dataPage(t, format.Plain, 1, 1000, nil)[:20]), nil},
		"values":   {column(format.Uncompressed, dataPage(t, format.Plain, many, 4, make([]byte, 4))), ErrPages},
		"runs":     {column(format.Uncompressed, texts, dataPage(t, format.RLEDictionary, 1, 7, slices.Concat([]byte{8}, run, []byte{0}))), ErrPages},
		"levels":   {optional(dataPage(t, format.Plain, 1, 14, slices.Concat(levels(append(run, 1)), make([]byte, 4)))), ErrPages},
		"delta":    {column(format.Uncompressed, dataPage(t, format.DeltaLengthByteArray, 1, len(delta), delta)), ErrPages},
		"prefixes": {column(format.Uncompressed, dataPage(t, format.DeltaByteArray, 3000, 1<<30, prefixed(t, 3000, 1<<20))), ErrPages},
		"header":   {column(format.Uncompressed, dataPage(t, format.DeltaByteArray, 3000, 2<<20, prefixed(t, 3000, 1<<20))), ErrPages},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := Open(c.path)
			if err == nil {
				_, err = r.Next()
				err = errors.Join(err, r.Close())
			}
			runtime.ReadMemStats(&after)
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), "column problem") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want a line with %v", err, c.want)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > limits {
				t.Errorf("%d MiB were allocated, want at most %d", got>>20, limits>>20)
			}
		})
	}
}

// TestHeld: pages that were passed need no room any more.
func TestHeld(t *testing.T) {
	h := pageMemory{pages: make([]int64, 2), dicts: make([]int64, 2)}
	for range 100 {
		h.begin()
		for column := range 2 {
			if !h.fits(MaxPages / 8) {
				t.Fatalf("a page has no room beside %v, %v", h.pages, h.dicts)
			}
			h.add(column, false, MaxPages/8)
		}
		h.add(0, true, MaxPages/4)
	}
	if h.fits(MaxPages/2 + 1) {
		t.Error("two pages and a dictionary take no room")
	}
}

// TestForms: a file is read the same in each codec, encoding and form of its pages, from its
// beginning and from any row. Half of a text does not compress: the library leaves such pages of
// LZ4 empty.
func TestForms(t *testing.T) {
	type part struct {
		Role string `parquet:"role"`
		Text string `parquet:"text,optional"`
	}
	type plain struct {
		Problem string  `parquet:"problem"`
		Parts   []part  `parquet:"parts"`
		IDs     []int64 `parquet:"ids"`
		Num     int64   `parquet:"num"`
		Good    bool    `parquet:"good"`
	}
	type dict struct {
		Problem string  `parquet:"problem,dict"`
		Parts   []part  `parquet:"parts"`
		IDs     []int64 `parquet:"ids"`
		Num     int64   `parquet:"num,dict"`
		Good    bool    `parquet:"good"`
	}
	type delta struct {
		Problem string  `parquet:"problem,delta"`
		Parts   []part  `parquet:"parts"`
		IDs     []int64 `parquet:"ids"`
		Num     int64   `parquet:"num,delta"`
		Good    bool    `parquet:"good"`
	}
	const num = 500
	list := make([]plain, num)
	for i := range list {
		list[i] = plain{Problem: fmt.Sprintf("What is %d+%d? %s %x", i, i%7, strings.Repeat("x", i%90), sha256.Sum256([]byte{byte(i)})), Num: int64(i * i), Good: i%3 == 0}
		for j := range i % 4 {
			list[i].Parts = append(list[i].Parts, part{Role: "user", Text: strings.Repeat("a", j)})
			list[i].IDs = append(list[i].IDs, int64(i*j))
		}
	}
	var want []string
	for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Brotli, &parquet.Zstd, &parquet.Lz4Raw} {
		for version := 1; version <= 2; version++ {
			opts := []parquet.WriterOption{parquet.Compression(codec), parquet.DataPageVersion(version), parquet.PageBufferSize(2048), parquet.MaxRowsPerRowGroup(200)}
			for name, path := range map[string]string{
				"plain": writeRows(t, list, opts),
				"dict":  writeRows(t, convert(list, func(p plain) dict { return dict(p) }), opts),
				"delta": writeRows(t, convert(list, func(p plain) delta { return delta(p) }), opts),
			} {
				t.Run(fmt.Sprintf("%s %s version %d", name, codec, version), func(t *testing.T) {
					got := readFrom(t, path, 0)
					if want == nil {
						want = got
					}
					if len(got) != num || !slices.Equal(got, want) {
						t.Fatalf("%d rows differ from the %d of the first file: %.200s and %.200s", len(got), len(want), got, want)
					}
					for _, skip := range []int64{1, 63, 64, 199, 200, 331, num} {
						if got := readFrom(t, path, skip); !slices.Equal(got, want[skip:]) {
							t.Errorf("%d rows after %d", len(got), skip)
						}
					}
				})
			}
		}
	}
	if !strings.HasPrefix(want[3], `{"problem":"What is 3+3? xxx 084fed08b978af4d7d196a7446a86b58009e636b611db16211b65a9aadff29c5","parts":[{"role":"user","text":null},{"role":"user","text":"a"},`) {
		t.Errorf("%s", want[3])
	}
}

func convert[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

func writeRows[T any](t *testing.T, list []T, opts []parquet.WriterOption) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[T](f, opts...)
	_, err = w.Write(list)
	if err := errors.Join(err, w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func readFrom(t *testing.T, path string, skip int64) (list []string) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Skip(skip); err != nil {
		t.Fatal(err)
	}
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err := errors.Join(err, row.Err); err != nil {
			t.Fatal(err)
		}
		list = append(list, string(row.JSON))
	}
}
