// Package storeurl owns the way from a store URL to an open store: it is the one
// place that knows all drivers.
//
// Invariant: it opens what config.StorePlace says and reads no configuration of
// its own; secrets come from the drivers' credential chains.
package storeurl

import (
	"context"
	"fmt"

	"temper/internal/blob"
	"temper/internal/blob/fileblob"
	"temper/internal/blob/minioblob"
	"temper/internal/blob/s3blob"
	"temper/internal/config"
)

// Open opens the store at a place. A bucket on MinIO is made when there is none;
// otherwise nothing is sent. Errors: blob.ErrMisconfigured without credentials or
// permission, blob.ErrUnavailable when a server does not answer.
func Open(ctx context.Context, p config.StorePlace) (blob.Store, error) {
	switch p.Kind {
	case config.StoreFile:
		return fileblob.New(p.Dir)
	case config.StoreS3, config.StoreS3D:
		return s3blob.New(ctx, p, 0)
	case config.StoreMinIO:
		s, err := minioblob.New(p, 0)
		if err != nil {
			return nil, err
		}
		return s, s.Bootstrap(ctx)
	default:
		return nil, fmt.Errorf("store %s: want a file, s3, minio or s3d store", p)
	}
}
