package minioblob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/minio/minio-go/v7/pkg/notification"

	"temper/internal/blob"
)

// Watch implements blob.Watcher. Only MinIO itself sends these notifications.
func (s *Store) Watch(ctx context.Context, prefix string, seen func(blob.Info) error) error {
	within := path.Join(s.cfg.Prefix, prefix)
	if within != "" && (prefix == "" || strings.HasSuffix(prefix, "/")) {
		within += "/"
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the listener
	events := s.core.ListenBucketNotification(ctx, s.cfg.Bucket, within, "", []string{string(notification.ObjectCreatedAll)})
	for info := range events {
		var foreign *json.SyntaxError // a listing in XML
		if errors.As(info.Err, &foreign) {
			return fmt.Errorf("watch %s: the server sends no events: %w", s.Locate(prefix), blob.ErrMisconfigured)
		}
		if info.Err != nil {
			return s.explain(ctx, info.Err)
		}
		for _, record := range info.Records {
			key := strings.TrimPrefix(strings.TrimPrefix(record.S3.Object.Key, s.cfg.Prefix), "/")
			if err := seen(blob.Info{Key: key, Size: record.S3.Object.Size}); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
