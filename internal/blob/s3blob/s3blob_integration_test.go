//go:build integration

package s3blob_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/s3blob"
	"temper/internal/config"
)

// opener returns stores that are empty because each has a prefix of its own.
func opener(s blobtest.S3Server) func(*testing.T) blob.Store {
	n := 0
	return func(t *testing.T) blob.Store {
		n++
		return open(t, s, fmt.Sprintf("test/%d", n))
	}
}

func open(t *testing.T, s blobtest.S3Server, prefix string) *s3blob.Store {
	t.Helper()
	store, err := s3blob.New(t.Context(), config.StorePlace{
		Bucket: s.Bucket, Prefix: prefix, Region: s.Region, Endpoint: s.Endpoint, PathStyle: true, CA: s.CA, PartSize: 5 << 20,
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

const large = 3*(5<<20) + 4321

// TestMinIO runs on a server that is given, as one is not built for the tests.
func TestMinIO(t *testing.T) {
	server := blobtest.MinIO(t)
	prefix := rand.Text()
	n := 0
	client := open(t, server, "").Client()
	_, _ = client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &server.Bucket}) // is there since the first time
	next := func(t *testing.T) blob.Store {
		n++
		return open(t, server, fmt.Sprintf("%s/%d", prefix, n))
	}
	blobtest.Run(t, next)
	blobtest.RunLarge(t, large, next)
}

func TestConformance(t *testing.T) {
	for name, args := range map[string][]string{"plain": nil, "TLS": {"--tls"}, "versions": {"--versions"}} {
		t.Run(name, func(t *testing.T) {
			server := blobtest.StartS3(t, args...)
			next := opener(server)
			blobtest.Run(t, next)
			blobtest.RunLarge(t, large, next)
		})
	}
}
