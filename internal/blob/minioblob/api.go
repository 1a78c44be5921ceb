package minioblob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"temper/internal/blob/object"
)

// Names of headers that minio-go passes on as they are.
const (
	sumHeader          = "x-amz-checksum-crc64nvme"
	sumTypeHeader      = "x-amz-checksum-type"
	sumAlgorithmHeader = "x-amz-checksum-algorithm"
	fullObject         = "FULL_OBJECT"
)

// pageSize is how many keys one listing asks for, the most that servers give.
const pageSize = 1000

// api is object.API on minio-go's core calls.
type api struct {
	core       *minio.Core
	bucket     string
	signBodies bool // there is no TLS that protects them
}

var _ object.API = (*api)(nil)

// Head implements object.API.
func (a *api) Head(ctx context.Context, key string) (object.Object, error) {
	info, err := a.core.StatObject(ctx, a.bucket, key, minio.StatObjectOptions{Checksum: true})
	return objectOf(info), failure(err)
}

// Get implements object.API.
func (a *api) Get(ctx context.Context, key string, r object.Range) (io.ReadCloser, object.Object, error) {
	opts := minio.GetObjectOptions{Checksum: true}
	if r.ETag != "" {
		if err := opts.SetMatchETag(r.ETag); err != nil {
			return nil, object.Object{}, err
		}
	}
	switch {
	case r.Length >= 0:
		if err := opts.SetRange(r.Offset, r.Offset+r.Length-1); err != nil {
			return nil, object.Object{}, err
		}
	case r.Offset > 0:
		if err := opts.SetRange(r.Offset, 0); err != nil {
			return nil, object.Object{}, err
		}
	}
	body, info, _, err := a.core.GetObject(ctx, a.bucket, key, opts)
	if err != nil {
		return nil, object.Object{}, failure(err)
	}
	return body, objectOf(info), nil
}

func objectOf(info minio.ObjectInfo) object.Object {
	o := object.Object{Key: info.Key, Size: info.Size, ModTime: info.LastModified, ETag: info.ETag}
	if !strings.Contains(info.ChecksumCRC64NVME, "-") { // a sum of sums ends in the number of parts
		o.CRC64 = info.ChecksumCRC64NVME
	}
	for name, value := range info.UserMetadata {
		if strings.EqualFold(name, object.NonceHeader) {
			o.Nonce = value
		}
	}
	return o
}

// options are the headers of a write.
func options(headers map[string]string, m object.Match) minio.PutObjectOptions {
	opts := minio.PutObjectOptions{UserMetadata: headers, DisableContentSha256: true}
	if m.Absent {
		opts.SetMatchETagExcept("*")
	}
	if m.ETag != "" {
		opts.SetMatchETag(m.ETag)
	}
	return opts
}

// sum is the SHA-256 that a body is signed with, "" for none.
func (a *api) sum(data []byte) string {
	if !a.signBodies {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Put implements object.API.
func (a *api) Put(ctx context.Context, key string, body object.Body, m object.Match, nonce string) error {
	headers := map[string]string{object.NonceHeader: nonce, sumHeader: body.CRC64}
	_, err := a.core.PutObject(ctx, a.bucket, key, bytes.NewReader(body.Data), int64(len(body.Data)), "", a.sum(body.Data), options(headers, m))
	return failure(err)
}

// Delete implements object.API.
func (a *api) Delete(ctx context.Context, key string) error {
	return failure(a.core.RemoveObject(ctx, a.bucket, key, minio.RemoveObjectOptions{}))
}

// List implements object.API.
func (a *api) List(ctx context.Context, prefix, token string) ([]object.Object, string, error) {
	page, _, next, err := a.list(ctx, prefix, "", token)
	return page, next, err
}

// ListFolder implements object.API.
func (a *api) ListFolder(ctx context.Context, prefix, token string) ([]object.Object, []string, string, error) {
	return a.list(ctx, prefix, "/", token)
}

func (a *api) list(ctx context.Context, prefix, delimiter, token string) (page []object.Object, folders []string, next string, err error) {
	if err := ctx.Err(); err != nil { // the call takes no context
		return nil, nil, "", err
	}
	out, err := a.core.ListObjectsV2(a.bucket, prefix, "", token, delimiter, pageSize)
	if err != nil {
		return nil, nil, "", failure(err)
	}
	for _, info := range out.Contents {
		page = append(page, objectOf(info))
	}
	for _, p := range out.CommonPrefixes {
		folders = append(folders, p.Prefix)
	}
	return page, folders, out.NextContinuationToken, nil
}

// Create implements object.API.
func (a *api) Create(ctx context.Context, key, nonce string) (string, error) {
	headers := map[string]string{object.NonceHeader: nonce, sumAlgorithmHeader: "CRC64NVME", sumTypeHeader: fullObject}
	id, err := a.core.NewMultipartUpload(ctx, a.bucket, key, options(headers, object.Match{}))
	return id, failure(err)
}

// UploadPart implements object.API.
func (a *api) UploadPart(ctx context.Context, key, uploadID string, number int, body object.Body) (string, error) {
	part, err := a.core.PutObjectPart(ctx, a.bucket, key, uploadID, number, bytes.NewReader(body.Data), int64(len(body.Data)),
		minio.PutObjectPartOptions{
			Sha256Hex: a.sum(body.Data), DisableContentSha256: true,
			CustomHeader: http.Header{http.CanonicalHeaderKey(sumHeader): {body.CRC64}},
		})
	return part.ETag, failure(err)
}

// Complete implements object.API.
func (a *api) Complete(ctx context.Context, key, uploadID string, whole object.Whole, m object.Match) error {
	parts := make([]minio.CompletePart, 0, len(whole.Parts))
	for _, p := range whole.Parts {
		parts = append(parts, minio.CompletePart{PartNumber: p.Number, ETag: p.ETag, ChecksumCRC64NVME: p.CRC64})
	}
	headers := map[string]string{sumHeader: whole.CRC64, sumTypeHeader: fullObject}
	_, err := a.core.CompleteMultipartUpload(ctx, a.bucket, key, uploadID, parts, options(headers, m))
	return failure(err)
}

// Abort implements object.API.
func (a *api) Abort(ctx context.Context, key, uploadID string) error {
	return failure(a.core.AbortMultipartUpload(ctx, a.bucket, key, uploadID))
}

// markerSeparator joins the two markers of a page of uploads; keys and ids hold none.
const markerSeparator = "\x00"

// Uploads implements object.API.
func (a *api) Uploads(ctx context.Context, prefix, token string) ([]object.Upload, string, error) {
	key, id, _ := strings.Cut(token, markerSeparator)
	out, err := a.core.ListMultipartUploads(ctx, a.bucket, prefix, key, id, "", pageSize)
	if err != nil {
		return nil, "", failure(err)
	}
	page := make([]object.Upload, 0, len(out.Uploads))
	for _, u := range out.Uploads {
		page = append(page, object.Upload{Key: u.Key, ID: u.UploadID, Started: u.Initiated})
	}
	if !out.IsTruncated {
		return page, "", nil
	}
	return page, out.NextKeyMarker + markerSeparator + out.NextUploadIDMarker, nil
}
