package blob

import (
	"context"
	"io"
)

// ParallelReader is a Store that reads several ranges of one version at once, for links
// that are faster than one stream.
type ParallelReader interface {
	// ReadInto writes the bytes under key to w, in any order, and returns their
	// number. It checks no content: compare with the Ref afterwards. After an error w
	// holds anything. Errors: ErrNotExist; ErrUnavailable also when the key is
	// overwritten meanwhile.
	ReadInto(ctx context.Context, key string, w io.WriterAt) (size int64, err error)
}
