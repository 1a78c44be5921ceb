// Package s3blob owns a blob.Store on S3 through the AWS SDK, with its chain of
// credentials: environment, profiles, SSO, web identity, instance roles.
//
// Invariant: the package only translates; what a write or an answer means is
// decided in package object.
package s3blob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"temper/internal/blob"
	"temper/internal/blob/object"
	"temper/internal/config"
)

const (
	// fallbackRegion signs for servers that know no regions.
	fallbackRegion = "us-east-1"
	// maxAttempts is the first request and the retries of the SDK.
	maxAttempts = 3
	maxBackoff  = 2 * time.Second
)

// Store is the store with its SDK client.
type Store struct {
	*object.Store
	client *s3.Client
	bucket string
}

// New opens the store at a place of kind StoreS3 or StoreS3D; for stall see object.Config.
// It finds the credentials but sends nothing to the bucket. Errors: blob.ErrMisconfigured
// when there are no credentials.
func New(ctx context.Context, c config.StorePlace, stall time.Duration) (*Store, error) {
	pool, err := object.Trust(c.CA)
	if err != nil {
		return nil, err
	}
	options := []func(*awsconfig.LoadOptions) error{
		// The SDK's own kind of client: it also honours AWS_CA_BUNDLE.
		awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { object.Tune(t, stall, pool) })),
		awsconfig.WithLogger(logging.Nop{}), // failures arrive as errors; the SDK's plain lines would break a log of JSON
		awsconfig.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff })
		}),
	}
	if c.Region != "" {
		options = append(options, awsconfig.WithRegion(c.Region))
	}
	account, err := accountOf(c.Account)
	if err != nil {
		return nil, err
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, append(options, account...)...)
	if err != nil {
		return nil, fmt.Errorf("AWS configuration (variables AWS_* and the files of profiles): %s: %w", strings.Join(strings.Fields(err.Error()), " "), blob.ErrMisconfigured)
	}
	if cfg.Region == "" {
		cfg.Region = fallbackRegion
	}
	place := "s3://" + strings.TrimSuffix(c.Bucket+"/"+c.Prefix, "/")
	if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
		return nil, fmt.Errorf("store %s: %s: %w (%s)", place, credentialAdvice(err), blob.ErrMisconfigured, strings.Join(strings.Fields(err.Error()), " "))
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = c.PathStyle
		o.DisableLogOutputChecksumValidationSkipped = true // package object checks
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
		// Package object brings and checks its own sums.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	return &Store{
		Store: object.New(object.Config{
			Place: place, Prefix: c.Prefix, PartSize: int64(c.PartSize), Concurrency: c.Concurrency, Stall: stall,
		}, &api{client: client, bucket: c.Bucket, write: writeOptions(c.Endpoint)}),
		client: client, bucket: c.Bucket,
	}, nil
}

// credentialAdvice distinguishes a refused role from a missing account.
func credentialAdvice(err error) string {
	var op *smithy.OperationError
	if errors.As(err, &op) && op.Service() == "STS" || os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" {
		return "the token service gives no credentials for the role: check AWS_ROLE_ARN or the profile's role_arn, " +
			"AWS_WEB_IDENTITY_TOKEN_FILE and whom the role trusts"
	}
	return "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or a role"
}

// accountOf takes the credentials from one file alone. A named profile is what
// the SDK prefers to the environment.
func accountOf(file string) ([]func(*awsconfig.LoadOptions) error, error) {
	if file == "" {
		return nil, nil
	}
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("no account of the S3 server: temper up makes one at its first start; name the same --home: %w: %w", blob.ErrMisconfigured, err)
	}
	return []func(*awsconfig.LoadOptions) error{
		awsconfig.WithSharedCredentialsFiles([]string{file}), awsconfig.WithSharedConfigFiles([]string{}), awsconfig.WithSharedConfigProfile("default"),
	}, nil
}

// writeOptions leave a body unsigned where TLS protects it: its checksum travels
// in a signed header, and SHA-256 costs more than all else a client does.
func writeOptions(endpoint string) []func(*s3.Options) {
	if strings.HasPrefix(endpoint, "http://") {
		return nil
	}
	return []func(*s3.Options){s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)}
}

// Client is the SDK's client of the store, for measurements against it.
func (s *Store) Client() *s3.Client { return s.client }

// failure turns an error of the SDK into one that package object understands.
func failure(err error) error {
	if err == nil {
		return nil
	}
	var response interface{ HTTPStatusCode() int }
	if !errors.As(err, &response) || response.HTTPStatusCode() == 0 {
		var signing *v4.SigningError
		if errors.As(err, &signing) {
			return fmt.Errorf("%w: %w", object.ErrCredentials, err)
		}
		return err
	}
	f := &object.Failure{Status: response.HTTPStatusCode(), Err: err}
	var coded interface{ ErrorCode() string }
	if errors.As(err, &coded) && coded.ErrorCode() != "UnknownError" {
		f.Code = coded.ErrorCode()
	}
	return f
}
