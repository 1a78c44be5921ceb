package minioblob

import (
	"context"
	"io"

	"github.com/minio/minio-go/v7"
)

// The size and number of the parts of a raw transfer, those of a Store.
const (
	rawPart    = 16 << 20
	rawThreads = 4
)

// RawPut moves r with minio-go's own upload, for measurements.
func (s *Store) RawPut(ctx context.Context, key string, r io.Reader) error {
	_, err := s.core.Client.PutObject(ctx, s.cfg.Bucket, s.Full(key), r, -1,
		minio.PutObjectOptions{PartSize: rawPart, NumThreads: rawThreads, ConcurrentStreamParts: true})
	return err
}

// RawGet moves the blob into w with minio-go's own download.
func (s *Store) RawGet(ctx context.Context, key string, w io.WriterAt) error {
	o, err := s.core.Client.GetObject(ctx, s.cfg.Bucket, s.Full(key), minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer o.Close() //nolint:errcheck // nothing was written through this handle
	_, err = io.Copy(io.NewOffsetWriter(w, 0), o)
	return err
}
