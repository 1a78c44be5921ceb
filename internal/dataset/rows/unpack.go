package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// The bytes of a page are as many as its header says.
var (
	errLarger  = errors.New("is larger than its header says")
	errSmaller = errors.New("is smaller than its header says")
)

// unpacker decompresses pages. Its zero value is ready.
type unpacker struct {
	zstd *zstd.Decoder
}

// unpack decompresses packed into out, which it fills. No codec takes memory for more.
func (u *unpacker) unpack(codec format.CompressionCodec, packed, out []byte) error {
	n, err := u.decode(codec, packed, out)
	switch {
	case err != nil:
		return err
	case n < len(out):
		return errSmaller
	}
	return nil
}

func (u *unpacker) decode(codec format.CompressionCodec, packed, out []byte) (int, error) {
	switch codec {
	case format.Snappy:
		return decodeSnappy(packed, out)
	case format.Zstd:
		return u.decodeZstd(packed, out)
	case format.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return 0, err
		}
		return decodeStream(r, out)
	case format.Brotli:
		return decodeStream(brotli.NewReader(bytes.NewReader(packed)), out)
	case format.Lz4Raw:
		n, err := lz4.UncompressBlock(packed, out)
		if err != nil {
			return 0, fmt.Errorf("is corrupt, or %w: %w", errLarger, err)
		}
		return n, nil
	default:
		return 0, fmt.Errorf("is compressed by %s, which is not read", codec)
	}
}

func decodeSnappy(packed, out []byte) (int, error) {
	n, err := snappy.DecodedLen(packed)
	if err != nil {
		return 0, err
	}
	if n > len(out) {
		return 0, errLarger
	}
	_, err = snappy.Decode(out, packed)
	return n, err
}

func (u *unpacker) decodeZstd(packed, out []byte) (int, error) {
	if u.zstd == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return 0, err
		}
		u.zstd = d
	}
	got, err := u.zstd.DecodeAll(packed, out[:0:len(out)])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		return 0, errLarger
	}
	return len(got), err
}

func decodeStream(r io.Reader, out []byte) (int, error) {
	n, err := io.ReadFull(r, out)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return n, nil
	} else if err != nil {
		return n, err
	}
	if more, err := r.Read(make([]byte, 1)); more > 0 {
		return n, errLarger
	} else if err != nil && !errors.Is(err, io.EOF) {
		return n, err
	}
	return n, nil
}

func (u *unpacker) close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
}
