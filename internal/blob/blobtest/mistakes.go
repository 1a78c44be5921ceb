package blobtest

import (
	"errors"
	"strings"
	"testing"

	"temper/internal/blob"
)

// RunMistakes proves that a wrong account or bucket of a server is told at once, in one
// line that says what to do and holds no secret. open opens a store in a bucket with
// the account of the environment.
func RunMistakes(t *testing.T, server S3Server, open func(t *testing.T, bucket string) (blob.Store, error)) {
	const secret = "hunter2-hunter2"
	for name, row := range map[string]struct{ access, secret, bucket, advice string }{
		"a wrong secret":  {AccessKey, secret, server.Bucket, "credentials are refused"},
		"a wrong account": {"nobody", secret, server.Bucket, "credentials are refused"},
		"no such bucket":  {AccessKey, SecretKey, "no-such-bucket", "bucket does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", row.access)
			t.Setenv("AWS_SECRET_ACCESS_KEY", row.secret)
			s, err := open(t, row.bucket)
			if err == nil {
				err = blob.Probe(t.Context(), s)
			}
			if !errors.Is(err, blob.ErrMisconfigured) || !strings.Contains(err.Error(), row.advice) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, row.advice)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), SecretKey)) {
				t.Errorf("the error holds a secret: %v", err)
			}
		})
	}
}
