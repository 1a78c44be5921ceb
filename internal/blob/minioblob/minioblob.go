// Package minioblob implements blob.Store on MinIO and similar servers through minio-go: it
// makes a missing bucket, and can watch for keys.
//
// Invariant: the package only translates; package object interprets writes and answers.
package minioblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/lifecycle"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"temper/internal/blob"
	"temper/internal/blob/object"
	"temper/internal/config"
)

const (
	// maxAttempts counts the first request and the library's retries.
	maxAttempts = 3
	// keepVersions is the number of days for which a bucket of ours keeps overwritten and
	// deleted objects.
	keepVersions = 7
)

// Store is the store with its client.
type Store struct {
	*object.Store
	core *minio.Core
	cfg  config.StorePlace
}

var _ blob.Watcher = (*Store)(nil)

// New opens the store at a place of kind StoreMinIO and sends nothing; Bootstrap makes the
// bucket. For stall see object.Config. Errors: blob.ErrMisconfigured when there are no
// credentials.
func New(c config.StorePlace, stall time.Duration) (*Store, error) {
	transport, err := object.Transport(stall, c.CA)
	if err != nil {
		return nil, err
	}
	place := "minio://" + strings.TrimSuffix(c.Endpoint+"/"+c.Bucket+"/"+c.Prefix, "/")
	chain := credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.FileMinioClient{},
	})
	value, err := chain.GetWithContext(&credentials.CredContext{Client: &http.Client{Transport: transport}})
	if err != nil || value.SignerType.IsAnonymous() {
		return nil, fmt.Errorf("store %s: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or MINIO_ROOT_USER and MINIO_ROOT_PASSWORD: %w",
			place, errors.Join(blob.ErrMisconfigured, err))
	}
	if err := s3utils.CheckValidBucketName(c.Bucket); err != nil {
		return nil, fmt.Errorf("store %s: the bucket's name %q is not valid: correct the store's URL: %w: %w", place, c.Bucket, blob.ErrMisconfigured, err)
	}
	core, err := minio.NewCore(c.Endpoint, &minio.Options{
		Creds: chain, Secure: c.TLS, Transport: transport, Region: c.Region,
		BucketLookup: minio.BucketLookupPath, MaxRetries: maxAttempts,
	})
	if err != nil {
		return nil, fmt.Errorf("store %s: %w: %w", place, blob.ErrMisconfigured, err)
	}
	return &Store{
		Store: object.New(object.Config{
			Place: place, Prefix: c.Prefix, PartSize: int64(c.PartSize), Concurrency: c.Concurrency, Stall: stall,
		}, &api{core: core, bucket: c.Bucket, signBodies: !c.TLS}),
		core: core, cfg: c,
	}, nil
}

// Bootstrap makes the bucket if it is missing. A new bucket keeps versions for a week, if
// the server can. It is idempotent.
func (s *Store) Bootstrap(ctx context.Context) error {
	exists, err := s.core.BucketExists(ctx, s.cfg.Bucket)
	if err != nil {
		return s.explain(ctx, err)
	}
	if exists {
		return nil
	}
	err = s.core.MakeBucket(ctx, s.cfg.Bucket, minio.MakeBucketOptions{Region: s.cfg.Region})
	switch minio.ToErrorResponse(err).Code {
	case "BucketAlreadyOwnedByYou", "BucketAlreadyExists":
		return nil // another process was faster
	}
	if err != nil {
		return s.explain(ctx, err)
	}
	// Both protect people who delete by mistake. No code relies on them, so servers without
	// them are fine.
	if s.core.EnableVersioning(ctx, s.cfg.Bucket) == nil {
		rules := lifecycle.NewConfiguration()
		rules.Rules = []lifecycle.Rule{{
			ID: "temper-old-versions", Status: "Enabled",
			NoncurrentVersionExpiration: lifecycle.NoncurrentVersionExpiration{NoncurrentDays: keepVersions},
		}}
		_ = s.core.SetBucketLifecycle(ctx, s.cfg.Bucket, rules)
	}
	return nil
}

// explain turns an error of the bucket itself into one of package blob.
func (s *Store) explain(ctx context.Context, err error) error {
	return s.Explain(ctx, "open bucket", "", failure(err))
}

// Client is minio-go's client of the store, for measurements against it.
func (s *Store) Client() *minio.Client { return s.core.Client }

// failure turns an error of minio-go into an *object.Failure.
func failure(err error) error {
	var response minio.ErrorResponse
	if err == nil || !errors.As(err, &response) || response.StatusCode == 0 {
		return err
	}
	return &object.Failure{Status: response.StatusCode, Code: response.Code, Err: err}
}
