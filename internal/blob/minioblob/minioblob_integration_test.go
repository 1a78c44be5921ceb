//go:build integration

package minioblob_test

import (
	"fmt"
	"testing"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/minioblob"
)

// opener returns stores that are empty because each has a prefix of its own.
func opener(s blobtest.S3Server) func(*testing.T) blob.Store {
	n := 0
	return func(t *testing.T) blob.Store {
		n++
		return open(t, s, fmt.Sprintf("test/%d", n))
	}
}

func open(t *testing.T, s blobtest.S3Server, prefix string) *minioblob.Store {
	t.Helper()
	store, err := minioblob.New(minioblob.Config{
		Endpoint: s.Address, TLS: s.CA != "", Bucket: s.Bucket, Prefix: prefix, Region: s.Region, CA: s.CA, PartSize: 5 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

const large = 3*(5<<20) + 4321

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
