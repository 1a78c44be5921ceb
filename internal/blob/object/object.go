package object

import (
	"context"
	"io"
	"time"
)

// Object is what a server returns about a key.
type Object struct {
	Key     string // with the store's prefix
	Size    int64
	ModTime time.Time
	ETag    string
	// Nonce names the write that made the object, "" of foreign objects and in listings.
	Nonce string
	// CRC64 is the full-object CRC64NVME in base64, "" where the server has none.
	CRC64 string
}

// Match is the condition of a write. The zero value writes always.
type Match struct {
	Absent bool   // only where there is nothing
	ETag   string // only over this version
}

// Body is a request body with its checksum.
type Body struct {
	Data  []byte
	CRC64 string // CRC64NVME in base64
}

// Range asks for bytes of one version of an object.
type Range struct {
	Offset int64
	Length int64  // negative: to the end
	ETag   string // "": any version
}

// Part is an uploaded part.
type Part struct {
	Number int // from 1
	ETag   string
	CRC64  string
}

// Whole is what completes an upload.
type Whole struct {
	Parts []Part // by number
	Size  int64
	CRC64 string
}

// Upload is a multipart upload that is neither completed nor aborted.
type Upload struct {
	Key, ID string
	Started time.Time
}

// API is the part of S3 that a client library has to bring. Keys are the bucket's keys. A
// call makes one request, or several where the library retries; every error that the server
// answers is a *Failure. Implementations are safe for concurrent use.
type API interface {
	Head(ctx context.Context, key string) (Object, error)
	Get(ctx context.Context, key string, r Range) (io.ReadCloser, Object, error)
	Put(ctx context.Context, key string, body Body, m Match, nonce string) error
	Delete(ctx context.Context, key string) error
	// List returns one page that begins after the token, and the next token or "".
	List(ctx context.Context, prefix, token string) ([]Object, string, error)
	// ListFolder is List without what has a slash behind the prefix; the beginnings of
	// such keys, up to and with that slash, come as folders.
	ListFolder(ctx context.Context, prefix, token string) (objects []Object, folders []string, next string, err error)

	Create(ctx context.Context, key, nonce string) (uploadID string, err error)
	UploadPart(ctx context.Context, key, uploadID string, number int, body Body) (etag string, err error)
	Complete(ctx context.Context, key, uploadID string, whole Whole, m Match) error
	Abort(ctx context.Context, key, uploadID string) error
	// Uploads returns one page of unfinished uploads, like List.
	Uploads(ctx context.Context, prefix, token string) ([]Upload, string, error)
}

// NonceHeader is the metadata under which a write leaves its nonce, without the
// prefix of user metadata.
const NonceHeader = "temper-write"

// BodyOf adds the checksum to data.
func BodyOf(data []byte) Body {
	sum := NewChecksum()
	_, _ = sum.Write(data) // a hash takes all
	return Body{Data: data, CRC64: EncodeChecksum(sum)}
}
