package blobtest

import (
	"net/url"
	"os"
	"strings"
	"testing"
)

// minioVariable names a running MinIO: http://access:secret@host:port.
const minioVariable = "TEMPER_TEST_MINIO_URL"

// MinIO returns the server that TEMPER_TEST_MINIO_URL names and puts its account
// into the environment of the test; without one the test is skipped.
func MinIO(t *testing.T) S3Server {
	t.Helper()
	text := os.Getenv(minioVariable)
	if text == "" {
		t.Skipf("%s names no server (http://access:secret@host:port)", minioVariable)
	}
	u, err := url.Parse(text)
	if err != nil || u.User == nil || u.Port() == "" {
		t.Fatalf("%s: want http://access:secret@host:port", minioVariable)
	}
	secret, _ := u.User.Password()
	setAccount(t, u.User.Username(), secret)
	return S3Server{
		Endpoint: u.Scheme + "://" + u.Host, Address: u.Host, Region: "us-east-1",
		Bucket: "temper-test-" + strings.ToLower(t.Name()[:min(8, len(t.Name()))]),
	}
}

// setAccount makes an account the only one that a client finds.
func setAccount(t *testing.T, access, secret string) {
	t.Setenv("AWS_ACCESS_KEY_ID", access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_SESSION_TOKEN", "")
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}
