package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3response"
)

// synced is the folder backend with what it leaves out: bytes are on the disk
// before they get their name, and the name before the answer is sent.
type synced struct {
	*posix.Posix
	dir string // of the buckets
}

// PutObject syncs the object before it appears under its key.
func (s *synced) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	out, err := s.PutObjectWithPostFunc(ctx, in, (*os.File).Sync)
	if err == nil {
		err = s.syncParents(*in.Bucket, *in.Key)
	}
	return out, err
}

// UploadPart syncs the part, so that a crash cannot lose what was acknowledged.
func (s *synced) UploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	return s.UploadPartWithPostFunc(ctx, in, (*os.File).Sync)
}

// CompleteMultipartUpload syncs what it puts together before it appears under its key.
func (s *synced) CompleteMultipartUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput) (s3response.CompleteMultipartUploadResult, string, error) {
	var failed error // the gateway goes on after an error of the copy
	copyPart := func(from, to *os.File) (bool, error) {
		_, err := io.Copy(to, from)
		if err == nil {
			err = to.Sync()
		}
		if err != nil {
			failed = err
		}
		return true, err
	}
	out, version, err := s.CompleteMultipartUploadWithCopy(ctx, in, copyPart)
	if err == nil {
		err = failed
	}
	if err == nil {
		err = s.syncParents(*in.Bucket, *in.Key)
	}
	return out, version, err
}

// syncParents makes the entries of the key's folders durable, up to the bucket.
func (s *synced) syncParents(bucket, key string) error {
	root := filepath.Join(s.dir, bucket)
	for dir := filepath.Dir(filepath.Join(root, key)); ; dir = filepath.Dir(dir) {
		if err := syncDir(dir); err != nil && !os.IsNotExist(err) { // removed with its last key
			return err
		}
		if dir == root || len(dir) < len(root) {
			return nil
		}
	}
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // opened for reading only
	return d.Sync()
}
