package s3blob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"temper/internal/blob/object"
)

// api is object.API on the SDK's raw calls.
type api struct {
	client *s3.Client
	bucket string
	write  []func(*s3.Options) // of requests with a body
}

var _ object.API = (*api)(nil)

// withSum asks for the stored checksum without the SDK's own check of it.
func withSum(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, smithyhttp.AddHeaderValue("x-amz-checksum-mode", "ENABLED"))
}

// Head implements object.API.
func (a *api) Head(ctx context.Context, key string) (object.Object, error) {
	out, err := a.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &a.bucket, Key: &key}, withSum)
	if err != nil {
		return object.Object{}, failure(err)
	}
	return object.Object{
		Key: key, Size: aws.ToInt64(out.ContentLength), ModTime: aws.ToTime(out.LastModified), ETag: aws.ToString(out.ETag),
		Nonce: out.Metadata[object.NonceHeader], CRC64: fullSum(out.ChecksumCRC64NVME, out.ChecksumType),
	}, nil
}

// Get implements object.API.
func (a *api) Get(ctx context.Context, key string, r object.Range) (io.ReadCloser, object.Object, error) {
	in := &s3.GetObjectInput{Bucket: &a.bucket, Key: &key}
	if r.ETag != "" {
		in.IfMatch = &r.ETag
	}
	switch {
	case r.Length >= 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1))
	case r.Offset > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", r.Offset))
	}
	out, err := a.client.GetObject(ctx, in, withSum)
	if err != nil {
		return nil, object.Object{}, failure(err)
	}
	return out.Body, object.Object{
		Key: key, Size: aws.ToInt64(out.ContentLength), ModTime: aws.ToTime(out.LastModified), ETag: aws.ToString(out.ETag),
		Nonce: out.Metadata[object.NonceHeader], CRC64: fullSum(out.ChecksumCRC64NVME, out.ChecksumType),
	}, nil
}

// fullSum returns the checksum if it covers all bytes.
func fullSum(sum *string, kind types.ChecksumType) string {
	if kind == types.ChecksumTypeComposite {
		return ""
	}
	return aws.ToString(sum)
}

// Put implements object.API.
func (a *api) Put(ctx context.Context, key string, body object.Body, m object.Match, nonce string) error {
	in := &s3.PutObjectInput{
		Bucket: &a.bucket, Key: &key, Body: bytes.NewReader(body.Data), ContentLength: aws.Int64(int64(len(body.Data))),
		ChecksumCRC64NVME: &body.CRC64, Metadata: map[string]string{object.NonceHeader: nonce},
	}
	in.IfNoneMatch, in.IfMatch = conditions(m)
	_, err := a.client.PutObject(ctx, in, a.write...)
	return failure(err)
}

func conditions(m object.Match) (ifNoneMatch, ifMatch *string) {
	if m.Absent {
		ifNoneMatch = aws.String("*")
	}
	if m.ETag != "" {
		ifMatch = &m.ETag
	}
	return ifNoneMatch, ifMatch
}

// Delete implements object.API.
func (a *api) Delete(ctx context.Context, key string) error {
	_, err := a.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &a.bucket, Key: &key})
	return failure(err)
}

// List implements object.API.
func (a *api) List(ctx context.Context, prefix, token string) ([]object.Object, string, error) {
	objects, _, next, err := a.list(ctx, &s3.ListObjectsV2Input{Prefix: &prefix}, token)
	return objects, next, err
}

// ListFolder implements object.API.
func (a *api) ListFolder(ctx context.Context, prefix, token string) ([]object.Object, []string, string, error) {
	return a.list(ctx, &s3.ListObjectsV2Input{Prefix: &prefix, Delimiter: aws.String("/")}, token)
}

func (a *api) list(ctx context.Context, in *s3.ListObjectsV2Input, token string) (page []object.Object, folders []string, next string, err error) {
	in.Bucket = &a.bucket
	if token != "" {
		in.ContinuationToken = &token
	}
	out, err := a.client.ListObjectsV2(ctx, in)
	if err != nil {
		return nil, nil, "", failure(err)
	}
	for _, o := range out.Contents {
		page = append(page, object.Object{
			Key: aws.ToString(o.Key), Size: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified), ETag: aws.ToString(o.ETag),
		})
	}
	for _, p := range out.CommonPrefixes {
		folders = append(folders, aws.ToString(p.Prefix))
	}
	return page, folders, aws.ToString(out.NextContinuationToken), nil
}

// Create implements object.API.
func (a *api) Create(ctx context.Context, key, nonce string) (string, error) {
	out, err := a.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &a.bucket, Key: &key, Metadata: map[string]string{object.NonceHeader: nonce},
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc64nvme, ChecksumType: types.ChecksumTypeFullObject,
	})
	if err != nil {
		return "", failure(err)
	}
	return aws.ToString(out.UploadId), nil
}

// UploadPart implements object.API.
func (a *api) UploadPart(ctx context.Context, key, uploadID string, number int, body object.Body) (string, error) {
	out, err := a.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &a.bucket, Key: &key, UploadId: &uploadID, PartNumber: aws.Int32(int32(number)),
		Body: bytes.NewReader(body.Data), ContentLength: aws.Int64(int64(len(body.Data))), ChecksumCRC64NVME: &body.CRC64,
	}, a.write...)
	if err != nil {
		return "", failure(err)
	}
	return aws.ToString(out.ETag), nil
}

// Complete implements object.API.
func (a *api) Complete(ctx context.Context, key, uploadID string, whole object.Whole, m object.Match) error {
	parts := make([]types.CompletedPart, 0, len(whole.Parts))
	for _, p := range whole.Parts {
		parts = append(parts, types.CompletedPart{PartNumber: aws.Int32(int32(p.Number)), ETag: &p.ETag, ChecksumCRC64NVME: &p.CRC64})
	}
	in := &s3.CompleteMultipartUploadInput{
		Bucket: &a.bucket, Key: &key, UploadId: &uploadID, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
		ChecksumCRC64NVME: &whole.CRC64, ChecksumType: types.ChecksumTypeFullObject, MpuObjectSize: &whole.Size,
	}
	in.IfNoneMatch, in.IfMatch = conditions(m)
	_, err := a.client.CompleteMultipartUpload(ctx, in)
	return failure(err)
}

// Abort implements object.API.
func (a *api) Abort(ctx context.Context, key, uploadID string) error {
	_, err := a.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &a.bucket, Key: &key, UploadId: &uploadID})
	return failure(err)
}

// uploadSeparator joins the two markers of a page of uploads; keys and ids hold none.
const uploadSeparator = "\x00"

// Uploads implements object.API.
func (a *api) Uploads(ctx context.Context, prefix, token string) ([]object.Upload, string, error) {
	in := &s3.ListMultipartUploadsInput{Bucket: &a.bucket, Prefix: &prefix}
	if key, id, ok := strings.Cut(token, uploadSeparator); ok {
		in.KeyMarker, in.UploadIdMarker = &key, &id
	}
	out, err := a.client.ListMultipartUploads(ctx, in)
	if err != nil {
		return nil, "", failure(err)
	}
	page := make([]object.Upload, 0, len(out.Uploads))
	for _, u := range out.Uploads {
		page = append(page, object.Upload{Key: aws.ToString(u.Key), ID: aws.ToString(u.UploadId), Started: aws.ToTime(u.Initiated)})
	}
	if !aws.ToBool(out.IsTruncated) {
		return page, "", nil
	}
	return page, aws.ToString(out.NextKeyMarker) + uploadSeparator + aws.ToString(out.NextUploadIdMarker), nil
}
