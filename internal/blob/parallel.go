package blob

import (
	"context"
	"io"
)

// ParallelReader is what a Store offers besides Get where one stream is slower
// than the link: several ranges of one version at once.
type ParallelReader interface {
	// ReadInto writes the bytes under key to w, in any order, and returns their
	// number. It checks no content: compare with the Ref afterwards. After an error w
	// holds anything. Errors: ErrNotExist; ErrUnavailable also when the key is
	// overwritten meanwhile.
	ReadInto(ctx context.Context, key string, w io.WriterAt) (size int64, err error)
}
