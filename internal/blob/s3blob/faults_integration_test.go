//go:build integration

package s3blob_test

import (
	"testing"
	"time"

	"temper/internal/blob"
	"temper/internal/blob/blobtest"
	"temper/internal/blob/s3blob"
	"temper/internal/config"
)

func TestFaults(t *testing.T) {
	server := blobtest.StartS3(t)
	proxy := blobtest.NewProxy(t, server.Endpoint)
	blobtest.RunFaults(t, proxy, large, func(t *testing.T, folder string, stall time.Duration) blob.Store {
		s, err := s3blob.New(t.Context(), config.StorePlace{
			Bucket: server.Bucket, Prefix: "faults/" + folder, Region: server.Region, Endpoint: proxy.URL, PathStyle: true,
			PartSize: 5 << 20, Concurrency: 2,
		}, stall)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// TestMistakesAreToldInOneLine: a wrong account, bucket or address stays wrong.
func TestMistakesAreToldInOneLine(t *testing.T) {
	server := blobtest.StartS3(t)
	blobtest.RunMistakes(t, server, func(t *testing.T, bucket string) (blob.Store, error) {
		return s3blob.New(t.Context(), config.StorePlace{Bucket: bucket, Region: server.Region, Endpoint: server.Endpoint, PathStyle: true}, 0)
	})
}
