package s3blob

import (
	"context"
	"io"

	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
)

// RawPut moves r with the SDK's transfer manager as it comes, for measurements.
func (s *Store) RawPut(ctx context.Context, key string, r io.Reader) error {
	full := s.Full(key)
	_, err := transfermanager.New(s.client).UploadObject(ctx, &transfermanager.UploadObjectInput{Bucket: &s.bucket, Key: &full, Body: r})
	return err
}

// RawGet moves the blob into w with the SDK's transfer manager as it comes.
func (s *Store) RawGet(ctx context.Context, key string, w io.WriterAt) error {
	full := s.Full(key)
	_, err := transfermanager.New(s.client).DownloadObject(ctx, &transfermanager.DownloadObjectInput{Bucket: &s.bucket, Key: &full, WriterAt: w})
	return err
}
